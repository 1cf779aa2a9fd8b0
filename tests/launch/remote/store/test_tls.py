"""Only those who have a push's credential can send on its lines or read from them."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from contextlib import closing

import pytest

from launch.code.push_key import make_credential
from launch.remote.base import timing
from launch.remote.store.tls import accept, dial, listen


def serve(credential: str) -> tuple[int, list[bytes | Exception], threading.Thread]:
    listener = listen("127.0.0.1")
    got: list[bytes | Exception] = []

    def work() -> None:
        try:
            with closing(accept(listener, credential)) as line:
                room = bytearray(8)
                line.recv_into(memoryview(room))
                got.append(bytes(room))
        except (OSError, EOFError) as error:
            got.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    return listener.getsockname()[1], got, thread


def test_the_same_credential_at_both_ends_makes_a_line() -> None:
    credential = make_credential()
    port, got, thread = serve(credential)
    with closing(dial("127.0.0.1", port, credential)) as line:
        line.sendall(b"contents")
    thread.join()
    assert got == [b"contents"]


def parent(port: int, credential: str) -> None:
    with closing(dial("127.0.0.1", port, credential)) as line:
        line.sendall(b"contents")


def test_another_push_cannot_send_nor_keep_the_parent_out() -> None:
    credential = make_credential()
    port, got, thread = serve(credential)
    with pytest.raises(ssl.SSLError, match="CERTIFICATE_VERIFY_FAILED"):
        dial("127.0.0.1", port, make_credential())
    parent(port, credential)
    thread.join()
    assert got == [b"contents"]


def test_who_shows_no_credential_is_refused() -> None:
    credential = make_credential()
    port, got, thread = serve(credential)
    stranger = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    stranger.check_hostname = False
    stranger.load_verify_locations(cadata=credential[credential.index("-----BEGIN CERTIFICATE") :])
    with (
        socket.create_connection(("127.0.0.1", port)) as plain,
        stranger.wrap_socket(plain) as line,
        pytest.raises(ssl.SSLError),
    ):
        line.sendall(b"contents")
        line.recv(1)
    parent(port, credential)
    thread.join()
    assert got == [b"contents"]


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01", b"GET / HTTP/1.1\r\n\r\n"])
def test_who_was_there_first_does_not_hold_up_the_parent(sent: bytes) -> None:
    credential = make_credential()
    port, got, thread = serve(credential)
    strangers = [socket.create_connection(("127.0.0.1", port)) for _ in range(200)]
    for stranger in strangers:
        stranger.sendall(sent)
    begun = time.monotonic()
    parent(port, credential)
    thread.join()
    assert time.monotonic() - begun < 5
    assert got == [b"contents"]
    for stranger in strangers:
        stranger.close()


def test_a_parent_that_does_not_come_is_waited_for_no_longer_than_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(timing, "PUSH_CONNECT_S", 0.25)
    port, got, thread = serve(make_credential())
    with socket.create_connection(("127.0.0.1", port)) as stranger:
        stranger.sendall(b"no TLS at all")
        thread.join(10)
    assert isinstance(got[0], TimeoutError)
    assert str(got[0]).startswith("no connection from another node within 0.5 s; refused connections: [SSL")
