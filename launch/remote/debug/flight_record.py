"""The flight recorder of a rank's PyTorch: the newest collective that the rank has begun and not finished.

NCCL's ranks write theirs when something writes to a named pipe (``TORCH_NCCL_DEBUG_INFO_PIPE_FILE``,
pytorch/pytorch ``torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp``). Gloo's do not: theirs is in the file
only where the job itself has written it, by ``torch._C._distributed_c10d._dump_fr_trace_file`` or
``_dump_fr_trace_json``; there are two recorders, each in the same form (PyTorch 2.15).
"""

from __future__ import annotations

import io
import json
import os
import pickle
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from launch.remote.debug.debug_records import Collective

__all__ = ["newest_collective", "read_record", "request_record"]

_FILES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
_PIPES = ("TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "TORCH_FR_DEBUG_INFO_PIPE_FILE")
_LARGEST = 16 << 20
_TEXT = 80


def request_record(environ: dict[str, str], rank: int) -> bool:
    """Have a rank write its record; return whether it listens for that. The file comes seconds later."""
    is_asked = False
    for name in _PIPES:
        if environ.get(name):
            with suppress(OSError):  # nobody listens, or there is no such pipe
                pipe = os.open(f"{environ[name]}{rank}.pipe", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                try:
                    is_asked |= os.write(pipe, b"1\n") > 0
                finally:
                    os.close(pipe)
    return is_asked


def read_record(environ: dict[str, str], rank: int, since: float = 0.0) -> list[Collective]:
    """Return the newest collective in a rank's file, as a list of one; empty without a file that can be used:
    one written before the time ``since`` is an earlier job's."""
    for name in _FILES:
        if environ.get(name):
            with suppress(OSError):
                with open(f"{environ[name]}{rank}", "rb") as file:
                    data = file.read(_LARGEST) if os.fstat(file.fileno()).st_mtime >= since else b""
                return newest_collective(data)
    return []


class _Plain(pickle.Unpickler):
    """A reader of lists, dicts, numbers and text alone: a rank's file may hold anything."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"{module}.{name} is not plain data")


def newest_collective(data: bytes) -> list[Collective]:
    """Return the newest entry that has not completed, else the newest, of a record as JSON or pickled."""
    try:
        found: Any = json.loads(data) if data[:1] == b"{" else _Plain(io.BytesIO(data)).load()
        entries = [one for one in found["entries"] if not one["is_p2p"]]
        unfinished = [one for one in entries if not (one["retired"] or one["state"] == "completed")]
        newest = max(unfinished or entries, key=lambda one: int(one["record_id"]))
        return [
            {
                "sequence": int(newest["collective_seq_id"]),
                "name": str(newest["profiling_name"])[:_TEXT],
                "state": str(newest["state"])[:_TEXT],
                "group": str(newest["process_group"][0])[:_TEXT],
            }
        ]
    except Exception:  # noqa: BLE001  a torn file, or anything else that a rank has written there
        return []
