"""The endpoint asks everybody for a token."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import Any

import aiohttp
import pytest

from rehearsal.arm.auth.authentication import UNPROVEN, Unproven
from tests.rehearsal.doubles import AUTHORIZED, BASE, SUBSCRIPTION_ID, Endpoint
from tests.rehearsal.strangers import put, send

BODY = '{"location": "westeurope"}'
VERSION = "?api-version=2024-11-01"


def ask(azure: Endpoint, method: str = "PUT", path: str = BASE, **headers: str) -> tuple[int, Any, Any]:
    """Status, body and headers of a request with these headers."""

    async def send_it() -> tuple[int, Any, Any]:
        url = f"{azure.url}{path}{VERSION}"
        kind = {"Content-Type": "application/json"}
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, url, data=BODY, headers=kind | headers) as answer,
        ):
            return answer.status, await answer.json(), answer.headers

    found: tuple[int, Any, Any] = azure.run(send_it())
    return found


def test_none_of_200_requests_that_were_sent_and_closed_at_once_took_effect(azure: Endpoint) -> None:
    port = int(azure.url.rpartition(":")[2])
    send(port, put(f"{BASE}{VERSION}", BODY, Host=f"127.0.0.1:{port}"), times=200)
    time.sleep(0.5)
    assert azure.subscription.groups == {}
    assert azure.ask("PUT", BASE, {"location": "westeurope"})[0] == 201


@pytest.mark.parametrize(
    ("authorization", "code"),
    [
        ({}, "AuthenticationFailed"),
        ({"Authorization": ""}, "AuthenticationFailed"),
        ({"Authorization": "Basic dTpw"}, "AuthenticationFailed"),
        ({"Authorization": "Bearer"}, "AuthenticationFailed"),
        ({"Authorization": "Bearer made-up"}, "InvalidAuthenticationToken"),
        ({"Authorization": "Bearer é"}, "InvalidAuthenticationToken"),
        ({"Authorization": AUTHORIZED["Authorization"] + "x"}, "InvalidAuthenticationToken"),
    ],
)
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", BASE),
        ("DELETE", BASE),
        ("GET", "/subscriptions"),
        ("GET", f"/subscriptions/{SUBSCRIPTION_ID}/resourcegroups"),
        ("GET", "/api/retail/prices"),
        ("GET", "/nonsense"),
    ],
)
def test_without_the_token_every_request_is_refused_in_azures_words(
    azure: Endpoint, method: str, path: str, authorization: dict[str, str], code: str
) -> None:
    status, answer, headers = ask(azure, method, path, **authorization)
    assert (status, answer["error"]["code"]) == (401, code)
    assert headers["WWW-Authenticate"].startswith("Bearer")
    assert azure.subscription.groups == {}


def test_the_scheme_is_known_in_any_case(azure: Endpoint) -> None:
    token = AUTHORIZED["Authorization"].partition(" ")[2]
    assert ask(azure, Authorization=f"bearer {token}")[0] == 201


@pytest.mark.parametrize(
    "host", ["example.com", "example.com:{port}", "127.0.0.1", "127.0.0.1:1", "127.0.0.2:{port}"]
)
def test_a_request_that_names_another_host_is_refused_even_with_the_token(azure: Endpoint, host: str) -> None:
    port = azure.url.rpartition(":")[2]
    status, answer, _ = ask(azure, Host=host.format(port=port), **AUTHORIZED)
    assert (status, answer["error"]["code"]) == (400, "InvalidHostName")
    assert azure.subscription.groups == {}


def test_both_names_of_the_loopback_address_are_its_own(azure: Endpoint) -> None:
    port = azure.url.rpartition(":")[2]
    assert ask(azure, Host=f"localhost:{port}", **AUTHORIZED)[0] == 201
    assert ask(azure, Host=f"127.0.0.1:{port}", **AUTHORIZED)[0] == 200


def test_connections_without_a_token_are_few_and_hold_up_nothing(azure: Endpoint) -> None:
    port = int(azure.url.rpartition(":")[2])
    idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(200)]
    try:
        assert azure.ask("PUT", BASE, {"location": "westeurope"})[0] == 201
        assert len(azure.app[UNPROVEN]) <= 64
    finally:
        for one in idle:
            one.close()


def test_a_connection_without_a_token_ends_in_time() -> None:
    async def scenario() -> bytes:
        async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            transport = writer.transport
            assert isinstance(transport, asyncio.Transport)
            unproven.add(transport)
            accepted.append(writer)
            if len(accepted) == 1:
                unproven.discard(transport)

        accepted: list[asyncio.StreamWriter] = []  # one that is dropped closes its connection
        unproven = Unproven(seconds=0.1)
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        at = server.sockets[0].getsockname()
        async with server:
            one, its_end = await asyncio.open_connection(*at)
            other, other_end = await asyncio.open_connection(*at)
            async with asyncio.timeout(5):
                assert await other.read(1) == b""
            accepted[0].write(b"still here")
            found = await one.read(10)
            for writer in (its_end, other_end, *accepted):
                writer.close()
        return found

    assert asyncio.run(scenario()) == b"still here"
