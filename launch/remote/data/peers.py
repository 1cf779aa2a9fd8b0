"""Parts from node to node, over TLS lines with the staging's own credential (:mod:`launch.remote.store.tls`).

A request is the part's number, the answer its size and its bytes; a size of -1 means that it is not here. A
line carries one part after the other.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterable
from typing import Callable  # noqa: UP035  (nodes may run Python 3.8)

from launch.remote.base import timing
from launch.remote.data import faults
from launch.remote.data.faults import FetchError
from launch.remote.data.requests import Sink
from launch.remote.store.tls import CHUNK, Line, accept_all, dial

__all__ = ["Peers", "serve_parts"]

_NUMBER = struct.Struct("!q")
_MOST_LINES = 256
"""Lines that a node answers at a time; the head asks it for far fewer."""

Reader = Callable[[int], "tuple[int, Iterable[bytes]] | None"]
"""Function that returns the size and the content of a part; None where it is not here."""


def serve_parts(listener: socket.socket, credential: str, read: Reader) -> None:
    """Answer the other nodes for as long as this process lives, each line in a thread of its own."""
    places = threading.BoundedSemaphore(_MOST_LINES)
    for line in accept_all(listener, credential):
        if places.acquire(blocking=False):
            threading.Thread(target=_answer, args=(line, read, places), daemon=True).start()
        else:
            line.close()


def _answer(line: Line, read: Reader, places: threading.BoundedSemaphore) -> None:
    request = bytearray(_NUMBER.size)
    try:
        while True:
            line.recv_into(memoryview(request))
            found = read(_NUMBER.unpack(request)[0])
            line.sendall(_NUMBER.pack(found[0] if found else -1))
            for data in found[1] if found else ():
                whole = memoryview(data)
                for start in range(0, len(whole), CHUNK):
                    line.sendall(whole[start : start + CHUNK])
    except (OSError, EOFError):  # the other end reports it
        pass
    finally:
        line.close()
        places.release()


class Peers:
    """Lines to other nodes, which are kept for the next part."""

    def __init__(self, credential: str) -> None:
        self._credential = credential
        self._idle: dict[tuple[str, int], list[Line]] = {}
        self._lock = threading.Lock()

    def fetch(self, address: tuple[str, int], part: int, size: int, sink: Sink) -> None:
        """Pass a part of another node on. Raise :class:`FetchError`."""
        try:
            line = self._line(address)
        except (OSError, EOFError) as error:
            raise FetchError(faults.PEER, f"{address[0]} cannot be reached from here: {error}") from None
        try:
            self._take(line, part, size, sink)
        except (OSError, EOFError) as error:
            line.close()
            raise FetchError(faults.PEER, f"{address[0]} broke off: {error}") from None
        except BaseException:
            line.close()
            raise
        with self._lock:
            self._idle.setdefault(address, []).append(line)

    def _take(self, line: Line, part: int, size: int, sink: Sink) -> None:
        line.sendall(_NUMBER.pack(part))
        announced = bytearray(_NUMBER.size)
        line.recv_into(memoryview(announced))
        if _NUMBER.unpack(announced)[0] != size:
            raise EOFError(f"it does not send the {size} bytes of the part")
        room = memoryview(bytearray(min(CHUNK, size)))
        left = size
        while left:
            piece = room[: min(len(room), left)]
            line.recv_into(piece)
            sink(piece)
            left -= len(piece)

    def _line(self, address: tuple[str, int]) -> Line:
        with self._lock:
            idle = self._idle.get(address)
            if idle:
                return idle.pop()
        return dial(*address, self._credential, timing.PEER_SILENT_S)
