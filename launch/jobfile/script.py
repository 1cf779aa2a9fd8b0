"""The script of the pushed code that a shell line runs, where that is clear without running it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import dropwhile
from pathlib import PurePosixPath

from launch.launchers.shell_line import LAUNCHER_MODULES, LAUNCHER_PROGRAMS, commands, run_by_python

__all__ = ["script_of"]

_SCRIPT = re.compile(r"[^$`*?\[{~]+\.(py|sh)")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_PYTHON = re.compile(r"python[0-9.]*")
_SHELLS = ("bash", "sh", "source", ".")
_SCRIPT_LAUNCHER_PROGRAMS = (*LAUNCHER_PROGRAMS, "accelerate")
_HARMLESS = (
    *("pip", "pip3", "conda", "apt-get"),
    *("echo", "env", "printenv", "export", "set", "ls", "df", "nvidia-smi"),
)
"""Programs that neither write scripts nor change the working directory."""


def script_of(line: str) -> str | None:
    """Return the path in the code of the first script that the line runs; None when that is not clear.

    A command that may change the working directory or write files makes the rest of the line unclear.

    >>> script_of("pip install -r requirements.txt && python -u train.py --lr 0.1")
    'train.py'
    >>> script_of("OMP_NUM_THREADS=1 torchrun --nnodes 2 --master_addr $MASTER_ADDR src/train.py x.py")
    'src/train.py'
    >>> script_of("cd src && python train.py"), script_of("python -m pkg.train"), script_of("python $SCRIPT")
    (None, None, None)
    """
    try:
        for words in _commands(line):
            script = _script(words)
            if script is not None:
                path = PurePosixPath(script)
                return None if path.is_absolute() or ".." in path.parts else str(path)
            if not _harmless(words):
                return None
    except ValueError:
        return None
    return None


def _commands(line: str) -> Iterator[list[str]]:
    """Yield the line's commands without their variable assignments. Raise ValueError for open quotes."""
    for words in commands(line):
        command = list(dropwhile(_ASSIGNMENT.match, words))
        if command:
            yield command


def _script(words: list[str]) -> str | None:
    first, rest = PurePosixPath(words[0]).name, words[1:]
    if first in _SCRIPT_LAUNCHER_PROGRAMS:
        return next((word for word in rest if _SCRIPT.fullmatch(word)), None)
    if _PYTHON.fullmatch(first):
        return _python_script(rest)
    if first in _SHELLS or words[0] in _SHELLS:
        given = next((word for word in rest if not word.startswith("-")), "")
        return given if "-c" not in rest and _SCRIPT.fullmatch(given) else None
    return words[0] if _SCRIPT.fullmatch(words[0]) else None


def _python_script(arguments: Sequence[str]) -> str | None:
    option, rest = run_by_python(arguments)
    if option == "-m" and rest and rest[0] in LAUNCHER_MODULES:
        return next((later for later in rest[1:] if _SCRIPT.fullmatch(later)), None)
    return rest[0] if not option and rest and _SCRIPT.fullmatch(rest[0]) else None


def _harmless(words: list[str]) -> bool:
    first = PurePosixPath(words[0]).name
    return (first in _HARMLESS and ">" not in "".join(words)) or (
        bool(_PYTHON.fullmatch(first)) and words[1:3] == ["-m", "pip"]
    )
