"""The flight recorder of a rank's PyTorch: the newest collective that the rank has begun and not finished.

NCCL's ranks write theirs when something writes to a named pipe (``TORCH_NCCL_DEBUG_INFO_PIPE_FILE``,
pytorch/pytorch ``torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp``). Gloo's do not: theirs is in the file
only where the job itself has written it, by ``torch._C._distributed_c10d._dump_fr_trace_file`` or
``_dump_fr_trace_json``; there are two recorders, each in the same form (PyTorch 2.15).
"""

from __future__ import annotations

import errno
import io
import json
import os
import pickle
import stat
from contextlib import suppress

from launch.remote.debug.bounded import NotRead, bounded, printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from launch.remote.debug.debug_records import Collective

__all__ = ["newest_collective", "read_record", "request_record"]

_FILES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
_PIPES = ("TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "TORCH_FR_DEBUG_INFO_PIPE_FILE")
_LARGEST = 16 << 20
_LARGEST_NUMBER = 1 << 62
_TEXT, _SHOWN = 80, 160
_REQUEST_S = 0.5


def request_record(environ: dict[str, str], rank: int) -> bool:
    """Have a rank write its record; return whether it listens for that. The file comes seconds later."""
    is_asked = False
    for name in _PIPES:
        if environ.get(name):
            path = f"{environ[name]}{rank}.pipe"
            with suppress(NotRead):  # nobody listens, or there is no such pipe
                is_asked |= bool(bounded(f"rank {rank}'s pipe", lambda path=path: _request(path), _REQUEST_S))  # type: ignore[misc]
    return is_asked


def _request(path: str) -> bool:
    pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    return stat.S_ISFIFO(os.fstat(pipe).st_mode) and os.write(pipe, b"1\n") > 0


def read_record(
    environ: dict[str, str], rank: int, since: float = 0.0, seconds: float = 1.0
) -> list[Collective]:
    """Return the newest collective in a rank's file, as a list of one; empty without a file, and for one
    written before the time ``since``, which is an earlier job's.

    Raise :class:`~launch.remote.debug.bounded.NotRead` for a file that cannot be read within ``seconds``, or
    that holds something else.
    """
    for name in _FILES:
        if environ.get(name):
            path = f"{environ[name]}{rank}"
            shown = f"rank {rank}'s flight record {path[:_SHOWN]!r}"
            found: list[Collective] | None = bounded(
                shown,
                lambda path=path, shown=shown: _read(path, since, shown),  # type: ignore[misc]
                seconds,
            )
            if found is not None:
                return found
    return []


def _read(path: str, since: float, shown: str) -> list[Collective] | None:
    """Return the newest collective in a file; None without a file that is new enough. The process, which is
    a child's, leaves the file open."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise NotRead(f"{shown} is a symbolic link") from None
        raise
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode):
        raise NotRead(f"{shown} is not a regular file")
    if found.st_uid != os.getuid():
        raise NotRead(f"{shown} belongs to the user {found.st_uid}")
    if found.st_mtime < since:
        return None
    with open(fd, "rb") as file:
        data = file.read(_LARGEST + 1)
    if len(data) > _LARGEST:
        raise NotRead(f"{shown} has more than {_LARGEST >> 20} MiB")
    try:
        return newest_collective(data)
    except NotRead as error:
        raise NotRead(f"{shown}: {error}") from None


class _Plain(pickle.Unpickler):
    """A reader of lists, dicts, numbers and text alone: a rank's file may hold anything."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"{module}.{name} is not plain data")


def newest_collective(data: bytes) -> list[Collective]:
    """Return the newest entry that has not completed, else the newest, of a record as JSON or pickled; none
    of a record without entries.

    Raise :class:`~launch.remote.debug.bounded.NotRead` for anything else. A pickle may take any time and
    memory to load: call this in :func:`~launch.remote.debug.bounded.bounded`.
    """
    try:
        found: Any = json.loads(data) if data[:1] == b"{" else _Plain(io.BytesIO(data)).load()
        entries = [one for one in found["entries"] if not one["is_p2p"]]
        if not entries:
            return []
        unfinished = [one for one in entries if not (one["retired"] or one["state"] == "completed")]
        newest = max(unfinished or entries, key=lambda one: _number(one["record_id"]))
        return [
            {
                "sequence": _number(newest["collective_seq_id"]),
                "name": _text(newest["profiling_name"]),
                "state": _text(newest["state"]),
                "group": _text(newest["process_group"][0]),
            }
        ]
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001  a torn file, or anything else that a rank has written there
        raise NotRead(f"not a flight record ({type(error).__name__})") from None


def _number(value: object) -> int:
    if not isinstance(value, int) or not 0 <= value < _LARGEST_NUMBER:
        raise TypeError
    return int(value)


def _text(value: object) -> str:
    """Return a text, cut and printable; of another value not even its text is made, which may have no end."""
    if not isinstance(value, str):
        raise TypeError
    return printable(value[:_TEXT])
