"""Errors of GPUs that NVIDIA's driver wrote into the kernel's log since the node's boot.

A line is as in ``NVRM: Xid (PCI:0001:00:00): 79, pid=1122, GPU has fallen off the bus.`` ("Xid Errors" of
NVIDIA's documentation).
``/dev/kmsg`` returns one record at a time, ``priority,number,microseconds,flags;text`` (the kernel's
Documentation/ABI/testing/dev-kmsg). Ubuntu lets root alone read it: the node's user may use sudo.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

__all__ = ["KernelLog", "Xid", "find_xids", "read_kernel_log"]

_KMSG = "/dev/kmsg"
_DMESG = ("sudo", "-n", "dmesg")
_DMESG_S = 5.0
_RECORD = 8192
"""Longest record of /dev/kmsg, in bytes (CONSOLE_EXT_LOG_MAX)."""
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9A-Fa-f:.]+)[^)]*\): (\d+)\b[,: ]*(.*)$")
"""A GPU that is split (MIG) has more after its address: ``(PCI:0000:01:00 GPU-I:05)`` ("GPU Memory Error
Management" of NVIDIA's documentation). Whatever follows the code, or does not, it is one."""


@dataclass(frozen=True)
class Xid:
    """One error of a GPU: its code, the GPU's address and the driver's text."""

    code: int
    address: str
    text: str


@dataclass(frozen=True)
class KernelLog:
    """What the log has; with a ``problem``, it could not be read."""

    xids: tuple[Xid, ...] = ()
    problem: str = ""


def read_kernel_log(path: str = _KMSG, dmesg: tuple[str, ...] = _DMESG) -> KernelLog:
    """Return the errors in the log, each code of each GPU once."""
    try:
        return KernelLog(find_xids(_read_records(path)))
    except PermissionError:
        return _ask_dmesg(dmesg)
    except OSError as error:
        return KernelLog(problem=f"{path}: {error.strerror}")


def find_xids(text: str) -> tuple[Xid, ...]:
    """Return the errors in the text of a log.

    >>> find_xids("6,1,2,-;NVRM: Xid (PCI:0001:00:00): 79, pid=7, GPU has fallen off the bus.")
    (Xid(code=79, address='0001:00:00', text='pid=7, GPU has fallen off the bus.'),)
    """
    found: dict[tuple[int, str], Xid] = {}
    for line in text.split("\n"):
        match = _XID.search(line) if "NVRM: Xid" in line else None
        if match:
            xid = Xid(int(match[2]), match[1].lower(), match[3])
            found.setdefault((xid.code, xid.address), xid)
    return tuple(found.values())


def _read_records(path: str) -> str:
    log = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    records = []
    try:
        while True:
            try:
                record = os.read(log, _RECORD)
            except BrokenPipeError:
                continue  # the kernel has overwritten the next record; the one after it follows
            except BlockingIOError:
                break
            if not record:
                break
            records.append(record)
    finally:
        os.close(log)
    return b"".join(records).decode("utf-8", "replace")


def _ask_dmesg(argv: tuple[str, ...]) -> KernelLog:
    import subprocess

    asked = " ".join(argv)
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=_DMESG_S, check=False
        )
    except FileNotFoundError:
        return KernelLog(problem=f"{_KMSG} is for root alone, and {argv[0]} does not exist")
    except subprocess.TimeoutExpired:
        return KernelLog(problem=f"`{asked}` took more than {_DMESG_S:.0f} s")
    if done.returncode:
        why = done.stderr.decode("utf-8", "replace").strip().split("\n")[-1]
        return KernelLog(problem=f"`{asked}`: {why or f'exit status {done.returncode}'}")
    return KernelLog(find_xids(done.stdout.decode("utf-8", "replace")))
