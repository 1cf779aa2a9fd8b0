"""What variables in a launcher's options stand for, where the launcher is started."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import dropwhile, takewhile

from launch.errors import InputError
from launch.job.rank_env import EXPANDED
from launch.launchers.launches import Command, shell_lines
from launch.launchers.pytorch import PyTorch
from launch.launchers.shell_line import commands, operator_of, simple_commands

__all__ = ["Variables", "settings", "variables_of", "without_assignments"]

_VARIABLE = re.compile(
    r"\$(?:(?P<bare>[A-Za-z_]\w*)"
    r"|\{(?P<name>[A-Za-z_]\w*)(?P<else>:?-(?P<default>[^{}]*(?:\{[^{}]*\}[^{}]*)*))?\})"
)
_RUN = re.compile(r"\$\(|`")
_OF_RANKS = frozenset(
    name
    for name in EXPANDED
    if name in ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE") or name.startswith("OMPI_COMM_WORLD_")
)
"""What a process has that the job starts itself, and a launcher that starts the processes has not."""
_OF_THE_SHELL = frozenset(
    (
        *("BASHPID", "EPOCHSECONDS", "EUID", "HOME", "HOSTNAME", "LOGNAME", "PATH", "PPID", "PWD"),
        *("RANDOM", "SECONDS", "SHELL", "SRANDOM", "UID", "USER"),
    )
)
_SETS_ANY = re.compile(r"(?:^|[\s;&|(])(?:(?:source|eval|\.|set\s+-a|read|mapfile)(?=\s)|export\s+[\"$`])")
"""What may set variables that the line does not name."""
_ASSIGNED = re.compile(
    r"(?<![\w$])([A-Za-z_]\w*)(?:\[[^]]{0,99}\])?\+?=|\b(?:for|printf\s+-v|getopts\s+\S+)\s+(\w+)"
)
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_EXPANDED_BY_SHELL = re.compile(r"[$`]|(?:^|[=:])~|^\w+\+=")
_CONDITIONS = ("if", "[", "[[", "test", "case", "for", "while", "until", "select", "((")
_DEEPEST = 5
_LONGEST = 4096
"""Characters of a text or value in which variables are replaced: no count, name or address is longer, and
each replacement may multiply what is there."""


@dataclass(frozen=True, slots=True)
class Variables:
    """The variables of a command, as far as they are known before it runs."""

    of_job: frozenset[str]
    """Names that the job sets, whose values only the nodes know."""
    constants: Mapping[str, str] = field(default_factory=dict)
    """What the user's variables and the line's own are set to."""
    assigned: frozenset[str] = frozenset()
    """Names that the line sets, to whatever."""
    is_any_set: bool = False
    """Whether the line may set others."""
    by_shell: bool = True
    """Whether a shell reads the line: else nothing but the plain names of the job's is replaced."""

    def resolved(self, text: str) -> str:
        """Return the text with what is known for its variables: a constant, or the default of an unset one.

        >>> Variables(frozenset({"NODE_RANK"}), {"N": "2"}).resolved("${N:-1} ${X:-3} ${NODE_RANK:-0} $Y")
        '2 3 $NODE_RANK $Y'
        """
        for _ in range(_DEEPEST if self.by_shell else 0):
            if len(text) > _LONGEST:
                break
            text, before = _VARIABLE.sub(self._value, text), text
            if text == before:
                break
        return text

    def unset(self, text: str) -> str | None:
        """Return the first variable of the text that nothing sets or replaces.

        >>> Variables(frozenset({"NODE_RANK"})).unset("$NODE_RANK$RANK$HOME")
        'RANK'
        """
        # a word that runs something is searched for what only ranks have: it may set others itself
        if self.by_shell and _RUN.search(text):
            names = (name for name in re.findall(r"\w+", text) if name in _OF_RANKS)
            return next((name for name in names if not self._may_be_set(name)), None)
        for match in _VARIABLE.finditer(text):
            name = match["bare"] or match["name"]
            if not self._may_be_set(name) or (match["else"] and not self.by_shell):
                return name
        return None

    def _value(self, match: re.Match[str]) -> str:
        name = match["bare"] or match["name"]
        if len(value := self.constants.get(name, match[0])) > _LONGEST:
            return match[0]
        if name in self.constants:
            return value
        if name in self.of_job and name not in self.assigned:
            return f"${name}" if match["else"] else match[0]
        if self._may_be_set(name) or match["else"] is None:
            return match[0]
        return match["default"]

    def _may_be_set(self, name: str) -> bool:
        known = name in self.of_job or name in self.constants or name in self.assigned
        return known or name in _OF_THE_SHELL or (self.is_any_set and name not in _OF_RANKS)


