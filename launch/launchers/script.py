"""The script that a command runs, where that is clear without running it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator, Sequence
from itertools import dropwhile
from pathlib import PurePosixPath

from launch.launchers.options import (
    accelerate_options,
    deepspeed_options,
    mpirun_options,
    torchrun_options,
)
from launch.launchers.shell_line import LAUNCHER_MODULES, LAUNCHER_PROGRAMS, commands, run_by_python
from launch.remote.base.files import python_folder

__all__ = [
    "is_missing",
    "module_of",
    "module_of_line",
    "run_script",
    "script_of",
    "script_on_nodes",
    "with_python",
]

_SCRIPT = re.compile(r"[^$`*?\[{~<>]+\.(py|sh)")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_PYTHON = re.compile(r"python[0-9.]*")
_MODULE = re.compile(r"\s*(?:-m|--module[\s=])\s*(?=[^\s=])")
_SHELLS = ("bash", "sh")
_SHELLS_FLAGS = re.compile(r"[-+][abefhkmnprtuvxBCEHPT]*(o?)")
"""Options of a shell that reads a script in the folder where it starts, and whether a value comes next."""
_OF_MODULES = {"m", "module", "no-python", "run-path"}
"""Options by which a launcher starts something else than a script."""
_LOOK_AROUND = ("echo", "printenv", "export", "set", "ls", "df", "nvidia-smi")
_HARMLESS = (*_LOOK_AROUND, "pip", "pip3", "conda", "apt-get", "env")
"""Programs that neither write scripts of the code nor change the working directory."""


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
    script = _first(line, _HARMLESS)
    return None if script is None or _is_elsewhere(script) else str(PurePosixPath(script))


def module_of_line(line: str) -> str | None:
    """Return the module that the line runs first by ``python -m``; None where that is not clear.

    >>> module_of_line("echo go; python -m pkg.train --lr 1"), module_of_line("cd src && python -m train")
    ('pkg.train', None)
    """
    try:
        for words in _commands(line):
            module = module_of(words)
            if module is not None or not _is_one_of(_HARMLESS, words):
                return module
    except ValueError:
        return None
    return None


def script_on_nodes(line: str) -> str | None:
    """Return the script that the line runs with nothing before it that may bring it to the nodes, as the line
    has it; None when that is not clear.

    >>> script_on_nodes("ls; python /opt/train.py"), script_on_nodes("pip install x && python /opt/x.py")
    ('/opt/train.py', None)
    """
    return _first(line, _LOOK_AROUND)


def is_missing(script: str, files: Collection[str]) -> bool:
    """Return whether a script is none of the code's ``files``, as far as that can be known here.

    >>> is_missing("./a.py", ["a.py"]), is_missing("b.py", ["a.py"]), is_missing("/opt/b.py", ["a.py"])
    (False, True, False)
    >>> is_missing("link/b.py", ["link"])
    False
    """
    path = PurePosixPath(script)
    if _is_elsewhere(script) or any(str(above) in files for above in path.parents):  # below a link
        return False
    return str(path) not in files


def run_script(words: Sequence[str]) -> str | None:
    """Return the script that a simple command runs, as it names it; None when that is not clear.

    >>> run_script(["python3", "-u", "train.py", "x.py"]), run_script(["./run.sh"])
    ('train.py', './run.sh')
    >>> run_script(["bash", "-lc", "python train.py"]), run_script(["torchrun", "-m", "pkg", "x.py"])
    (None, None)
    """
    first, rest = PurePosixPath(words[0]).name, list(words[1:])
    if first in LAUNCHER_PROGRAMS:
        return _launched(first, rest)
    if first == "accelerate":
        return _launched(first, rest[1:]) if rest[:1] == ["launch"] else None
    if _PYTHON.fullmatch(first):
        option, run = run_by_python(rest)
        if option == "-m" and run and run[0] in LAUNCHER_MODULES:
            return _launched(run[0], run[1:])
        return None if option else _named(run)
    if first in _SHELLS:
        return _read_by_shell(rest)
    # Others are looked for on PATH.
    return _named([word for word in (rest if words[0] in ("source", ".") else words)[:1] if "/" in word])


def with_python(line: str, python: str) -> str:
    """Return a line that begins with ``-m`` and a module, as torchrun takes one, with its Python in front;
    another line as it is.

    >>> with_python("-m pkg.train --lr 1", "python3"), with_python("train.py -m x", "python3")
    ('python3 -u -m pkg.train --lr 1', 'train.py -m x')
    """
    program = "python" if python_folder(python) else shlex.quote(python)
    found = _MODULE.match(line)
    return f"{program} -u -m {line[found.end() :]}" if found else line


def module_of(words: Sequence[str]) -> str | None:
    """Return the module that Python runs by these words, None for anything else or a launcher's module.

    >>> module_of(["python3", "-u", "-m", "pkg.train", "x.py"]), module_of(["python3", "train.py"])
    ('pkg.train', None)
    """
    if not words or not _PYTHON.fullmatch(PurePosixPath(words[0]).name):
        return None
    option, run = run_by_python(words[1:])
    return run[0] if option == "-m" and run and run[0] not in LAUNCHER_MODULES else None


def _read_by_shell(words: Sequence[str]) -> str | None:
    """Return the script that a shell of these arguments reads."""
    while words and words[0][:1] in ("-", "+"):
        flags = _SHELLS_FLAGS.fullmatch(words[0])
        if flags is None:
            return None
        words = words[2 if flags[1] else 1 :]
    return _named(words)


def _first(line: str, harmless: Sequence[str]) -> str | None:
    """Return the first script that the line runs, where only ``harmless`` programs run before it."""
    try:
        for words in _commands(line):
            script = run_script(words)
            if script is not None:
                return script
            if not _is_one_of(harmless, words):
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


def _launched(name: str, words: Sequence[str]) -> str | None:
    """Return the script that a launcher starts, whose options ``words`` begin with."""
    if name == "horovodrun":
        program = words[mpirun_options(words).count :]
        return run_script(program) if program else None
    reads = accelerate_options if name.startswith("accelerate") else torchrun_options
    options = (deepspeed_options if name.startswith("deepspeed") else reads)(words)
    if not options.are_all_known or _OF_MODULES & options.given.keys():
        return None
    return _named(words[options.count :])


def _named(words: Sequence[str]) -> str | None:
    return words[0] if words and _SCRIPT.fullmatch(words[0]) else None


def _is_elsewhere(script: str) -> bool:
    path = PurePosixPath(script)
    return path.is_absolute() or ".." in path.parts


def _is_one_of(harmless: Sequence[str], words: list[str]) -> bool:
    first = PurePosixPath(words[0]).name
    installs = bool(_PYTHON.fullmatch(first)) and words[1:3] == ["-m", "pip"]
    return (first in harmless and ">" not in "".join(words)) or (installs and "pip" in harmless)
