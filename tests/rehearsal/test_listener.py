"""Ports that other users of the machine find closed."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import pytest
from pulumi.runtime.proto import provider_pb2 as p

from launch.errors import RetryError
from rehearsal.listener import Listener, bound, relay_to
from rehearsal.provider import serve
from rehearsal.provider.values import encode
from tests.rehearsal.doubles import TOKEN, Endpoint
from tests.rehearsal.provider.engine import GROUP, Engine
from tests.rehearsal.strangers import IS_ROOT, recorded_call, send

needs_root = pytest.mark.skipif(not IS_ROOT, reason="only root can call as somebody else")


async def groups_after(azure: Endpoint, folder: Path, *, uid: int, times: int, keep: bool) -> set[str]:
    """Resource groups there are once another process has sent Pulumi's call to create one."""
    inputs = {"resourceGroupName": "stolen", "location": "westeurope"}
    request = p.CreateRequest(urn=Engine.urn(GROUP, "x"), properties=encode(inputs))
    call = await recorded_call("Create", request)
    provider = await serve(azure.url, TOKEN, folder)
    try:
        await asyncio.to_thread(send, provider.port, call, times=times, keep=keep, uid=uid)
        await asyncio.sleep(0.5)
    finally:
        await provider.stop()
    return {group.id.group for group in azure.subscription.groups.values()}


def test_a_recorded_call_of_this_user_is_carried_out(azure: Endpoint, tmp_path: Path) -> None:
    found = asyncio.run(groups_after(azure, tmp_path, uid=os.getuid(), times=1, keep=True))
    assert found == {"stolen"}


@needs_root
@pytest.mark.parametrize("keep", [False, True])
def test_the_provider_does_nothing_for_another_user(azure: Endpoint, tmp_path: Path, keep: bool) -> None:
    assert asyncio.run(groups_after(azure, tmp_path, uid=65534, times=200, keep=keep)) == set()


@needs_root
def test_idle_connections_of_another_user_hold_up_nothing(tmp_path: Path) -> None:
    served: list[socket.socket] = []

    async def take(client: socket.socket) -> None:
        served.append(client)

    async def scenario() -> None:
        listener = Listener(take)
        listener.start()
        try:
            answers = await asyncio.to_thread(send, listener.port, b"", times=300, keep=True)
            # Not of all: one that was reset before anything was sent has learnt it by then.
            assert set(answers.split()) == {"ConnectionResetError"}
            with socket.create_connection(("127.0.0.1", listener.port)):
                async with asyncio.timeout(10):
                    while not served:
                        await asyncio.sleep(0.01)
        finally:
            await listener.close()
            for client in served:
                client.close()

    asyncio.run(scenario())
    assert len(served) == 1


def test_a_relay_passes_both_directions_on_and_each_end_of_them(tmp_path: Path) -> None:
    async def echo_when_done(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.read(-1))[::-1])
        writer.close()

    async def scenario() -> bytes:
        server = await asyncio.start_unix_server(echo_when_done, tmp_path / "there")
        listener = Listener(relay_to(tmp_path / "there"))
        listener.start()
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
            writer.write(b"ab" * 100_000)
            writer.write_eof()
            answer = await reader.read(-1)
            writer.close()
            return answer
        finally:
            await listener.close()
            server.close()

    assert asyncio.run(scenario()) == b"ba" * 100_000


def test_nobody_behind_a_relay_ends_the_connection(tmp_path: Path) -> None:
    async def scenario() -> bytes:
        listener = Listener(relay_to(tmp_path / "nobody"))
        listener.start()
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
            async with asyncio.timeout(10):
                found = await reader.read(-1)
            writer.close()
            return found
        finally:
            await listener.close()

    assert asyncio.run(scenario()) == b""


@pytest.mark.parametrize("listens", [True, False])
def test_a_taken_port_is_named_with_its_purpose_and_how_to_find_who_has_it(listens: bool) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        if listens:
            other.listen()
        port = other.getsockname()[1]
        with pytest.raises(RetryError) as error:
            bound(("127.0.0.1", port), "the load balancer's port for 10.0.0.8:22")
    assert str(error.value) == (
        f"port {port} of 127.0.0.1, the load balancer's port for 10.0.0.8:22, is taken by another program "
        f"on this machine: `ss -ltnp src 127.0.0.1:{port}` shows which; end that, then repeat the command"
    )


def test_an_address_that_is_not_here_is_no_taken_port() -> None:
    with pytest.raises(OSError, match="assign requested address"):
        bound(("192.0.2.1", 0), "a test")
