"""What a command and its script say of how they must be started: frameworks, and who starts processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from launch.launchers.imports import imported_modules, no_code
from launch.launchers.launches import MPI_PROGRAMS, launches
from launch.launchers.shell_line import LAUNCHER_PROGRAMS, commands
from launch.remote.base.files import python_folder

__all__ = ["required_modules", "runs_under", "starts_own_processes"]

_FRAMEWORKS = (
    "accelerate",
    "deepspeed",
    "horovod",
    "lightning",
    "mpi4py",
    "numpy",
    "pytorch_lightning",
    "sklearn",
    "tensorflow",
    "torch",
    "transformers",
)
_LOOK_AROUND = ("echo", "printenv", "ls", "df", "nvidia-smi", "set", "ulimit", "hostname", "date")
"""Commands before the script that change neither which Python runs it nor what that Python has."""
_LEAD_ELSEWHERE = ("PATH", "PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE", "VIRTUAL_ENV", "BASH_ENV")
_LIGHTNING = ("lightning", "pytorch_lightning")


def required_modules(
    source: str, script: str = "", read: Callable[[str], str | None] = no_code
) -> tuple[str, ...]:
    """Return the frameworks that a script always imports, sorted: not those under an if, a try or a def.

    ``script`` is its path in the code, and ``read`` returns the text of a file there, None without one: what
    modules of the code import counts too.

    >>> required_modules("import torch.nn as nn\\ntry:\\n    import deepspeed\\nexcept ImportError: pass\\n")
    ('torch',)
    >>> required_modules("import net", "src/train.py", {"src/net.py": "import torch"}.get)
    ('torch',)

    None for a source that this Python cannot parse.
    """
    names = imported_modules(source, script, read, _FRAMEWORKS)
    return tuple(sorted({name for name in names if name in _FRAMEWORKS}))


def starts_own_processes(command: str | Sequence[str], source: str | None = None) -> str | None:
    """Return why a command starts a node's processes itself; None when nothing says that it does.

    ``command`` is a shell line or an argv, ``source`` the text of the script it runs.

    >>> starts_own_processes("torchrun --nnodes 2 train.py")
    'torchrun starts the processes of a node itself'
    >>> starts_own_processes(["python", "train.py"], "from lightning import Trainer")
    'Lightning, which the script imports, starts the processes of a node itself'
    """
    for launch in launches(command):
        if launch.name in MPI_PROGRAMS:  # its ranks go by the MPI's variables, whatever else they see
            continue
        return f"{launch.name} starts the processes of a node itself"
    if source is not None and any(name in _LIGHTNING for name in imported_modules(source)):
        return "Lightning, which the script imports, starts the processes of a node itself"
    return None


def runs_under(python: str, command: str | Sequence[str]) -> bool:
    """Return whether the command runs its script under the job's ``python``, as the nodes have it now.

    Otherwise it does not matter what that Python lacks: the line may install it first, or use another Python.

    >>> runs_under("python3", "LR=1 python train.py"), runs_under("/opt/env", "torchrun train.py")
    (True, True)
    >>> runs_under("python3", "pip install -r requirements.txt && python train.py")
    False
    >>> runs_under("python3", "/opt/env/bin/python train.py"), runs_under("python3.9", "python train.py")
    (False, False)
    """
    usual = python == "python3" or bool(python_folder(python))
    names = ("python", "python3", *LAUNCHER_PROGRAMS, "accelerate") if usual else (python,)
    for words in _commands(command):
        place = 0
        while place < len(words) and "=" in words[place]:
            if words[place].partition("=")[0] in _LEAD_ELSEWHERE:
                return False
            place += 1
        if place == len(words) or words[place] in _LOOK_AROUND:
            continue
        return words[place] in names or words[place].endswith(".py")
    return False


def _commands(command: str | Sequence[str]) -> Iterator[list[str]]:
    """Yield the simple commands of a line; an argv is one."""
    if not isinstance(command, str):
        yield list(command)
        return
    with suppress(ValueError):  # quotes that do not close: bash reports it
        yield from commands(command)
