"""Runs a command in a rehearsed network: ``python -I -S in_network.py PID COMMAND ...``, PID the network's.

Entering gives all capabilities, which a command would lose: the nodes' user is not root there. ``nsenter``
cannot pass one on.
"""

from __future__ import annotations

import ctypes
import os
import sys

_NEW_USER, _NEW_NET = 0x10000000, 0x40000000
_VERSION_3 = 0x20080522
_NET_ADMIN = 12
_PR_CAP_AMBIENT, _RAISE = 47, 2

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def enter(pid: str) -> None:
    """Move this process into the network, with the right to change it, for what it executes too."""
    spaces = [
        (os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY), kind)
        for name, kind in (("user", _NEW_USER), ("net", _NEW_NET))
    ]
    for descriptor, kind in spaces:
        _check(_libc.setns(descriptor, kind), "setns")
    header = (ctypes.c_uint32 * 2)(_VERSION_3, 0)
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable: the low words, then the high ones
    _check(_libc.capget(header, sets), "capget")
    sets[2], sets[5] = sets[1], sets[4]
    _check(_libc.capset(header, sets), "capset")
    _check(_libc.prctl(_PR_CAP_AMBIENT, _RAISE, _NET_ADMIN, 0, 0), "raise a capability")


if __name__ == "__main__":
    enter(sys.argv[1])
    os.execvp(sys.argv[2], sys.argv[2:])  # noqa: S606  (the command as given)
