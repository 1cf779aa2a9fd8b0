"""System calls that a rehearsed node does not have: those of the kernel's keyrings.

Keyrings belong to a user, not to a namespace, and a node's processes are this user's own: without the filter
a job could read the keys that the user's programs keep there, such as Kerberos tickets.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

__all__ = ["refuse_keyrings"]

_FIRST_CALL = {"x86_64": (0xC000003E, 248), "aarch64": (0xC00000B7, 217), "i386": (0x40000003, 286)}
"""Per architecture, its number in seccomp's data and that of ``add_key``; ``request_key`` and ``keyctl``
follow it (arch/x86/entry/syscalls and include/uapi/asm-generic/unistd.h of Linux)."""
_CALLS = 3
_X32 = 0x40000000
"""From here on, x86_64 has its calls a second time (arch/x86/include/uapi/asm/unistd.h of Linux)."""
_LOAD, _IF_EQUAL, _IF_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | errno.ENOSYS
_NUMBER, _ARCHITECTURE = 0, 4
"""Offsets in seccomp's data."""
_PR_SET_SECCOMP, _MODE_FILTER = 22, 2


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))


def refuse_keyrings() -> None:
    """Let ``add_key``, ``request_key`` and ``keyctl`` fail with ENOSYS in this process and all its children.

    Raises :class:`OSError` on an architecture whose calls are not known, and without CAP_SYS_ADMIN.
    """
    machine = os.uname().machine
    if machine not in _FIRST_CALL:
        raise OSError(errno.ENOTSUP, f"the numbers of the keyrings' system calls are not known for {machine}")
    steps = _filter()
    program = _Program(len(steps), b"".join(struct.pack("=HBBI", *step) for step in steps))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_SECCOMP, ctypes.c_ulong(_MODE_FILTER), ctypes.byref(program), 0, 0) < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"seccomp filter: {os.strerror(number)}")


def _filter() -> list[tuple[int, int, int, int]]:
    """Return the filter in classic BPF: code, steps to skip if true, steps to skip if false, operand."""
    steps = [(_LOAD, 0, 0, _ARCHITECTURE)]
    for architecture, first in _FIRST_CALL.values():
        block = [
            (_LOAD, 0, 0, _NUMBER),
            (_IF_AT_LEAST, 2, 0, _X32),
            (_IF_AT_LEAST, 2, 0, first + _CALLS),
            (_IF_AT_LEAST, 0, 1, first),
            (_RETURN, 0, 0, _REFUSE),
            (_RETURN, 0, 0, _ALLOW),
        ]
        steps += [(_IF_EQUAL, 0, len(block), architecture), *block]
    return [*steps, (_RETURN, 0, 0, _REFUSE)]
