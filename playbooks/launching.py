"""``launch.mpi``, ``launch.torch`` and ``launch.tensorflow``: a script and its arguments, no job file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Literal, cast, get_args

from invoke.context import Context

from infra.inventory import Node
from launch.errors import InputError
from playbooks.command import choose_nodes, command, open_from, seconds
from playbooks.handover import Handling, Identity, Load, hand_over, home_of
from playbooks.nodes import source_folder
from playbooks.options import processes_flag, variables, words

if TYPE_CHECKING:
    from launch.spec import Flavour, JobSpec

__all__ = ["Request", "mpi", "tensorflow", "torch"]

_HELP = {
    "line": "script and arguments, in quotes; paths are relative to what is pushed",
    "env": "a variable for every rank; may be repeated",
    "source": "the folder to push (default: the repository around the current folder, else that folder)",
    "name": "part of the job's id (default: the script's name)",
    "detach": "return once the job is on the head",
    "timeout": "the job's own limit from its start: 90, 90s, 10m or 2h (default: none)",
    "python": "the nodes' Python, or the folder of an environment on them (default: python3)",
    "json": "print the job's last state as JSON; the ranks' lines go to stderr",
}
_PROCESSES = {"nproc-per-node": "processes on each node, or `auto` for one per slot (default: 1)"}
_MPI = 'fab launch.mpi "train.py --epochs 5" --nodes 0-3 --nproc-per-node 8'
_TORCH = 'fab launch.torch "train.py --epochs 5" --nodes 0-3 --nproc-per-node 8 --torchrun'
_TENSORFLOW = 'fab launch.tensorflow "train.py --epochs 5" --nodes 0-3'


@dataclass(frozen=True, slots=True)
class Request:
    """What every kind of launch takes from its command line."""

    line: str
    nodes: str | None
    stack: str | None
    env: Sequence[str]
    source: str | None
    name: str | None
    python: str
    timeout: str | None
    handling: Handling


@dataclass(frozen=True, slots=True)
class _Kind:
    """What one kind of launch takes beside."""

    kind: Literal["mpi", "pytorch", "tensorflow"]
    nproc_per_node: str | None = None
    torchrun: bool = False
    per_node: bool = False
    flavour: str | None = None
    mpi_args: tuple[str, ...] = ()
    workers: int | None = None
    parameter_servers: int = 0
    chief: bool = False


@command(
    "mpi",
    example=_MPI,
    help={
        **_HELP,
        **_PROCESSES,
        "mpi": "which MPI: openmpi, mpich or intelmpi (default: what the head has)",
        "mpirun-args": "further arguments for mpirun, in quotes",
    },
    iterable=["env"],
    positional=["line"],
)
def mpi(  # noqa: PLR0913, PLR0917
    context: Context,
    line: str,
    nodes: str | None = None,
    stack: str | None = None,
    nproc_per_node: str | None = None,
    mpi: str | None = None,
    mpirun_args: str | None = None,
    env: list[str] | None = None,
    source: str | None = None,
    name: str | None = None,
    python: str = "python3",
    timeout: str | None = None,
    detach: bool = False,
    json: bool = False,
    dry_run: bool = False,
) -> None:
    """Pushes the code and runs it under mpirun.

    The exit status is the job's. Ctrl-C leaves the job running and says how to follow and end it.
    """
    handling = Handling(detach, json, dry_run)
    request = Request(line, nodes, stack, env or (), source, name, python, timeout, handling)
    extra = words("--mpirun-args", mpirun_args or "")
    _launch(context, request, _Kind("mpi", nproc_per_node, flavour=mpi, mpi_args=extra))


@command(
    "torch",
    example=_TORCH,
    help={
        **_HELP,
        **_PROCESSES,
        "torchrun": "start torchrun once on every node, which starts the processes",
        "per-node": "run the line once on every node as it is: it starts the processes itself",
    },
    iterable=["env"],
    positional=["line"],
)
def torch(  # noqa: PLR0913, PLR0917
    context: Context,
    line: str,
    nodes: str | None = None,
    stack: str | None = None,
    nproc_per_node: str | None = None,
    torchrun: bool = False,
    per_node: bool = False,
    env: list[str] | None = None,
    source: str | None = None,
    name: str | None = None,
    python: str = "python3",
    timeout: str | None = None,
    detach: bool = False,
    json: bool = False,
    dry_run: bool = False,
) -> None:
    """Pushes the code and runs it as a PyTorch process group.

    Without --nproc-per-node there is one process on each node; a script that imports Lightning then starts
    the others itself. The exit status is the job's. Ctrl-C leaves the job running and says how to follow and
    end it.
    """
    if torchrun and per_node:
        raise InputError("--per-node", None, "goes not with --torchrun", "give one of the two")
    handling = Handling(detach, json, dry_run)
    request = Request(line, nodes, stack, env or (), source, name, python, timeout, handling)
    _launch(context, request, _Kind("pytorch", nproc_per_node, torchrun=torchrun, per_node=per_node))


@command(
    "tensorflow",
    example=_TENSORFLOW,
    help={
        **_HELP,
        "workers": "how many workers there are in all (default: one on each node)",
        "parameter-servers": "how many parameter servers there are in all (default: none)",
        "chief": "whether one task is the chief",
    },
    iterable=["env"],
    positional=["line"],
)
def tensorflow(  # noqa: PLR0913, PLR0917
    context: Context,
    line: str,
    nodes: str | None = None,
    stack: str | None = None,
    workers: int = 0,
    parameter_servers: int = 0,
    chief: bool = False,
    env: list[str] | None = None,
    source: str | None = None,
    name: str | None = None,
    python: str = "python3",
    timeout: str | None = None,
    detach: bool = False,
    json: bool = False,
    dry_run: bool = False,
) -> None:
    """Pushes the code and runs it as the tasks of a TensorFlow cluster, each with its TF_CONFIG.

    The exit status is the job's. Ctrl-C leaves the job running and says how to follow and end it.
    """
    handling = Handling(detach, json, dry_run)
    request = Request(line, nodes, stack, env or (), source, name, python, timeout, handling)
    kind = _Kind("tensorflow", workers=workers or None, parameter_servers=parameter_servers, chief=chief)
    _launch(context, request, kind)


def _launch(context: Context, request: Request, kind: _Kind) -> None:
    from launch.plan import plan
    from launch.push import remote_code
    from launch.snapshot import plan_snapshot
    from launch.spec import JobNode

    stack = open_from(context, request.stack)
    inventory = stack.saved()
    nodes = choose_nodes(inventory, request.nodes)
    snapshot = plan_snapshot(source_folder(request.source), stack.hashes)
    files = {entry.path for entry in snapshot.entries}
    spec, notices = _spec(request, kind, nodes, snapshot.id, snapshot.root, home_of(inventory.user))
    identity = Identity()
    planned = plan(
        spec,
        [JobNode(node.name, node.private_ip, node.slots) for node in nodes],
        size=inventory.size,
        remote=remote_code()[0],
        files=files,
        now=identity.now,
        random=identity.random,
    )
    hand_over(stack, inventory, nodes, planned, Load(snapshot), request.handling, notices)


def _spec(
    request: Request, kind: _Kind, nodes: Sequence[Node], snapshot: str, root: Path, home: str
) -> tuple[JobSpec, tuple[str, ...]]:
    from launch.modules import required_modules
    from launch.spec import JobSpec

    command_line = words("line", request.line)
    source = _source(root, command_line)
    argv, shell, per_node, processes, notices = _started(request, kind, nodes, command_line, source)
    if kind.flavour is not None and kind.flavour not in _flavours():
        remedy = f"use one of {', '.join(_flavours())}"
        raise InputError("--mpi", kind.flavour, "is no MPI that is known", remedy)
    spec = JobSpec(
        name=request.name or _name(command_line),
        kind=kind.kind,
        command=argv,
        shell=shell,
        per_node=per_node,
        processes_per_node=processes,
        workers=kind.workers,
        parameter_servers=kind.parameter_servers,
        chief=kind.chief,
        mpi=cast("Flavour | None", kind.flavour),
        mpi_args=kind.mpi_args,
        env=variables(request.env),
        snapshot=snapshot,
        python=request.python,
        requires=required_modules(source) if source is not None else (),
        timeout_s=None if request.timeout is None else seconds("--timeout", request.timeout),
        home=home,
    )
    return spec, notices


def _started(
    request: Request, kind: _Kind, nodes: Sequence[Node], line: tuple[str, ...], source: str | None
) -> tuple[tuple[str, ...], bool, bool, int | None, tuple[str, ...]]:
    """The command, whether it is a shell's line, whether it starts a node's processes itself, how many of
    them are started, and what was chosen for the user."""
    from launch.modules import starts_own_processes
    from launch.torch import torch_launcher_argv

    asked = None if kind.nproc_per_node is None else _processes(kind.nproc_per_node, nodes)
    if kind.torchrun:
        argv = torch_launcher_argv("torchrun", len(nodes), asked or 1, line, request.python)
        return argv, False, True, None, ()
    if kind.per_node:
        # As it is: the nodes' shell expands $NODE_RANK and its like.
        is_script = len(line) == 1 and request.line.endswith((".py", ".sh"))
        return (line if is_script else (request.line,)), not is_script, True, None, ()
    launcher = starts_own_processes(line)
    if launcher is not None and (asked or 1) > 1:
        raise InputError(
            "--nproc-per-node", asked, f"goes not with this command: {launcher}", "leave one of them out"
        )
    if kind.kind == "pytorch":
        reason = launcher or (starts_own_processes(line, source) if asked is None else None)
        if reason is not None:
            return line, False, True, None, (f"one process on each node: {reason}",)
    return line, False, False, asked or 1, ()


def _flavours() -> tuple[str, ...]:
    from launch.spec import Flavour

    return get_args(Flavour)


def _source(root: Path, line: Sequence[str]) -> str | None:
    """The text of the script that is launched, where it is one of the code's."""
    script = next((word for word in line if word.endswith(".py")), None)
    if script is None or PurePosixPath(script).is_absolute():
        return None
    try:
        return (root / script).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def _processes(text: str, nodes: Sequence[Node]) -> int:
    asked = processes_flag(text)
    slots = min(node.slots for node in nodes)
    if asked == "auto":
        return slots
    if asked > slots:
        small = next(node.name for node in nodes if node.slots == slots)
        raise InputError("--nproc-per-node", asked, f"{small} has {slots} slots", f"give at most {slots}")
    return asked


def _name(argv: Sequence[str]) -> str:
    script = next((word for word in argv if word.endswith((".py", ".sh"))), argv[0] if argv else "job")
    return PurePosixPath(script).stem
