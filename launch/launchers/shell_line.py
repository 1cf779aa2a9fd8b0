"""Lines for a shell: their words, and their simple commands as far as they can be known without one."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence

from launch.errors import InputError
from launch.job.rank_env import EXPANDED

__all__ = ["LAUNCHER_MODULES", "LAUNCHER_PROGRAMS", "commands", "joined", "quoted", "run_by_python", "words"]

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
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z0-9_]+)\}|([A-Za-z0-9_]+))")


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


def run_by_python(arguments: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Return what Python runs: the option ``-m`` or ``-c``, "" for a script, and the words from there on.

    >>> run_by_python(["-W", "error", "-m", "pkg.train", "-x"]), run_by_python(["-u", "train.py"])
    (('-m', ['pkg.train', '-x']), ('', ['train.py']))
    """
    place = 0
    while place < len(arguments) and arguments[place].startswith("-"):
        if arguments[place] in ("-c", "-m"):
            return arguments[place], arguments[place + 1 :]
        place += 2 if arguments[place] in ("-W", "-X") else 1
    return "", arguments[place:]


def joined(words: Iterable[str]) -> str:
    """Return the words as one line, each byte for byte, but for the launcher's own variables in them.

    >>> print(joined(["train.py", "--name", "a b", "$HOME", "--rank=$RANK"]))
    train.py --name 'a b' '$HOME' --rank="${RANK}"
    """
    return " ".join(map(quoted, words))


def quoted(word: str, literal: Callable[[str], str] = shlex.quote) -> str:
    """Return a word quoted for bash, in which only the launcher's own ``$NAME`` and ``${NAME}`` expand.

    ``literal`` quotes the rest of it.
    """
    parts = []
    at = 0
    for match in _VARIABLE.finditer(word):
        name = match[1] or match[2]
        if name in EXPANDED:
            parts += [word[at : match.start()] and literal(word[at : match.start()]), f'"${{{name}}}"']
            at = match.end()
    parts.append(word[at:] and literal(word[at:]))
    return "".join(parts) or "''"


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
