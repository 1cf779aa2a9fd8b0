"""Why files of stacks below a project's ``.ranklift`` cannot be used, and what to do about it."""

from __future__ import annotations

import errno
import os
import pwd
import shlex
from pathlib import Path

from launch.errors import InputError

__all__ = ["refuse_unwritable", "unwritable"]

_TOP = ".ranklift"
_REASONS = {
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.EISDIR, errno.ENOSPC),
    *(errno.EDQUOT, errno.ELOOP, errno.EIO),
}


def refuse_unwritable(folder: Path) -> None:
    """Raise :class:`~launch.errors.InputError` for a folder below ``.ranklift`` in which no file can be made,
    before anything is changed that would be noted there."""
    there = _nearest(folder)
    if not there.is_dir():
        raise _refusal(there, errno.ENOTDIR)
    if not os.access(there, os.W_OK | os.X_OK):
        is_read_only = bool(os.statvfs(there).f_flag & os.ST_RDONLY)
        raise _refusal(there, errno.EROFS if is_read_only else errno.EACCES)


def unwritable(error: OSError) -> InputError | None:
    """Return the error for the user where files below ``.ranklift`` cannot be used; None for another one."""
    names = [name for name in (error.filename, error.filename2) if isinstance(name, str | bytes | Path)]
    path = next((one for one in map(Path, map(os.fsdecode, names)) if _TOP in one.parts), None)
    if path is None or error.errno not in _REASONS:
        return None
    return _refusal(_nearest(path), error.errno)


def _nearest(path: Path) -> Path:
    """Return the path, or the nearest one above it that exists."""
    return next((one for one in (path, *path.parents) if os.path.lexists(one)), path)


def _refusal(path: Path, number: int) -> InputError:
    problem, remedy = _cause(path, number)
    return InputError(str(path), None, problem, remedy)


def _cause(path: Path, number: int) -> tuple[str, str]:
    quoted, is_folder = shlex.quote(str(path)), path.is_dir()
    if number in (errno.ENOTDIR, errno.EEXIST) and not is_folder:
        return "is no folder, and files of stacks are kept there", f"move it away: mv {quoted} {quoted}.old"
    if number == errno.EISDIR and is_folder:
        return "is a folder, and a file is kept there", f"move it away: mv {quoted} {quoted}.old"
    if number == errno.EROFS:
        return "is on a read-only file system", "mount it writable, or work in a checkout elsewhere"
    if number in (errno.ENOSPC, errno.EDQUOT):
        return f"cannot be written ({os.strerror(number)})", "free some space there"
    owner, me = path.lstat().st_uid, os.geteuid()
    if owner in (me, 0) and me == 0:
        return (
            f"cannot be used ({os.strerror(number)})",
            f"look at its attributes and mounts: lsattr -d {quoted}",
        )
    remedy = f"chmod -R u+rwX {quoted}" if owner == me else f"sudo chown -R {_name(me)} {quoted}"
    return (
        f"cannot be used ({os.strerror(number)}; it belongs to {_name(owner)})",
        f"give it to yourself: {remedy}",
    )


def _name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)
