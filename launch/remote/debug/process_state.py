"""The state of a process, as /proc shows it (proc(5)), and its connections with unacknowledged data."""

from __future__ import annotations

import os
import re
import socket
import struct
from contextlib import suppress
from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from launch.remote.debug.debug_records import Unsent

__all__ = [
    "ProcessState",
    "environ_of",
    "environ_rank",
    "read_state",
    "sockets_of",
    "started_at",
    "stuck_sockets",
    "unsent_of",
]

_TICKS = os.sysconf("SC_CLK_TCK")
_ESTABLISHED = ("01", "04", "09")
"""TCP states with data on its way: ESTABLISHED, FIN_WAIT1, LAST_ACK (Linux, include/net/tcp_states.h)."""
_RETRANSMITTING = "01"
"""Timer of /proc/net/tcp: retransmission (Documentation/networking/proc_net_tcp.rst of the kernel)."""
_MOST = 16
_DIGITS = 8
_FILES = 4096


class ProcessState(NamedTuple):
    """One reading of a process."""

    name: str
    state: str
    cpu_ms: int
    ended_ms: int
    """Processor time of its children that have ended and been waited for."""
    io: int
    """Bytes that it has read and written; 0 where that cannot be read."""
    switches: int
    kernel_function: str
    inner_pid: int


def read_state(pid: int, proc: str = "/proc") -> ProcessState | None:
    """Return the state of a process; None where there is none any more."""
    try:
        text = _read(f"{proc}/{pid}/stat")
    except OSError:
        return None
    before, _, after = text.rpartition(")")
    fields = after.split()
    name = before.partition("(")[2]
    own, ended = ((int(fields[at]) + int(fields[at + 1])) * 1000 // _TICKS for at in (11, 13))
    switches = inner_pid = io = 0
    for line in _try(f"{proc}/{pid}/status").splitlines():
        if line.startswith("voluntary_ctxt_switches:"):
            switches = int(line.split()[1])
        elif line.startswith("NSpid:"):
            inner_pid = int(line.split()[-1])
    for line in _try(f"{proc}/{pid}/io").splitlines():
        if line.startswith(("rchar:", "wchar:")):
            io += int(line.split()[1])
    function = _try(f"{proc}/{pid}/wchan").strip()
    function = "" if function == "0" else function
    return ProcessState(name, fields[0], own, ended, io, switches, function, inner_pid)


def started_at(pid: int, proc: str = "/proc") -> float:
    """Return when a process began, in seconds since the epoch, a second early at most; 0 where that cannot be
    read."""
    boot = re.search(r"^btime (\d+)$", _try(f"{proc}/stat"), re.MULTILINE)
    fields = _try(f"{proc}/{pid}/stat").rpartition(")")[2].split()
    return int(boot[1]) + int(fields[19]) // _TICKS if boot and fields else 0.0


def environ_of(pid: int, proc: str = "/proc") -> dict[str, str]:
    """Return the variables that a process was started with; empty where they cannot be read."""
    try:
        with open(f"{proc}/{pid}/environ", "rb") as file:
            words = file.read(1 << 20).decode("utf-8", "surrogateescape").split("\0")
    except OSError:
        return {}
    return dict(word.split("=", 1) for word in words if "=" in word)


def environ_rank(environ: dict[str, str]) -> int | None:
    """Return the variable RANK among a process's variables; None without one.

    >>> environ_rank({"RANK": "17"}), environ_rank({"RANK": "?"}), environ_rank({"RANK": "²"})
    (17, None, None)
    """
    text = environ.get("RANK", "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < _DIGITS else None


def stuck_sockets(proc: str = "/proc") -> dict[str, Unsent]:
    """Return by inode the node's TCP connections whose data was sent again, unacknowledged so far."""
    found: dict[str, Unsent] = {}
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in _try(f"{proc}/net/{table}").splitlines()[1:]:
            words = line.split()
            if len(words) < 10 or words[3] not in _ESTABLISHED:  # noqa: PLR2004
                continue
            timer, retransmits = words[5].partition(":")[0], int(words[6], 16)
            unsent = int(words[4].partition(":")[0], 16)
            if timer == _RETRANSMITTING and retransmits and unsent:
                address, _, port = words[2].partition(":")
                found[words[9]] = {
                    "address": _address(address, family),
                    "port": int(port, 16),
                    "bytes": unsent,
                    "retransmits": retransmits,
                }
    return found


def sockets_of(pid: int, proc: str = "/proc") -> set[str]:
    """Return the inodes of the sockets that a process has open."""
    found: set[str] = set()
    try:
        names = os.listdir(f"{proc}/{pid}/fd")[:_FILES]
    except OSError:
        return found
    for name in names:
        with suppress(OSError):
            target = os.readlink(f"{proc}/{pid}/fd/{name}")
            if target.startswith("socket:["):
                found.add(target[8:-1])
    return found


def unsent_of(sockets: set[str], stuck: dict[str, Unsent]) -> list[Unsent]:
    """Return those of the stuck connections that are among a process's ``sockets``."""
    found = [stuck[inode] for inode in sockets & stuck.keys()]
    return sorted(found, key=lambda one: (one["address"], one["port"]))[:_MOST]


def _address(text: str, family: int) -> str:
    """Return an address of /proc/net/tcp: words in the processor's byte order, in hexadecimal digits.

    >>> import sys
    >>> sys.byteorder != "little" or _address("0500000A", socket.AF_INET)
    '10.0.0.5'
    """
    words = [struct.pack("=I", int(text[at : at + 8], 16)) for at in range(0, len(text), 8)]
    shown = socket.inet_ntop(family, b"".join(words))
    return shown[7:] if shown.startswith("::ffff:") else shown


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read(1 << 20)


def _try(path: str) -> str:
    try:
        return _read(path)
    except OSError:
        return ""
