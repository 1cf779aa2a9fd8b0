"""Bytes that each TCP connection of this machine has received, as the kernel counts them.

They prove that a rank which waits without a pause, as MPI's do, still gets somewhere.

The kernel answers by netlink what ``ss --tcp --info`` prints (sock_diag(7); Linux,
include/uapi/linux/inet_diag.h and tcp.h). No rights are needed for the own network namespace.
"""

from __future__ import annotations

import socket
import struct
from contextlib import suppress

__all__ = ["received_bytes"]

_SOCK_DIAG, _BY_FAMILY = 4, 20
_REQUEST_DUMP = 0x301
_DONE, _ERROR = 3, 2
_ESTABLISHED = 1 << 1
_INFO = 2
"""INET_DIAG_INFO, a struct tcp_info: as a request the bit before it."""
_HEADER = struct.Struct("=IHHII")
_MESSAGE = struct.Struct("=4B2s2s16s16sI8s5I")
"""A struct inet_diag_msg up to its attributes; the inode is last."""
_RECEIVED = slice(128, 136)
"""tcpi_bytes_received in struct tcp_info, since Linux 4.1."""
_LIMIT_S = 1.0
_MOST = 256
"""Packets of an answer, of 64 KiB each, that are read."""


def received_bytes() -> dict[str, int]:
    """Return by inode the bytes that each established connection to another machine has received; empty where
    the kernel does not count them."""
    found: dict[str, int] = {}
    with suppress(OSError, struct.error):
        for family in (socket.AF_INET, socket.AF_INET6):
            _add(found, family)
    return found


def _add(found: dict[str, int], family: int) -> None:
    asked = struct.pack("=4BI48x", family, socket.IPPROTO_TCP, 1 << (_INFO - 1), 0, _ESTABLISHED)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel:
        kernel.settimeout(_LIMIT_S)
        kernel.send(_HEADER.pack(_HEADER.size + len(asked), _BY_FAMILY, _REQUEST_DUMP, 1, 0) + asked)
        for _ in range(_MOST):
            data = kernel.recv(1 << 16)
            while len(data) >= _HEADER.size:
                length, kind = _HEADER.unpack_from(data)[:2]
                if kind in (_DONE, _ERROR) or length < _HEADER.size:
                    return
                _read(found, data[_HEADER.size : length])
                data = data[(length + 3) & ~3 :]


def _read(found: dict[str, int], message: bytes) -> None:
    fields = _MESSAGE.unpack_from(message)
    source, target, inode = fields[6], fields[7], fields[-1]
    if source == target:
        return  # a connection within this machine
    at = _MESSAGE.size
    while at + 4 <= len(message):
        length, kind = struct.unpack_from("=HH", message, at)
        if length < 4:  # noqa: PLR2004
            return
        info = message[at + 4 : at + length]
        if kind == _INFO and len(info) >= _RECEIVED.stop:
            found[str(inode)] = int.from_bytes(info[_RECEIVED], "little")
        at += (length + 3) & ~3
