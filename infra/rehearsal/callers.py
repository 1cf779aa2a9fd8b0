"""Whose program is at the other end of a loopback connection.

Whoever reaches the emulated Azure can boot a VM with a key of their own, and its processes run as the user
who rehearses. Real Azure asks for a token; loopback ports are open to everyone on the machine, so the kernel
is asked.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from pathlib import Path

__all__ = ["is_trusted", "owner"]

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_MAPPED = "0" * 16 + ("FFFF0000" if sys.byteorder == "little" else "0000FFFF")
"""How an IPv6 socket, which gRPC opens, shows that it speaks IPv4: ``::ffff:0:0/96``."""
_LOCAL, _REMOTE, _UID = 1, 2, 7
_ROOT = 0


def owner(caller: tuple[str, int], listener: tuple[str, int]) -> int | None:
    """The user id that owns the caller's end of a connection; None when there is no such connection.

    Both are IPv4 addresses with ports, ``caller`` as the listener sees it.
    """
    ends = (_in_hex(caller), _in_hex(listener))
    for table in _TABLES:
        for line in table.read_text().splitlines()[1:]:
            fields = line.split()
            if (fields[_LOCAL].removeprefix(_MAPPED), fields[_REMOTE].removeprefix(_MAPPED)) == ends:
                return int(fields[_UID])
    return None


def is_trusted(caller: tuple[str, int], listener: tuple[str, int]) -> bool:
    """Whether the caller is this user, or root, to whom nothing is closed anyway."""
    return owner(caller, listener) in (os.getuid(), _ROOT)


def _in_hex(end: tuple[str, int]) -> str:
    """An address as the kernel's table has it: bytes as they lie in this machine's memory.

    >>> _in_hex(("127.0.0.1", 22)) in ("0100007F:0016", "7F000001:0016")
    True
    """
    (number,) = struct.unpack("=I", socket.inet_aton(end[0]))
    return f"{number:08X}:{end[1]:04X}"
