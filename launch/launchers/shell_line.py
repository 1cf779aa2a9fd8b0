"""Lines for a shell: their words, and their simple commands as far as they can be known without one."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from launch.errors import InputError
from launch.job.rank_env import EXPANDED

__all__ = [
    "LAUNCHER_MODULES",
    "LAUNCHER_PROGRAMS",
    "Word",
    "commands",
    "joined",
    "operator_of",
    "quoted",
    "run_by_python",
    "simple_commands",
    "words",
]

LAUNCHER_PROGRAMS = ("torchrun", "deepspeed", "horovodrun")
"""Programs that start a node's processes; ``accelerate`` does with its ``launch`` alone."""
LAUNCHER_MODULES = (
    "accelerate.commands.launch",
    "deepspeed.launcher.runner",
    "torch.distributed.launch",
    "torch.distributed.run",
    "torch.distributed.launcher",
)
"""The same as ``python -m`` is given them."""
_INNER = r"[$<>]\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)|`[^`]*`"
"""What the shell runs to make a part of a word."""
_PART = re.compile(
    rf"""(?P<blank>(?:[ \t\r]|\\\n)+)
    |(?P<end>[;&|()\n]+)
    |'(?P<single>[^']*)'
    |"(?P<double>(?>\\.|{_INNER}|[^"\\])*)"
    |\\(?P<escaped>.)
    |(?P<plain>{_INNER}|\$\{{[^}}]*\}}|[$<>]|[^ \t\r\n;&|()'"\\`$<>]+)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPED = re.compile(r"\\([\\\"$`])")
_FILE = re.compile(r"(?<!<)<<-?[ \t]*(['\"]?)(\w+)\1[^\n]*\n")
_RUN = re.compile(r"-[bBdEiIOPqsSuvx]*([cm])(.*)", re.DOTALL)
_WITH_VALUE = re.compile(r"-[bBdEiIOPqsSuvx]*[WX]|--check-hash-based-pycs")
"""Options of Python whose value is the next word."""
_OPERATOR = re.compile(r"[;&|<>]+\d*")
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z0-9_]+)\}|([A-Za-z0-9_]+))")


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a line, as the shell hands it on as far as that can be known without one."""

    text: str
    start: int
    end: int
    """Where it ends in the line, behind its quotes."""
    is_plain: bool
    """Whether between ``start``, or the one quote there, and its end stands the text byte for byte."""

    @property
    def inside(self) -> int:
        """Where the text begins, if it is plain."""
        return self.start + (self.end - self.start - len(self.text)) // 2


def simple_commands(line: str) -> Iterator[list[Word]]:
    """Yield the words of each simple command, variables set before it among them.

    Comments and what is handed on as a file (``<<END``) are no commands, and nor is what ``$(…)`` runs: it is
    part of a word. Raise ValueError for quotes or braces that do not close, behind the commands before them.
    """
    text = _without_files(line)
    words: list[Word] = []
    parts: list[re.Match[str]] = []
    at = 0
    closing = text.rfind("}")
    while at < len(text):
        if text.startswith("${", at) and at > closing:  # a search for its end each time would be quadratic
            raise ValueError("No closing brace")
        if text[at] == "#" and not parts:
            line_end = text.find("\n", at)
            at = len(text) if line_end < 0 else line_end
            continue
        found = _PART.match(text, at)
        if found is None:
            raise ValueError("No closing quotation")
        at = found.end()
        if found["blank"] is None and found["end"] is None:
            parts.append(found)
            continue
        if parts:
            words.append(_word(parts))
            parts = []
        if found["end"] is not None and words:
            yield words
            words = []
    if parts:
        words.append(_word(parts))
    if words:
        yield words


def _without_files(line: str) -> str:
    """Return the line with nothing but newlines for what is handed on as a file, each place as it was."""
    at = 0
    endless: set[str] = set()
    last_words = {one.lstrip("\t") for one in line.split("\n")}
    while found := _FILE.search(line, at):
        at = found.end()
        if found[2] in endless or found[2] not in last_words:
            continue
        end = re.compile(rf"^\t*{found[2]}$", re.MULTILINE).search(line, at)
        if end is None:
            endless.add(found[2])
        else:
            line = line[:at] + "\n" * (end.start() - at) + line[end.start() :]
            at = end.end()
    return line


def _word(parts: Sequence[re.Match[str]]) -> Word:
    texts = []
    for part in parts:
        double = part["double"]
        text = next((part[kind] for kind in ("single", "escaped", "plain") if part[kind] is not None), "")
        texts.append(text if double is None else _ESCAPED.sub(r"\1", double))
    start, end, text = parts[0].start(), parts[-1].end(), "".join(texts)
    quotes = 2 if len(parts) == 1 and parts[0]["plain"] is None else 0
    return Word(text, start, end, end - start == len(text) + quotes)


def commands(line: str) -> Iterator[list[str]]:
    """Yield the texts of each of a line's :func:`simple_commands`.

    >>> list(commands("cd src && LR=$RATE python \\\\\\n train.py 'a b' # slow"))
    [['cd', 'src'], ['LR=$RATE', 'python', 'train.py', 'a b']]
    """
    for words in simple_commands(line):
        yield [word.text for word in words]


def run_by_python(arguments: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Return what Python runs: the option ``-m`` or ``-c``, ``-`` for stdin, "" for a script, and the words
    from there on.

    >>> run_by_python(["-W", "error", "-m", "pkg.train", "-x"]), run_by_python(["-u", "train.py"])
    (('-m', ['pkg.train', '-x']), ('', ['train.py']))
    """
    place = 0
    while place < len(arguments) and arguments[place].startswith("-"):
        if arguments[place] == "-":
            return "-", arguments[place + 1 :]
        if found := _RUN.fullmatch(arguments[place]):
            return f"-{found[1]}", [*([found[2]] if found[2] else []), *arguments[place + 1 :]]
        place += 2 if _WITH_VALUE.fullmatch(arguments[place]) else 1
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


def operator_of(line: str) -> str:
    """Return the first operator of a shell in a line whose quotes close; empty where none is unquoted.

    >>> operator_of("train.py 2>&1 | tee log"), operator_of("bash -c 'a > b' '|' 'c;'")
    ('2>&1', '')
    """
    at = 0
    while (found := _PART.match(line, at)) is not None:
        at = found.end()
        begin = re.search(r"[;&|]", found["end"] or "") or re.match(r"[<>]", found["plain"] or "")
        if begin is not None:
            start = found.start() + begin.start()
            number = re.search(r"(?<!\S)\d*$", line[:start]) if found["plain"] else None
            operator = _OPERATOR.match(line, start)
            return f"{number[0] if number else ''}{operator[0] if operator else ''}"
    return ""


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