def variables_of(
    command: Command,
    kind: str,
    given: Mapping[str, str],
    found: Iterable[tuple[Mapping[str, str], bool]],
    *,
    by_shell: bool,
) -> Variables:
    """Return the variables that a launcher's options may name in a command.

    ``given`` are the user's, ``found`` the command's :func:`settings`. Without a shell only the job's own are
    replaced.
    """
    of_job = frozenset(EXPANDED) - (_OF_RANKS if kind == PyTorch.name else frozenset())
    if not by_shell:
        return Variables(of_job, by_shell=False)
    text = command if isinstance(command, str) else " ".join(command)
    assigned = frozenset(name for match in _ASSIGNED.finditer(text) for name in match.groups() if name)
    known = {name: value for name, value in given.items() if name not in assigned and "$" not in value}
    known |= _constants(found)
    return Variables(of_job, known, assigned | given.keys(), bool(_SETS_ANY.search(text)))


def settings(command: Command) -> Iterator[tuple[dict[str, str], bool]]:
    """Yield what each simple command sets, and whether it does nothing else. None is conditional.

    >>> list(settings("cd x; export A=1 && B=$HOME; C=2 python train.py"))
    [({'A': '1'}, True), ({'B': '$HOME'}, True), ({'C': '2'}, False)]
    """
    found: list[Sequence[str]] = []
    lines = [*shell_lines(command)]
    with suppress(ValueError):  # quotes that do not close: bash reports it
        for line in lines:
            found.extend(commands(line) if isinstance(line, str) else [line])
    is_conditional = any(isinstance(line, str) and "||" in line for line in lines)
    if is_conditional or any(words[0] in _CONDITIONS for words in found if words):
        return
    for words in found:
        own = list(dropwhile(lambda word: word in ("export", "env"), words))
        pairs = [pair for pair in takewhile(bool, map(_ASSIGNMENT.fullmatch, own)) if pair]
        if pairs:
            yield {pair[1]: pair[2] for pair in pairs}, len(pairs) == len(own)


def _constants(found: Iterable[tuple[Mapping[str, str], bool]]) -> dict[str, str]:
    """Return what a command's settings set variables to for all that follows, where it does so once.

    >>> _constants(settings("export A=1 && B=$HOME; C=2 python train.py; D=1; D=2"))
    {'A': '1'}
    """
    pairs = [pair for pairs, is_all in found if is_all for pair in pairs.items()]
    count = Counter(name for name, _ in pairs)
    return {name: value for name, value in pairs if count[name] == 1 and not re.search(r"[$`~]", value)}


def without_assignments(key: str, line: str) -> tuple[tuple[str, ...], str]:
    """Return the variables that a line sets before its program, each as ``NAME=VALUE``, and what follows.

    >>> without_assignments("line", "LR=1 NAME='a b' python train.py X=1")
    (('LR=1', 'NAME=a b'), 'python train.py X=1')

    Raise :class:`~launch.errors.InputError` for a value that a shell would make another one of, and for a
    line without a program.
    """
    try:
        words = next(simple_commands(line), [])
    except ValueError:  # reported with the whole line, later
        return (), line
    found = list(takewhile(lambda word: _ASSIGNED.match(word.text), words))
    for word in found:
        if _EXPANDED_BY_SHELL.search(word.text):
            name = re.split(r"\W", word.text)[0]
            problem = "would become another value by a shell, and no shell reads this line"
            remedy = f"give the value as it is to be, by --env {name}=VALUE, or write the line as bash -c '…'"
            raise InputError(key, word.text, problem, remedy)
    if found and len(found) == len(words):
        if operator_of(line):  # refused as such, later
            return (), line
        raise InputError(
            key, line, "sets variables and runs nothing", "give a script or a program behind them"
        )
    return tuple(word.text for word in found), line[words[len(found)].start :] if found else line
