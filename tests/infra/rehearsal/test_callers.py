"""The emulated Azure serves the user who rehearses, and nobody else on the machine."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator

import grpc
import pytest
from google.protobuf import empty_pb2
from pulumi.runtime.proto import provider_pb2_grpc

from infra.rehearsal.callers import is_trusted, owner
from infra.rehearsal.provider import serve
from tests.infra.rehearsal.doubles import RecordingMachines, endpoint


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def test_the_kernel_knows_whose_connection_it_is(listener: socket.socket) -> None:
    here = listener.getsockname()
    with socket.create_connection(here) as mine:
        assert owner(mine.getsockname(), here) == os.getuid()
        assert is_trusted(mine.getsockname(), here)


def test_a_connection_that_is_not_there_is_nobodys(listener: socket.socket) -> None:
    here = listener.getsockname()
    assert owner(("127.0.0.1", 1), here) is None
    assert not is_trusted(("127.0.0.1", 1), here)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can call as somebody else")
def test_another_users_connection_is_theirs(listener: socket.socket) -> None:
    here = listener.getsockname()
    call = f"import socket; s = socket.create_connection({here!r}); print(s.getsockname()[1], flush=True)"
    argv = [
        "/usr/bin/setpriv",
        "--reuid=65534",
        "--clear-groups",
        sys.executable,
        "-I",
        "-S",
        "-c",
        call + "; input()",
    ]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/"
    ) as stranger:
        assert stranger.stdin is not None and stranger.stdout is not None
        port = int(stranger.stdout.readline())
        assert owner(("127.0.0.1", port), here) == 65534
        stranger.stdin.close()


def test_strangers_are_refused_by_the_resource_manager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infra.rehearsal.callers.owner", lambda *_: 12345)

    with endpoint(RecordingMachines()) as azure:
        request = urllib.request.Request(f"{azure.url}/subscriptions?api-version=2024-01-01")
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=10)
        with refused.value as answer:
            assert answer.status == 403
            assert json.loads(answer.read())["error"]["code"] == "AuthorizationFailed"


def test_strangers_are_refused_by_the_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infra.rehearsal.callers.owner", lambda *_: 12345)

    async def ask() -> grpc.StatusCode:
        provider = await serve("http://127.0.0.1:9")
        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{provider.port}") as channel:
                await provider_pb2_grpc.ResourceProviderStub(channel).GetPluginInfo(empty_pb2.Empty())
        except grpc.aio.AioRpcError as error:
            return error.code()
        finally:
            await provider.stop()
        return grpc.StatusCode.OK

    assert asyncio.run(ask()) is grpc.StatusCode.PERMISSION_DENIED
