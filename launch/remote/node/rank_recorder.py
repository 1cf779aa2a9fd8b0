"""PyTorch's flight recorder of a node's ranks: a pipe and a file for each, in the job's folder on the node.

A rank writes the file when something is written to its pipe, as ``fab debug`` does, and when NCCL times out
(pytorch/pytorch ``torch/csrc/distributed/c10d``: ``DumpPipe`` in ProcessGroupNCCL.hpp, ``DebugInfoWriter`` in
FlightRecorder.cpp). A rank whose pipe cannot be made is aborted by PyTorch. So one is made and removed first,
where ranks will run; where that fails they start without a recorder's pipe.
"""

from __future__ import annotations

import os
from contextlib import suppress

__all__ = ["look", "remove_pipes", "variables"]

_FOLDER = "recorder"
_OLDEST = (2, 8)
"""First version with the present names."""
_DIGITS = 10
_MARK = "flight recorder:"
_PIPE = ("TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "TORCH_FR_DEBUG_INFO_PIPE_FILE")
_FILE = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
_SIZE = ("TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_FR_BUFFER_SIZE")
"""Each variable with its other name, which must not be set either."""
_ENTRIES = "2000"
"""PyTorch's default; before 2.9 there is no pipe unless it is set."""


def look(folder: str) -> str:
    """Return a program, behind :data:`launch.remote.node.torch_build.LOOK`'s, that prints which of the
    recorder's variables are set, once it has made a pipe in the job's ``folder``."""
    return f"""
import os
try:
    folder = {folder!r} + "/{_FOLDER}"
    os.makedirs(folder, mode=0o700, exist_ok=True)
    pipe = folder + "/" + str(os.getpid()) + ".pipe"
    os.mkfifo(pipe)
    os.close(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK))
    os.unlink(pipe)
    print("{_MARK}", *[name for name in {(*_PIPE, *_FILE, *_SIZE)!r} if name in os.environ])
except OSError as error:
    print("{_MARK} no pipe:", error)
"""


def variables(output: bytes, version: str, folder: str) -> tuple[dict[str, str], str]:
    """Return what ranks get by the output of :func:`look`, with a torch of this ``version``, and why they do
    without it where that needs to be known. What is set already stays as it is.

    >>> variables(b"flight recorder: TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "2.11.0+cu130", "/j")
    ({'TORCH_NCCL_DEBUG_INFO_PIPE_FILE': '/j/recorder/'}, '')
    >>> variables(b"flight recorder: no pipe: [Errno 1] x", "2.11.0", "/j"), variables(b"", "2.7.1", "/j")
    (({}, 'no pipe: [Errno 1] x'), ({}, ''))
    """
    lines = output.decode("utf-8", "replace").splitlines()
    answer = next((line[len(_MARK) :].strip() for line in lines if line.startswith(_MARK)), None)
    number = _number(version)
    if answer is None or number < _OLDEST:
        return {}, ""
    if answer.startswith("no pipe:"):
        return {}, answer
    prefix = f"{folder}/{_FOLDER}/"
    wanted = {_PIPE: prefix, _FILE: prefix}
    if number == _OLDEST:
        wanted[_SIZE] = _ENTRIES
    given = answer.split()
    return {names[0]: value for names, value in wanted.items() if not set(names).intersection(given)}, ""


def _number(version: str) -> tuple[int, int]:
    """Return the first two numbers of a version.

    >>> _number("2.11.0+cu130"), _number("2.9.0a0+git1"), _number("x"), _number("2.².0")
    ((2, 11), (2, 9), (0, 0), (0, 0))
    >>> _number("2." + "9" * 5000)
    (0, 0)
    """
    words = version.split(".")[:2]
    is_known = len(words) == len(_OLDEST) and all(word.isdecimal() and len(word) < _DIGITS for word in words)
    return (int(words[0]), int(words[1])) if is_known else (0, 0)


def remove_pipes(folder: str) -> None:
    """Remove the pipes of a job's ranks, which have ended; their files stay."""
    with suppress(OSError):  # there is no such folder
        for name in os.listdir(f"{folder}/{_FOLDER}"):
            if name.endswith(".pipe"):
                with suppress(OSError):
                    os.unlink(f"{folder}/{_FOLDER}/{name}")
