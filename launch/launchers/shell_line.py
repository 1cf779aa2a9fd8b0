"""The simple commands of a line for bash, as far as they can be told without a shell."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

__all__ = ["LAUNCHERS", "LAUNCHER_MODULES", "commands"]

LAUNCHERS = ("torchrun", "deepspeed", "horovodrun")
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
    """The words of one simple command after the other, variables set before it among them.

    >>> list(commands("cd src && LR=$RATE python \\\\\\n train.py 'a b'"))
    [['cd', 'src'], ['LR=$RATE', 'python', 'train.py', 'a b']]

    Raises ValueError for quotes that do not close, behind the commands before them.
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
