"""Which script of the pushed code a shell line runs, where that can be told without running it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import PurePosixPath

__all__ = ["script_of"]

_BREAKS = ";&|()\n"
_SCRIPT = re.compile(r"[^$`*?\[{~]+\.(py|sh)")
_PYTHON = re.compile(r"python[0-9.]*")
_SHELLS = ("bash", "sh", "source", ".")
_LAUNCHERS = ("torchrun", "accelerate", "deepspeed", "horovodrun")
_LAUNCHER_MODULES = ("torch.distributed.launch", "torch.distributed.run", "accelerate.commands.launch")
_HARMLESS = (
    "pip",
    "pip3",
    "conda",
    "apt-get",
    "echo",
    "env",
    "printenv",
    "export",
    "set",
    "ls",
    "df",
    "nvidia-smi",
)
"""They make no scripts and leave the working directory as it is."""
_TAKE_A_VALUE = ("-W", "-X")


def script_of(line: str) -> str | None:
    """The first script that the line runs, by its path in the code; None when that cannot be told.

    Nothing is told once a command may have changed the working directory or written files.

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
    """The simple commands of a line, without variables set before them; raises ValueError for open quotes."""
    lexer = shlex.shlex(line.replace("\\\n", " "), posix=True, punctuation_chars=_BREAKS)
    lexer.whitespace = " \t\r"
    lexer.whitespace_split = True
    lexer.commenters = ""
    words: list[str] = []
    for word in lexer:
        if word and set(word) <= set(_BREAKS):
            if words:
                yield words
            words = []
        elif words or not re.match(r"[A-Za-z_]\w*=", word):
            words.append(word)
    if words:
        yield words


def _script(words: list[str]) -> str | None:
    first, rest = PurePosixPath(words[0]).name, words[1:]
    if first in _LAUNCHERS:
        return next((word for word in rest if _SCRIPT.fullmatch(word)), None)
    if _PYTHON.fullmatch(first):
        return _python_script(rest)
    if first in _SHELLS or words[0] in _SHELLS:
        given = next((word for word in rest if not word.startswith("-")), "")
        return given if "-c" not in rest and _SCRIPT.fullmatch(given) else None
    return words[0] if _SCRIPT.fullmatch(words[0]) else None


def _python_script(rest: list[str]) -> str | None:
    skip = False
    for position, word in enumerate(rest):
        if skip:
            skip = False
        elif word == "-m" and rest[position + 1 : position + 2] and rest[position + 1] in _LAUNCHER_MODULES:
            return next((later for later in rest[position + 2 :] if _SCRIPT.fullmatch(later)), None)
        elif word in ("-c", "-m"):
            return None
        elif word in _TAKE_A_VALUE:
            skip = True
        elif not word.startswith("-"):
            return word if _SCRIPT.fullmatch(word) else None
    return None


def _harmless(words: list[str]) -> bool:
    first = PurePosixPath(words[0]).name
    return (first in _HARMLESS and ">" not in "".join(words)) or (
        bool(_PYTHON.fullmatch(first)) and words[1:3] == ["-m", "pip"]
    )
