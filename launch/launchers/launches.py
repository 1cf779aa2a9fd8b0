"""The launchers that a command runs, behind whatever starts them: other programs, shells within shells."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import NamedTuple

from launch.launchers.shell_line import (
    LAUNCHER_MODULES,
    LAUNCHER_PROGRAMS,
    commands,
    run_by_python,
    simple_commands,
)

__all__ = [
    "MPI_PROGRAMS",
    "Command",
    "Launch",
    "Place",
    "exchanged",
    "inserted",
    "installers",
    "launches",
    "shell_lines",
]

Command = str | Sequence[str]
"""A shell line, or an argv."""

MPI_PROGRAMS = ("mpirun", "mpiexec", "orterun", "prterun", "srun")
"""Programs that start processes on nodes of their own choice; also with an ending, like ``mpiexec.hydra``."""

_KEYWORDS = ("if", "then", "elif", "else", "while", "until", "do", "!", "{")
_SHELLS = ("bash", "sh", "dash", "zsh")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
_LINE_NEXT = re.compile(r"-[A-Za-z]*c[A-Za-z]*")
_COMPARISONS = ("==", "!=", "-eq", "-ne")
_NODES_NUMBER = re.compile(r"RANK(?!LIFT)|TASK_INDEX|NODE_MASTER|NODE_ADDR|HOSTNAME|hostname|PROCID|NODEID")
_INSTALLER = re.compile(r"pip[0-9.]*|(?:conda|mamba|micromamba|uv pip)")
_INSTALL = " install"
_ELSEWHERE = re.compile(r"(?:-t|--target|--prefix|--root|-n|--name)(?:=.*)?")
"""Options by which an installer leaves the environment that it finds alone."""
_QUESTIONS = ("--version", "-version", "-V", "--help", "-help", "-h")
"""What a launcher answers without starting anything."""
_DEEPEST = 5


class _Starter(NamedTuple):
    """A program that starts the one which its arguments name."""

    values: str = ""
    """Options whose value is a word of its own."""
    words: int = 0
    """Words before the program."""
    guess: bool = False
    """Whether other options may have a value too: nothing but a program that is known ends them."""


_STARTERS: Mapping[str, _Starter] = {
    **dict.fromkeys(("nohup", "setsid", "catchsegv", "unbuffer"), _Starter()),
    "env": _Starter("-u --unset -C --chdir"),
    "exec": _Starter("-a"),
    "time": _Starter("-f --format -o --output"),
    "timeout": _Starter("-k --kill-after -s --signal", words=1),
    "nice": _Starter("-n --adjustment"),
    "ionice": _Starter("-c --class -n --classdata"),
    "chrt": _Starter("-T -P -D", words=1),
    "stdbuf": _Starter("-i --input -o --output -e --error"),
    "taskset": _Starter(words=1),
    "numactl": _Starter("-N --cpunodebind -m --membind -i --interleave -C --physcpubind -p --preferred"),
    "sudo": _Starter("-u --user -g --group -h --host -p --prompt -C -D --chdir -R -r -t -T -U"),
    "strace": _Starter("-a -b -e -E -I -o -O -p -P -s -S -u -U -X"),
    "xvfb-run": _Starter("-e -f -n -p -s -w"),
    **dict.fromkeys(
        ("conda run", "mamba run", "micromamba run"), _Starter("-n --name -p --prefix --cwd -e --env")
    ),
    **dict.fromkeys(("poetry run", "pipenv run", "pdm run", "hatch run", "rye run"), _Starter("-p -C")),
    **dict.fromkeys(
        ("uv run", "pixi run", "nsys profile", "nsys launch", "ncu", "py-spy record", "perf record"),
        _Starter(guess=True),
    ),
}

Place = tuple[int, int | None]
"""The number of a word of the command, and an offset in it; None for between that word and the next."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A launcher that a command runs."""

    name: str
    words: tuple[str, ...]
    """What follows the launcher's own words."""
    place: Place | None
    """Where that begins; None where it is not in the command as it stands there."""
    is_everywhere: bool
    """Whether nothing in the command asks which node it is on."""
    places: tuple[Place | None, ...] = ()
    """Where each of ``words`` begins; None where it is not in the command as it stands there."""
    by_shell: bool = True
    """Whether a shell expands the words."""


class _Word(NamedTuple):
    text: str
    end: Place | None
    inside: Place | None
    """Where the text begins, if the command has it byte for byte."""


