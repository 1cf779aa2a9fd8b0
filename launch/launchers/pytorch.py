"""PyTorch: a process group of ranks, or its own launchers, run once on every node (guide G8)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from launch.errors import InputError
from launch.launchers.base import COUNT, Count, Launcher, Line, LineStart, Option, Spec, Start
from launch.launchers.detect import starts_own_processes
from launch.launchers.launches import Command, launches
from launch.launchers.options import TORCHRUNS, torchrun_options
from launch.numbers import MOST, bounded, counted, whole
from launch.remote.base.files import python_folder

__all__ = [
    "ELASTIC_ENV",
    "RENDEZVOUS",
    "PyTorch",
    "Rendezvous",
    "fewest_nodes",
    "starts_ranks_again",
    "torchrun_argv",
]

Rendezvous = Literal["static", "c10d"]

ELASTIC_ENV = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
"""For ranks that torchrun may start again: a store of their own each time. In the one that all starts share
since torch 2.4 a rank may find what another's dead predecessor wrote, and connect to that in vain until no
restart is left (pytorch/pytorch#135712)."""

_RANGE = re.compile(r"([0-9]{1,6}):([0-9]{1,6})")


class PyTorch(Launcher):
    """Starts ranks that form a process group, or a command on every node that starts them."""

    name = "pytorch"
    task = "torch"
    example = 'fab launch.torch "train.py --epochs 5" --nodes 0-3 --nproc-per-node 8 --torchrun'
    summary = """Push the code and run it as a PyTorch process group.

Without --nproc-per-node there is one process on each node; a script that imports Lightning then starts
the others itself. The exit status is the job's. Ctrl-C leaves the job running and prints how to follow and
end it.
"""
    options = (
        COUNT,
        Option("torchrun", "start torchrun once on every node, which starts the processes", False),
        Option(
            "rdzv_backend",
            "how torchrun's nodes meet, static or c10d (default: static; c10d with a range)",
            choices=("static", "c10d"),
        ),
        Option(
            "nnodes",
            "with torchrun: the fewest and the most nodes that may take part, like 2:4; a single number must "
            "be that of the job's nodes",
        ),
        Option(
            "per_node",
            "run the line by bash, which expands all of it, once on every node: it starts the processes",
            False,
        ),
    )
    shared_help: ClassVar[Mapping[str, str]] = {
        "max-restarts": "launch it again on the same nodes after a failure, at most this often; with a range "
        "of nodes torchrun restarts its processes that often, on the nodes that are left",
    }
    no_count_notice = "one process on each node: the file has no process_count_per_instance"
    fields = frozenset({"per_node"})

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Raise :class:`~launch.errors.InputError` for options that contradict each other."""
        torchrun = options["torchrun"]
        if torchrun and options["per_node"]:
            raise InputError("--per-node", None, "cannot be combined with --torchrun", "give one of the two")
        for flag, value in (("--rdzv-backend", options["rdzv_backend"]), ("--nnodes", options["nnodes"])):
            if value is not None and not torchrun and not (flag == "--nnodes" and whole(value) is not None):
                raise InputError(flag, value, "needs --torchrun", "add --torchrun, or leave it out")

    def start(self, count: Count, command: str | Sequence[str], source: str | None, /) -> Start:
        """Return which processes are started: none beside the command's own, where it starts them."""
        if count in (None, 1):
            reason = starts_own_processes(command, source if count is None else None)
            if reason is not None:
                return Start(True, None, (f"one process on each node: {reason}",))
        return super().start(count, command, source)

    def start_line(self, line: Line) -> LineStart:
        """Return what a command line starts: torchrun, the line as it is on each node, or ranks."""
        nnodes = _range(line.options["nnodes"], len(line.slots))
        if line.options["torchrun"]:
            return self._torchrun(line, nnodes)
        if line.options["per_node"]:
            # As it is: the nodes' shell expands $NODE_RANK and its like.
            is_script = len(line.words) == 1 and line.text.endswith((".py", ".sh"))
            command = line.words if is_script else (line.text,)
            return LineStart(Start(True, None), command, shell=not is_script)
        return super().start_line(line)

    @staticmethod
    def _torchrun(line: Line, nnodes: str | None) -> LineStart:
        launcher = starts_own_processes(line.words)
        if launcher is not None:
            problem = f"cannot be combined with this command: {launcher}"
            raise InputError("--torchrun", None, problem, "leave one of them out")
        if line.options[COUNT.name] == "auto" and len(set(line.slots)) > 1:
            problem = "torchrun starts as many on every node, and their slots differ"
            raise InputError("--nproc-per-node", "auto", problem, "give a number")
        argv = torchrun_argv(
            len(line.slots),
            line.count or 1,
            line.words,
            line.python,
            rdzv_backend=line.options["rdzv_backend"] or ("static" if nnodes is None else "c10d"),
            nnodes=nnodes,
            max_restarts=line.max_restarts,
        )
        # over a range of nodes torchrun itself restarts the processes
        return LineStart(Start(True, None), argv, fields={"max_restarts": 0} if nnodes else {})

    def fewest_nodes(self, command: str | Sequence[str]) -> int | None:
        """Return with how few nodes a torchrun in the command goes on."""
        return fewest_nodes(command)

    def defaults(self, spec: Spec) -> dict[str, str]:
        """Return variables for ranks that torchrun may start again."""
        line: str | tuple[str, ...] = spec.command[0] if spec.shell else spec.command
        again = spec.min_nodes is not None or (spec.per_node and starts_ranks_again(line))
        return ELASTIC_ENV if again else {}


def _range(nnodes: str | None, nodes: int) -> str | None:
    """Return how many nodes may take part, where that is not simply all; a fixed number must be theirs."""
    if nnodes is None or whole(nnodes) is None:
        return nnodes
    remedy = "write it like 4 or 2:4"
    wanted = bounded("--nnodes", nnodes, 1, MOST, problem="is not a number of nodes", remedy=remedy)
    if wanted != nodes:
        fewer = f"choose {wanted} of them" if wanted < nodes else "choose others"
        remedy = f"{fewer} with --nodes, or leave --nnodes out"
        raise InputError("--nnodes", nnodes, f"the job has {counted(nodes, 'node')}", remedy)
    return None


def torchrun_argv(
    nodes: int,
    processes_per_node: int,
    command: tuple[str, ...],
    python: str = "python3",
    *,
    rdzv_backend: Rendezvous = "static",
    nnodes: str | None = None,
    max_restarts: int = 0,
) -> tuple[str, ...]:
    """Return torchrun's command line, whose variables are expanded on each node.

    A ``python`` other than the default brings its own torchrun.

    A static rendezvous goes by NODE_RANK, one of c10d's by arrival, with as many nodes as ``nnodes``
    (``2:4``) allows. Left to itself, c10d publishes names, and hangs where they do not resolve
    (pytorch/pytorch#150532): so every node gives its address, and which one is the head. Over a range
    torchrun itself restarts the processes, ``max_restarts`` times; with a fixed number of nodes the job is
    launched again instead, which also helps when it is torchrun that ends.

    >>> torchrun_argv(4, 2, ("train.py",))[:7]
    ('torchrun', '--nnodes', '4', '--nproc-per-node', '2', '--node-rank', '$NODE_RANK')
    >>> torchrun_argv(4, 2, ("train.py",), rdzv_backend="c10d", nnodes="2:4")[1:7]
    ('--nnodes', '2:4', '--nproc-per-node', '2', '--rdzv-backend', 'c10d')

    Raise :class:`~launch.errors.InputError` when there is no script to run, and for a range that the nodes
    are not in or that the rendezvous cannot have.
    """
    if not command:
        raise InputError("command", None, "is empty", "give the script to run, e.g. train.py --epochs 3")
    options = (
        *("--nnodes", _nodes(nodes, nnodes, rdzv_backend)),
        *("--nproc-per-node", str(processes_per_node)),
        *RENDEZVOUS[rdzv_backend],
        *(("--max-restarts", str(max_restarts)) if nnodes is not None and max_restarts else ()),
    )
    script = command if command[0].endswith(".py") else ("--no-python", *command)
    interpreter = "python" if python_folder(python) else python
    if "/" in python:
        return (interpreter, "-u", "-m", "torch.distributed.run", *options, *script)
    return ("torchrun", *options, *script)


RENDEZVOUS: Mapping[str, tuple[str, ...]] = {
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
"""Options by which the nodes of a torchrun meet."""


def _nodes(nodes: int, nnodes: str | None, rdzv_backend: Rendezvous) -> str:
    if rdzv_backend not in RENDEZVOUS:
        raise InputError("rdzv_backend", rdzv_backend, "is not a known rendezvous", "use static or c10d")
    if nnodes is None:
        return str(nodes)
    match = _RANGE.fullmatch(nnodes)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise InputError("nnodes", nnodes, "is not a range of nodes", "write it like 2:4")
    if rdzv_backend == "static":
        raise InputError("nnodes", nnodes, "needs a rendezvous that accepts nodes one by one", "use c10d")
    if not int(match[1]) <= nodes <= int(match[2]):
        problem = f"does not include the {counted(nodes, 'node')} of the job"
        raise InputError("nnodes", nnodes, problem, "choose other nodes or widen the range")
    return nnodes


def fewest_nodes(command: Command) -> int | None:
    """Return with how few nodes a torchrun goes on; None when it needs a fixed number, or if that is unknown.

    ``command`` is a shell line or an argv.

    >>> fewest_nodes("cd src && torchrun --nnodes=2:4 train.py"), fewest_nodes("torchrun --nnodes 4 train.py")
    (2, None)
    >>> fewest_nodes(["python", "-m", "torch.distributed.run", "--nnodes", "2:4", "train.py"])
    2
    """
    for given in _torchruns(command):
        match = _RANGE.fullmatch(given.get("nnodes", ""))
        if match is not None and int(match[1]) < int(match[2]):
            return int(match[1])
    return None


def starts_ranks_again(command: Command) -> bool:
    """Return whether a torchrun may start its processes again at a rendezvous of c10d's.

    ``command`` is a shell line or an argv.

    >>> starts_ranks_again("torchrun --nnodes 2 --rdzv-backend c10d --max-restarts=3 train.py")
    True
    >>> starts_ranks_again("torchrun --nnodes 2 --max-restarts 3 train.py")
    False
    """
    return any(
        given.get("rdzv-backend") == "c10d" and given.get("max-restarts", "0") != "0"
        for given in _torchruns(command)
    )


def _torchruns(command: Command) -> list[Mapping[str, str]]:
    return [torchrun_options(one.words).given for one in launches(command) if one.name in TORCHRUNS]
