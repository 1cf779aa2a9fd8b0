"""PyTorch's own launchers, run once on every node (guide G8)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import PurePosixPath
from typing import Literal

from launch.errors import InputError
from launch.launchers.shell_line import commands
from launch.numbers import counted
from launch.remote.base.paths import python_folder

__all__ = [
    "ELASTIC_ENV",
    "Rendezvous",
    "TorchLauncher",
    "fewest_nodes",
    "starts_ranks_again",
    "torch_launcher_argv",
]

TorchLauncher = Literal["torchrun", "launch"]
Rendezvous = Literal["static", "c10d"]

ELASTIC_ENV = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
"""For ranks that torchrun may start again: a store of their own each time. In the one that all starts share
since torch 2.4 a rank may find what another's dead predecessor wrote, and connect to that in vain until no
restart is left (pytorch/pytorch#135712)."""

_RANGE = re.compile(r"([0-9]{1,6}):([0-9]{1,6})")
_ELASTIC = ("torchrun", "torch.distributed.run")


def torch_launcher_argv(
    launcher: TorchLauncher,
    nodes: int,
    processes_per_node: int,
    command: tuple[str, ...],
    python: str = "python3",
    *,
    rdzv_backend: Rendezvous = "static",
    nnodes: str | None = None,
    max_restarts: int = 0,
) -> tuple[str, ...]:
    """The launcher's command line for a per-node job; its variables are expanded on each node.

    ``launch`` is the older ``torch.distributed.launch``, with ``--use-env``, so that scripts read
    LOCAL_RANK under both. A ``python`` other than the default brings its own torchrun.

    A static rendezvous goes by NODE_RANK, one of c10d's by arrival, with as many nodes as ``nnodes``
    (``2:4``) allows. Left to itself, c10d publishes names, and hangs where they do not resolve
    (pytorch/pytorch#150532): so every node says its address, and which one is the head. Over a range torchrun
    itself restarts the processes, ``max_restarts`` times; with a fixed number of nodes the job is launched
    anew instead, which also helps when it is torchrun that ends.

    >>> torch_launcher_argv("torchrun", 4, 2, ("train.py",))[:7]
    ('torchrun', '--nnodes', '4', '--nproc-per-node', '2', '--node-rank', '$NODE_RANK')
    >>> torch_launcher_argv("torchrun", 4, 2, ("train.py",), rdzv_backend="c10d", nnodes="2:4")[1:7]
    ('--nnodes', '2:4', '--nproc-per-node', '2', '--rdzv-backend', 'c10d')

    Raises :class:`~launch.errors.InputError` when there is no script to run, and for a range that the nodes
    are not in or that the rendezvous cannot have.
    """
    if not command:
        raise InputError("command", None, "is empty", "give the script to run, e.g. train.py --epochs 3")
    options = (
        *("--nnodes", _nodes(nodes, nnodes, rdzv_backend)),
        *("--nproc-per-node", str(processes_per_node)),
        *_RENDEZVOUS[rdzv_backend],
        *(("--max-restarts", str(max_restarts)) if nnodes is not None and max_restarts else ()),
    )
    script = command if command[0].endswith(".py") else ("--no-python", *command)
    interpreter = "python" if python_folder(python) else python
    if launcher == "launch":
        return (interpreter, "-u", "-m", "torch.distributed.launch", "--use-env", *options, *script)
    if "/" in python:
        return (interpreter, "-u", "-m", "torch.distributed.run", *options, *script)
    return ("torchrun", *options, *script)


_RENDEZVOUS = {
    "static": (
        *("--node-rank", "$NODE_RANK"),
        *("--master-addr", "$MASTER_ADDR"),
        *("--master-port", "$MASTER_PORT"),
    ),
    "c10d": (
        *("--rdzv-backend", "c10d"),
        *("--rdzv-endpoint", "$MASTER_ADDR:$MASTER_PORT"),
        *("--rdzv-id", "$RANKLIFT_JOB_ID"),
        *("--rdzv-conf", "is_host=$AZ_BATCH_IS_CURRENT_NODE_MASTER"),
        *("--local-addr", "$RANKLIFT_NODE_ADDR"),
    ),
}


def _nodes(nodes: int, nnodes: str | None, rdzv_backend: Rendezvous) -> str:
    if rdzv_backend not in _RENDEZVOUS:
        raise InputError("rdzv_backend", rdzv_backend, "is no rendezvous that is known", "use static or c10d")
    if nnodes is None:
        return str(nodes)
    match = _RANGE.fullmatch(nnodes)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise InputError("nnodes", nnodes, "is no range of nodes", "write it like 2:4")
    if rdzv_backend == "static":
        raise InputError("nnodes", nnodes, "needs a rendezvous that counts nodes as they come", "use c10d")
    if not int(match[1]) <= nodes <= int(match[2]):
        raise InputError(
            "nnodes",
            nnodes,
            f"does not hold the {counted(nodes, 'node')} of the job",
            "choose others or widen it",
        )
    return nnodes


def fewest_nodes(command: str | Sequence[str]) -> int | None:
    """With how few nodes a torchrun goes on; None when it needs a fixed number, or where that cannot be told.

    ``command`` is a shell line or an argv.

    >>> fewest_nodes("cd src && torchrun --nnodes=2:4 train.py"), fewest_nodes("torchrun --nnodes 4 train.py")
    (2, None)
    >>> fewest_nodes(["python", "-m", "torch.distributed.run", "--nnodes", "2:4", "train.py"])
    2
    """
    for words in _elastic_launches(command):
        match = _RANGE.fullmatch(_option(words, "nnodes") or "")
        if match is not None and int(match[1]) < int(match[2]):
            return int(match[1])
    return None


def starts_ranks_again(command: str | Sequence[str]) -> bool:
    """Whether a torchrun may start its processes again at a rendezvous of c10d's; ``command`` likewise.

    >>> starts_ranks_again("torchrun --nnodes 2 --rdzv-backend c10d --max-restarts=3 train.py")
    True
    >>> starts_ranks_again("torchrun --nnodes 2 --max-restarts 3 train.py")
    False
    """
    return any(
        _option(words, "rdzv-backend") == "c10d" and (_option(words, "max-restarts") or "0") != "0"
        for words in _elastic_launches(command)
    )


def _elastic_launches(command: str | Sequence[str]) -> list[Sequence[str]]:
    lines: list[Sequence[str]] = [] if isinstance(command, str) else [command]
    if isinstance(command, str):
        with suppress(ValueError):  # quotes that do not close: bash will say so
            lines += commands(command)
    return [words for words in lines if any(PurePosixPath(word).name in _ELASTIC for word in words)]


def _option(words: Sequence[str], name: str) -> str | None:
    """The first value of an option of torchrun's, which takes both spellings of its dashes."""
    for place, word in enumerate(words):
        option, equals, value = word.partition("=")
        if option.startswith("--") and option[2:].replace("_", "-") == name:
            return value if equals else "".join(words[place + 1 : place + 2])
    return None