def launches(command: Command) -> tuple[Launch, ...]:
    """Return the launchers that a command runs, as far as that can be known.

    >>> [one.name for one in launches("cd src && conda run -n x torchrun train.py")]
    ['torchrun']
    >>> [one.words for one in launches(["bash", "-c", "python -m torch.distributed.run a.py --x"])]
    [('a.py', '--x')]
    """
    return tuple(one for one in _found(command) if not one.name.endswith(_INSTALL))


def installers(command: Command) -> tuple[Launch, ...]:
    """Return the installers that a command runs to add packages to its Python.

    >>> [one.name for one in installers("pip install -r a.txt && python3 -m pip install -q . && python a.py")]
    ['pip install', 'pip install']
    >>> [one.name for one in installers("pip install -t d x; pip list; /a/pip install x; uv pip install x")]
    ['uv pip install']
    """
    return tuple(one for one in _found(command) if one.name.endswith(_INSTALL))


def _found(command: Command) -> Iterator[Launch]:
    if isinstance(command, str):
        return _of_line(command, (0, 0), 0)
    return _of_words([_Word(text, (number, None), (number, 0)) for number, text in enumerate(command)], 0)


def inserted(command: Command, place: Place, words: Sequence[str]) -> Command:
    """Return the command with further words at a place, all else byte for byte.

    >>> inserted("torchrun  a.py", (0, 8), ["--nnodes", "2"])
    'torchrun --nnodes 2  a.py'
    """
    number, offset = place
    if isinstance(command, str):
        return f"{command[:offset]} {' '.join(words)}{command[offset:]}"
    argv = tuple(command)
    if offset is None:
        return (*argv[: number + 1], *words, *argv[number + 1 :])
    word = inserted(argv[number], (0, offset), words)
    return (*argv[:number], str(word), *argv[number + 1 :])


def exchanged(command: Command, place: Place, old: str, new: str) -> Command:
    """Return the command with ``new`` for ``old``, which begins at the place.

    >>> exchanged(("torchrun", "--node-rank=$RANK"), (1, 0), "--node-rank=$RANK", "--node-rank=$NODE_RANK")
    ('torchrun', '--node-rank=$NODE_RANK')
    """
    number, offset = place
    if not isinstance(command, str):
        argv = tuple(command)
        word = str(exchanged(argv[number], (0, offset), old, new))
        return (*argv[:number], word, *argv[number + 1 :])
    at = offset or 0
    return f"{command[:at]}{new}{command[at + len(old) :]}"


def shell_lines(command: Command, depth: int = 0) -> Iterator[Command]:
    """Yield the command, and each line within it that a shell is given.

    >>> [*shell_lines("cd x && exec bash -c 'A=1; sh -c ls'")][1:]
    ['A=1; sh -c ls', 'ls']
    """
    yield command
    found: list[Sequence[str]] = []
    with suppress(ValueError):  # quotes that do not close: bash reports it
        found.extend(commands(command) if isinstance(command, str) else [command])
    for texts in found if depth < _DEEPEST else ():
        place = _program(texts)
        if place < len(texts) and PurePosixPath(texts[place]).name in _SHELLS:
            line = _shells_line(texts, place + 1)
            if line is not None:
                yield from shell_lines(texts[line], depth + 1)


def _of_line(line: str, start: Place | None, depth: int) -> Iterator[Launch]:
    found: list[list[_Word]] = []
    with suppress(ValueError):  # quotes that do not close: bash reports it
        for command in simple_commands(line):
            at = None if start is None else (start[0], start[1] or 0)
            found.append(
                [
                    _Word(
                        word.text,
                        at and (at[0], at[1] + word.end),
                        at and (at[0], at[1] + word.inside) if word.is_plain else None,
                    )
                    for word in command
                ]
            )
    everywhere = not any(_asks_for_its_node([word.text for word in words]) for words in found)
    for words in found:
        for launch in _of_words(words, depth):
            yield replace(launch, by_shell=True, is_everywhere=launch.is_everywhere and everywhere)


def _asks_for_its_node(words: Sequence[str]) -> bool:
    """Return whether a simple command is a test of a node's or a rank's number or name."""
    while words and words[0] in _KEYWORDS:
        words = words[1:]
    is_test = words[:1] and words[0] in ("[", "[[", "test", "case")
    if not is_test and not (len(words) > 1 and words[1] in _COMPARISONS):
        return False
    return any(_NODES_NUMBER.search(word) for word in words)


