"""Only those who have a push's credential can send on its lines or read from them."""

from __future__ import annotations

import socket
import ssl
import threading

import pytest

from launch.credential import make_credential
from launch.remote.line import accept, dial, listen


def serve(credential: str) -> tuple[int, list[bytes | Exception], threading.Thread]:
    listener = listen("127.0.0.1")
    got: list[bytes | Exception] = []

    def work() -> None:
        try:
            with accept(listener, credential) as line:
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
    with dial("127.0.0.1", port, credential) as line:
        line.sendall(b"contents")
    thread.join()
    assert got == [b"contents"]


def test_another_push_cannot_send() -> None:
    port, got, thread = serve(make_credential())
    with pytest.raises(ssl.SSLError, match="CERTIFICATE_VERIFY_FAILED"):
        dial("127.0.0.1", port, make_credential())
    thread.join()
    assert isinstance(got[0], ssl.SSLError)


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
    thread.join()
    assert isinstance(got[0], ssl.SSLError)
