"""Lines for a shell: their words, and their simple commands as far as they can be known without one."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from launch.errors import InputError

__all__ = ["LAUNCHER_MODULES", "LAUNCHER_PROGRAMS", "commands", "words"]

LAUNCHER_PROGRAMS = ("torchrun", "deepspeed", "horovodrun")
"""Programs that start a node's processes; ``accelerate`` does with its ``launch`` alone."""
LAUNCHER_MODULES = (
    "accelerate.commands.launch",
    "torch.distributed.launch",
    "torch.distributed.run",
    "torch.distributed.launcher",
)
"""The same as ``python -m`` is given them."""
_BREAKS = ";&|()\n"


def commands(line: str) -> Iterator[list[str]]:
    """Yield the words of each simple command, variables set before it among them.

    >>> list(commands("cd src && LR=$RATE python \\\\\\n train.py 'a b'"))
    [['cd', 'src'], ['LR=$RATE', 'python', 'train.py', 'a b']]

    Raise ValueError for quotes that do not close, behind the commands before them.
    """
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
        else:
            words.append(word)
    if words:
        yield words


def words(key: str, line: str) -> tuple[str, ...]:
    """Return a command line's words, quotes read as a shell reads them; nothing is expanded.

    >>> words("line", "train.py --name 'a b' --rank $LOCAL_RANK")
    ('train.py', '--name', 'a b', '--rank', '$LOCAL_RANK')

    Raise :class:`~launch.errors.InputError` for quotes that do not close.
    """
    try:
        return tuple(shlex.split(line))
    except ValueError as error:
        raise InputError(key, line, str(error).lower(), "close every quote") from None