def _of_words(words: Sequence[_Word], depth: int) -> Iterator[Launch]:
    """Yield the launchers of a simple command."""
    texts = [word.text for word in words]
    place = _program(texts)
    if place == len(texts) or depth == _DEEPEST:
        return
    name, rest = PurePosixPath(texts[place]).name, texts[place + 1 :]
    if name in _SHELLS:
        if (line := _shells_line(texts, place + 1)) is not None:
            # a shell that starts without the job's variables would make nothing of their names
            inside = None if _drops_variables(texts[:place]) else words[line].inside
            yield from _of_line(words[line].text, inside, depth + 1)
    elif installer := _installer(texts[place:]):
        yield Launch(installer + _INSTALL, tuple(rest), None, is_everywhere=True)
    elif (found := _launcher(name, rest)) is not None:
        end = place + found[1]
        if texts[end + 1 : end + 2] and texts[end + 1] in _QUESTIONS:
            return
        places = tuple(word.inside for word in words[end + 1 :])
        yield Launch(found[0], tuple(texts[end + 1 :]), words[end].end, True, places, by_shell=False)


def _program(words: Sequence[str]) -> int:
    """Return the place of the program that a simple command comes to in the end.

    >>> _program(["LR=1", "timeout", "-k", "5", "1h", "numactl", "-N", "0", "torchrun", "a.py"])
    8
    """
    place = 0
    while place < len(words):
        name = PurePosixPath(words[place]).name
        if _ASSIGNMENT.match(words[place]) or words[place] in _KEYWORDS:
            place += 1
            continue
        pair = f"{name} {words[place + 1]}" if place + 1 < len(words) else ""
        starter = _STARTERS.get(pair) or _STARTERS.get(name)
        if starter is None:
            return place
        place = _behind(starter, words, place + (2 if pair in _STARTERS else 1))
    return place


def _drops_variables(words: Sequence[str]) -> bool:
    kept = {"-E", "--preserve-env"} & {*words}
    return bool({"-i", "-", "--ignore-environment"} & {*words}) or ("sudo" in words and not kept)


def _behind(starter: _Starter, words: Sequence[str], place: int) -> int:
    """Return the place of what a program starts, whose arguments begin at ``place``."""
    left = starter.words
    while place < len(words):
        word = words[place]
        if word == "--":
            return place + 1
        if word.startswith("-"):
            place += 1
            is_last = place == len(words) or words[place].startswith("-")
            guessed = starter.guess and "=" not in word and not is_last and not _is_known(words, place)
            place += guessed or word in starter.values.split()
        elif _ASSIGNMENT.match(word):
            place += 1
        elif left:
            left -= 1
            place += 1
        else:
            break
    return place


def _is_known(words: Sequence[str], place: int) -> bool:
    name = PurePosixPath(words[place]).name
    known = name in _STARTERS or name in _SHELLS or name.startswith(("python", "pip"))
    return known or _launcher(name, words[place + 1 :]) is not None


def _installer(words: Sequence[str]) -> str | None:
    """Return the installer that adds packages to the Python on PATH; None for anything else."""
    name, rest = words[0], words[1:]
    if name.startswith("python"):
        option, run = run_by_python(rest)
        name, rest = (run[0], run[1:]) if option == "-m" and run else ("", ())
    elif name == "uv" and rest[:1] == ["pip"]:
        name, rest = "uv pip", rest[1:]
    own = next((word for word in rest if not word.startswith("-")), "")
    is_one = own == _INSTALL.strip() and _INSTALLER.fullmatch(name)
    return name if is_one and not any(map(_ELSEWHERE.fullmatch, rest)) else None


def _launcher(name: str, rest: Sequence[str]) -> tuple[str, int] | None:
    """Return the launcher that a program is, and how many words behind the program are its own."""
    first = name.partition(".")[0]
    if name in LAUNCHER_PROGRAMS or first in MPI_PROGRAMS:
        return first, 0
    if name == "accelerate-launch" or (name == "accelerate" and list(rest[:1]) == ["launch"]):
        return "accelerate launch", int(name == "accelerate")
    if not name.startswith(("python", "pypy")):
        return None
    option, run = run_by_python(rest)
    own, what = len(rest) - len(run) + 1, run[0] if run else ""
    if option == "-m" and what in LAUNCHER_MODULES:
        return what, own
    program = PurePosixPath(what).name
    return (program, own) if not option and "/" in what and program in LAUNCHER_PROGRAMS else None


def _shells_line(words: Sequence[str], place: int) -> int | None:
    """Return the place of the line that a shell is given; None where it reads a script."""
    is_line = False
    while place < len(words) and words[place][:1] in ("-", "+"):
        is_line |= bool(_LINE_NEXT.fullmatch(words[place]))
        place += 2 if words[place][-1] in ("o", "O") and not words[place].startswith("--") else 1
    return place if is_line and place < len(words) else None
