"""The few kernel calls that the standard library does not have.

Python 3.11 knows neither ``unshare`` nor ``mount``; running the command-line tools for a dozen mounts a node
would be most of the time that a boot takes. Every function raises :class:`OSError` naming what it was given.
"""

from __future__ import annotations

import ctypes
import os

__all__ = [
    "MS_BIND",
    "MS_NODEV",
    "MS_NOEXEC",
    "MS_NOSUID",
    "MS_RDONLY",
    "MS_REC",
    "NODE_NAMESPACES",
    "change_root",
    "drop_capabilities",
    "enter_mounts",
    "mount",
    "set_readonly",
    "unshare",
]

MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_BIND = 4096
MS_REC = 16384

_NEW_MOUNTS, _NEW_HOSTNAME, _NEW_IPC = 0x00020000, 0x04000000, 0x08000000
_NEW_PIDS, _NEW_NETWORK = 0x20000000, 0x40000000
NODE_NAMESPACES = _NEW_MOUNTS | _NEW_HOSTNAME | _NEW_IPC | _NEW_PIDS | _NEW_NETWORK

_MOUNT_SETATTR = 442  # the same number on every architecture; kernel 5.12
_MNT_DETACH = 2
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_ATTR_RDONLY = 1
_PR_CAP_AMBIENT, _CAP_AMBIENT_CLEAR_ALL = 47, 4
_CAPABILITY_VERSION_3 = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)


class _MountAttr(ctypes.Structure):
    _fields_ = (
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


class _CapabilityHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _CapabilityWord(ctypes.Structure):
    _fields_ = (
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    )


def _check(result: int, what: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(namespaces: int) -> None:
    """Move this process into new namespaces; new PIDs begin with its next child."""
    _check(_libc.unshare(ctypes.c_int(namespaces)), "unshare")


def enter_mounts(pid: int) -> None:
    """Move this process into a copy of another's mount namespace, so that the other one stays as it is."""
    descriptor = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY)
    try:
        _check(_libc.setns(ctypes.c_int(descriptor), ctypes.c_int(_NEW_MOUNTS)), f"setns {pid}")
    finally:
        os.close(descriptor)
    unshare(_NEW_MOUNTS)


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    """Mount ``source`` on ``target``; relative paths count from the working directory, hidden or not."""
    _check(
        _libc.mount(
            os.fsencode(source),
            os.fsencode(target),
            kind.encode() or None,
            ctypes.c_ulong(flags),
            os.fsencode(options) or None,
        ),
        f"mount {kind or 'bind'} {source} on {target}",
    )


def set_readonly(path: str, readonly: bool, *, recursive: bool = False) -> None:
    """Make the mount at ``path``, or with ``recursive`` all mounts below too, read-only or writable."""
    attr = _MountAttr()
    if readonly:
        attr.attr_set = _ATTR_RDONLY
    else:
        attr.attr_clr = _ATTR_RDONLY
    result = _libc.syscall(
        ctypes.c_long(_MOUNT_SETATTR),
        ctypes.c_int(_AT_FDCWD),
        ctypes.c_char_p(os.fsencode(path)),
        ctypes.c_uint(_AT_RECURSIVE if recursive else 0),
        ctypes.byref(attr),
        ctypes.c_size_t(ctypes.sizeof(attr)),
    )
    _check(result, f"mount_setattr {path}")


def change_root(folder: str) -> None:
    """Make a mount the root of this mount namespace, and unmount everything that is not below it."""
    os.chdir(folder)
    # Both at one place: the old root comes to lie over the new one, and then goes.
    _check(_libc.pivot_root(b".", b"."), f"pivot_root {folder}")
    _check(_libc.umount2(b".", _MNT_DETACH), "unmount the old root")
    os.chdir("/")


def drop_capabilities() -> None:
    """Leave nothing for the next ``exec`` to inherit: what runs after it is an ordinary process."""
    _check(_libc.prctl(_PR_CAP_AMBIENT, _CAP_AMBIENT_CLEAR_ALL, 0, 0, 0), "clear ambient capabilities")
    header = _CapabilityHeader(_CAPABILITY_VERSION_3, 0)
    words = (_CapabilityWord * 2)()
    _check(_libc.capget(ctypes.byref(header), words), "capget")
    for word in words:
        word.inheritable = 0
    _check(_libc.capset(ctypes.byref(header), words), "capset")
