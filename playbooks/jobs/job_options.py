"""From a command line and its options to a job."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Literal, cast, get_args

from infra.inventory import Node
from launch.errors import InputError
from launch.numbers import counted, whole
from playbooks.cli.options import number, processes_flag, variables, words
from playbooks.cli.task import seconds
from playbooks.jobs.submit import Handling, source_text

if TYPE_CHECKING:
    from launch.job.spec import Flavour, JobSpec
    from launch.launchers.pytorch import Rendezvous

__all__ = ["Kind", "Request", "job_spec"]


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
    max_restarts: int = 0
    grace: str | None = None


@dataclass(frozen=True, slots=True)
class Kind:
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
    rdzv_backend: str | None = None
    nnodes: str | None = None


def job_spec(
    request: Request, kind: Kind, nodes: Sequence[Node], snapshot: str, root: Path, home: str
) -> tuple[JobSpec, tuple[str, ...]]:
    """The job that a line makes with its options, and what was chosen for the user.

    ``root`` is where the code is, ``snapshot`` its id, ``home`` the nodes' home folder. Raises
    :class:`~launch.errors.InputError`.
    """
    from launch.job.spec import JobSpec
    from launch.launchers.detect import required_modules, runs_under
    from launch.launchers.pytorch import fewest_nodes

    command_line = words("line", request.line)
    source = _source(root, command_line)
    argv, shell, per_node, processes, notices = _started(request, kind, nodes, command_line, source)
    fewest = fewest_nodes(argv[0] if shell else argv) if per_node else None
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
        env=variables(request.env, os.environ),
        snapshot=snapshot,
        python=request.python,
        requires=required_modules(source)
        if source is not None and runs_under(request.python, command_line)
        else (),
        timeout_s=None if request.timeout is None else seconds("--timeout", request.timeout),
        # over a range of nodes torchrun does it itself
        max_restarts=0 if kind.torchrun and _range(kind.nnodes, len(nodes)) else request.max_restarts,
        min_nodes=fewest,
        home=home,
    )
    if request.grace is not None:
        spec = replace(spec, grace_s=seconds("--grace", request.grace))
    return spec, notices


def _started(
    request: Request, kind: Kind, nodes: Sequence[Node], line: tuple[str, ...], source: str | None
) -> tuple[tuple[str, ...], bool, bool, int | None, tuple[str, ...]]:
    """The command, whether it is a shell's line, whether it starts a node's processes itself, how many of
    them are started, and what was chosen for the user."""
    from launch.launchers.detect import starts_own_processes
    from launch.launchers.pytorch import torch_launcher_argv

    asked = None if kind.nproc_per_node is None else _processes(kind.nproc_per_node, nodes)
    nnodes = _range(kind.nnodes, len(nodes))
    if kind.torchrun:
        if kind.nproc_per_node == "auto" and len({node.slots for node in nodes}) > 1:
            problem = "torchrun starts as many on every node, and their slots differ"
            raise InputError("--nproc-per-node", "auto", problem, "give a number")
        backend = kind.rdzv_backend or ("static" if nnodes is None else "c10d")
        argv = torch_launcher_argv(
            "torchrun",
            len(nodes),
            asked or 1,
            line,
            request.python,
            rdzv_backend=cast("Rendezvous", backend),
            nnodes=nnodes,
            max_restarts=request.max_restarts,
        )
        return argv, False, True, None, ()
    if kind.per_node:
        # As it is: the nodes' shell expands $NODE_RANK and its like.
        is_script = len(line) == 1 and request.line.endswith((".py", ".sh"))
        return (line if is_script else (request.line,)), not is_script, True, None, ()
    launcher = starts_own_processes(line)
    if launcher is not None and (asked or 1) > 1:
        raise InputError(
            "--nproc-per-node", asked, f"does not go with this command: {launcher}", "leave one of them out"
        )
    if kind.kind == "pytorch":
        reason = launcher or (starts_own_processes(line, source) if asked is None else None)
        if reason is not None:
            return line, False, True, None, (f"one process on each node: {reason}",)
    # One for each slot is each node's own number.
    return line, False, False, None if kind.nproc_per_node == "auto" else asked or 1, ()


def _range(nnodes: str | None, nodes: int) -> str | None:
    """How many nodes may take part, where that is not simply all; a fixed number must be theirs."""
    if nnodes is None or whole(nnodes) is None:
        return nnodes
    wanted = number("--nnodes", nnodes, "nodes", "write it like 4 or 2:4", low=1)
    if wanted != nodes:
        fewer = f"choose {wanted} of them" if wanted < nodes else "choose others"
        remedy = f"{fewer} with --nodes, or leave --nnodes out"
        raise InputError("--nnodes", nnodes, f"the job has {counted(nodes, 'node')}", remedy)
    return None


def _flavours() -> tuple[str, ...]:
    from launch.job.spec import Flavour

    return get_args(Flavour)


def _source(root: Path, line: Sequence[str]) -> str | None:
    """The text of the script that is launched, where it is one of the code's."""
    script = next((word for word in line if word.endswith(".py")), None)
    if script is None or PurePosixPath(script).is_absolute():
        return None
    return source_text(root / script)


def _processes(text: str, nodes: Sequence[Node]) -> int:
    asked = processes_flag(text)
    slots = min(node.slots for node in nodes)
    if asked == "auto":
        return slots
    if asked > slots:
        small = next(node.name for node in nodes if node.slots == slots)
        raise InputError(
            "--nproc-per-node", asked, f"{small} has {counted(slots, 'slot')}", f"give at most {slots}"
        )
    return asked


def _name(argv: Sequence[str]) -> str:
    script = next((word for word in argv if word.endswith((".py", ".sh"))), argv[0] if argv else "job")
    return PurePosixPath(script).stem
