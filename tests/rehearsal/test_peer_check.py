"""Whose connection it is, as far as the kernel can be believed."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator

import pytest

from rehearsal import peer_check
from rehearsal.peer_check import End, find_end, is_own
from tests.rehearsal.strangers import IS_ROOT, NOBODY, send

ROW = " 0: 0100007F:{port:04X} 0100007F:0050 {state:02X} 00000000:00000000 00:00000000 0 {uid} 0 {inode} 1 0"
ESTABLISHED, FIN_WAIT_2 = 1, 5


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def test_an_open_connection_of_this_user_is_own(listener: socket.socket) -> None:
    with socket.create_connection(listener.getsockname()), listener.accept()[0] as accepted:
        assert is_own(accepted)


def test_a_socket_that_speaks_ipv4_by_ipv6_is_found_by_its_ipv4_address() -> None:
    row = ROW.format(port=4711, state=ESTABLISHED, uid=1000, inode=9)
    mapped = row.replace(" 0100007F", f" {peer_check._MAPPED}0100007F")
    assert mapped.count(peer_check._MAPPED) == 2
    assert find_end([mapped], ("127.0.0.1", 4711), ("127.0.0.1", 80)) == End(ESTABLISHED, 1000, 9)


def test_one_that_was_closed_is_nobodys_although_the_kernel_calls_it_roots(listener: socket.socket) -> None:
    mine = socket.create_connection(listener.getsockname())
    mine.sendall(b"a request")
    ends = mine.getsockname(), listener.getsockname()
    mine.close()
    with listener.accept()[0] as accepted:
        assert not is_own(accepted)
        rows = peer_check._TABLES[0].read_text().splitlines()[1:]
        found = find_end(rows, *ends)
        assert found is not None and found.inode == 0


def test_one_that_is_closed_between_two_looks_is_nobodys(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_connection(listener.getsockname()) as mine, listener.accept()[0] as accepted:
        looks = iter([End(ESTABLISHED, os.getuid(), 7), End(ESTABLISHED, 0, 0)])
        monkeypatch.setattr(peer_check, "_look_up", lambda *_: next(looks))
        assert not is_own(accepted)
        assert mine.fileno() > 0


def test_an_end_that_has_heard_of_the_close_believes_no_row(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = socket.create_connection(listener.getsockname())
    with listener.accept()[0] as accepted:
        monkeypatch.setattr(peer_check, "_look_up", lambda *_: End(ESTABLISHED, os.getuid(), 7))
        assert is_own(accepted)
        mine.close()
        accepted.recv(1)
        assert not is_own(accepted)


@pytest.mark.skipif(not IS_ROOT, reason="only root can call as somebody else")
def test_another_users_connection_is_not_own(listener: socket.socket) -> None:
    import threading

    def call() -> None:
        send(listener.getsockname()[1], b"", keep=True, uid=NOBODY)

    thread = threading.Thread(target=call)
    thread.start()
    accepted = listener.accept()[0]
    try:
        time.sleep(0.05)
        assert not is_own(accepted)
    finally:
        accepted.close()
        thread.join()


@pytest.mark.parametrize(
    ("state", "uid", "inode", "open_by_user"),
    [
        (ESTABLISHED, 1000, 9, True),
        (ESTABLISHED, 1001, 9, False),
        (ESTABLISHED, 0, 9, False),
        (FIN_WAIT_2, 1000, 9, False),
        (FIN_WAIT_2, 0, 0, False),
        (ESTABLISHED, 1000, 0, False),
    ],
)
def test_only_an_established_end_with_an_owner_counts(
    state: int, uid: int, inode: int, open_by_user: bool
) -> None:
    rows: Callable[..., str] = ROW.format
    found = find_end(
        [rows(port=4711, state=state, uid=uid, inode=inode)], ("127.0.0.1", 4711), ("127.0.0.1", 80)
    )
    assert found == End(state, uid, inode)
    assert found.is_open_by(1000) is open_by_user


def test_a_connection_that_is_not_in_the_table_has_no_end() -> None:
    row = ROW.format(port=4711, state=1, uid=0, inode=9)
    assert find_end([row], ("127.0.0.1", 4712), ("127.0.0.1", 80)) is None
