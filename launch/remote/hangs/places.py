"""Where a rank is: the collective that it waits in, if it does, and the line of the user's file."""

from __future__ import annotations

import re
from typing import NamedTuple

from launch.remote.debug.python_stacks import is_library

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from launch.remote.debug.debug_records import ProcessFacts, RankFacts, StackFrame

__all__ = ["NOWHERE", "Place", "main_process", "place_of", "short_file"]

_TORCH = frozenset(
    {
        *(
            "all_reduce",
            "all_reduce_coalesced",
            "broadcast",
            "reduce",
            "all_gather",
            "all_gather_into_tensor",
        ),
        *("all_gather_object", "gather", "gather_object", "scatter", "scatter_object_list", "reduce_scatter"),
        *("reduce_scatter_tensor", "all_to_all", "all_to_all_single", "barrier", "monitored_barrier"),
        *("broadcast_object_list", "send", "recv", "batch_isend_irecv", "init_process_group", "new_group"),
        *("destroy_process_group", "send_object_list", "recv_object_list", "_store_based_barrier"),
        *("rendezvous", "_all_gather_base", "_reduce_scatter_base", "init_device_mesh"),
    }
)
"""Functions of torch.distributed in which a rank waits for others (torch/distributed/distributed_c10d.py)."""
_OF_TENSORS = ("item", "tolist", "cpu", "synchronize", "wait")
"""Of the calls on the user's line, those that are not MPI's alone."""
_HOROVOD = "horovod/"
_LIBRARIES = (
    ("torch/distributed/", _TORCH),
    ("torch/cuda/", frozenset({"synchronize"})),
    ("torch/autograd/graph.py", frozenset({"_engine_run_backward"})),
    (
        _HOROVOD,
        frozenset({"synchronize", "allreduce", "allgather", "broadcast", "barrier", "join", "init"}),
    ),
    ("tensorflow/python/eager/execute.py", frozenset({"quick_execute"})),
    ("mpi4py/__init__.py", frozenset({"<module>"})),
)
_NAMES = {"_engine_run_backward": "backward", "<module>": "import mpi4py"}
"""What functions are called in texts whose names mean little there."""
_CALLS = re.compile(
    r"\.\s*(all_?reduce|all_?gather\w*|all_?to_?all\w*|barrier|bcast|broadcast\w*|gatherv?|scatterv?"
    r"|reduce(?:_scatter\w*)?|sendrecv|ssend|send|recv|probe|wait|waitall|synchronize|scan|exscan"
    r"|item|tolist|cpu|init|finalize)\s*\(",
    re.IGNORECASE,
)
"""Calls, on the user's own line, of methods that wait in C: mpi4py's, those of torch's works, and
of tensors, for which a GPU first ends its collective."""


class Place(NamedTuple):
    """Where a rank is. Ranks with equal places have equal ``operation`` and ``line``."""

    operation: str
    """The collective that it waits in; empty where it is elsewhere."""
    line: str
    """The user's file and line: ``train.py:88``; empty where the stack shows none."""
    inside: str
    """Function of a library, or the user's own, that the rank is in."""
    is_mpi: bool = False
    """Whether the operation is a call into C on the user's own line that is MPI's, which waits without a
    pause."""
    polls: bool = False
    """Whether a rank may look for what it waits for, and sleep, in turns: its switches show no movement."""

    @property
    def text(self) -> str:
        """The place in words.

        >>> Place("all_reduce", "train.py:88", "").text, Place("", "train.py:60", "__next__").text
        ('all_reduce at train.py:88', '__next__ at train.py:60')
        """
        what = self.operation or self.inside
        return f"{what} at {self.line}" if what and self.line else what or self.line or "no Python code"


NOWHERE = Place("", "", "")


def place_of(frames: Sequence[StackFrame]) -> Place:
    """Return where a thread is, by its frames, the innermost first."""
    mine = next((at for at, frame in enumerate(frames) if not is_library(frame["file"])), None)
    above = frames if mine is None else frames[:mine]
    operation, library = _in_library(above)
    line, inside, is_mpi = "", "", False
    if mine is not None:
        frame = frames[mine]
        line = f"{frame['file'].rpartition('/')[2]}:{frame['line']}"
        inside = frame["function"]
        if not above:
            called = _CALLS.search(frame["text"])
            operation = called[1] if called else ""
            is_mpi = bool(called) and operation.lower() not in _OF_TENSORS
    if above:
        outermost = above[-1]
        inside = f"{outermost['function']} of {short_file(outermost['file'])}"
    return Place(operation, line, inside, is_mpi, is_mpi or library == _HOROVOD)


def _in_library(frames: Sequence[StackFrame]) -> tuple[str, str]:
    """Return the collective that the user's code has called, by the frames of libraries below it, and its
    library's part of a path."""
    for frame in reversed(frames):
        for part, functions in _LIBRARIES:
            if part in frame["file"] and frame["function"] in functions:
                return _NAMES.get(frame["function"], frame["function"]), part
    return "", ""


def short_file(file: str) -> str:
    """Return a library's file without the folder that it is installed in.

    >>> short_file("/opt/venv/lib/python3.11/site-packages/torch/utils/data/dataloader.py")
    'torch/utils/data/dataloader.py'
    """
    return re.split(r"/(?:site|dist)-packages/|/python3\.\d+/(?!site-packages|dist-packages)", file)[-1]


def main_process(rank: RankFacts) -> ProcessFacts | None:
    """Return the process of a rank that computes: the first with a Python stack below wrappers, else the
    first whose stacks could not be read, else the first; None without any."""
    processes = rank["processes"]
    known = [one for one in processes if one["threads"]] or [one for one in processes if one["problem"]]
    return next(iter(known or processes), None)
