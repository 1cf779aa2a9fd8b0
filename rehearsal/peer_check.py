"""User at the other end of a loopback connection.

Loopback ports are open to everyone on the machine, and a caller without a secret, such as Pulumi's
engine, can be identified by the kernel's table of connections only. That table shows a socket that its owner
has closed as root's: a program that sends a request and exits at once would pass for root. So only an open
end counts, and only while this end has not received its close.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["End", "find_end", "is_own"]

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_MAPPED = "0" * 16 + ("FFFF0000" if sys.byteorder == "little" else "0000FFFF")
"""Prefix of IPv4 addresses in IPv6 sockets, which gRPC opens: ``::ffff:0:0/96``."""
_LOCAL, _REMOTE, _STATE, _UID, _INODE = 1, 2, 3, 7, 9
_ESTABLISHED = 1


@dataclass(frozen=True, slots=True)
class End:
    """One end of a TCP connection, as a row of ``/proc/net/tcp`` has it."""

    state: int
    uid: int
    inode: int
    """0: no process has the socket open any more; ``uid`` is then 0 whoever opened it."""

    def is_open_by(self, uid: int) -> bool:
        """Whether this user opened the socket and a process still has it open.

        >>> End(state=1, uid=0, inode=0).is_open_by(0)
        False
        """
        return self.state == _ESTABLISHED and self.inode != 0 and self.uid == uid


def find_end(rows: Iterable[str], local: tuple[str, int], remote: tuple[str, int]) -> End | None:
    """Return the end at ``local`` of the connection to ``remote``; both are IPv4 addresses with ports."""
    ends = _in_hex(local), _in_hex(remote)
    for row in rows:
        fields = row.split()
        if (fields[_LOCAL].removeprefix(_MAPPED), fields[_REMOTE].removeprefix(_MAPPED)) == ends:
            return End(int(fields[_STATE], 16), int(fields[_UID]), int(fields[_INODE]))
    return None


def is_own(connection: socket.socket) -> bool:
    """Whether the other end of an accepted connection is an open socket of this process's user.

    Root is no exception: a socket that nobody owns any more looks like root's. The row is read twice because
    the kernel does not fill it in one step; in between its owner may close the socket. At last this end is
    asked: while it is established, no other connection can have had the same two ends. It is asked first,
    too: the table takes milliseconds to read where there are many connections, and who sends and closes is
    not to cost that.
    """
    try:
        if not _is_established(connection):
            return False
        caller, here = connection.getpeername(), connection.getsockname()
        found = _look_up(caller, here)
        if found is None or not found.is_open_by(os.geteuid()):
            return False
        return _look_up(caller, here) == found and _is_established(connection)
    except OSError:
        return False  # it was reset


def _is_established(connection: socket.socket) -> bool:
    return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _ESTABLISHED


def _look_up(local: tuple[str, int], remote: tuple[str, int]) -> End | None:
    for table in _TABLES:
        if table.exists():  # a kernel without IPv6 has one
            with table.open() as rows:
                next(rows)
                found = find_end(rows, local, remote)
            if found is not None:
                return found
    return None


def _in_hex(end: tuple[str, int]) -> str:
    """Return an address as in the kernel's table, in this machine's byte order.

    >>> _in_hex(("127.0.0.1", 22)) in ("0100007F:0016", "7F000001:0016")
    True
    """
    (number,) = struct.unpack("=I", socket.inet_aton(end[0]))
    return f"{number:08X}:{end[1]:04X}"
