"""``launch.mpi`` and ``launch.torch``: push the code, hand the job over, show what its ranks say."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from invoke.context import Context
from invoke.exceptions import Exit

from infra.inventory import Inventory, Node
from launch.errors import InputError, ManyNodesError
from launch.nodeset import fold
from playbooks import render
from playbooks.command import choose_nodes, command, open_from, seconds
from playbooks.joblog import Shown, end, remember
from playbooks.nodes import explained, source_folder
from playbooks.project import Stack

if TYPE_CHECKING:
    from launch.plan import JobPlan
    from launch.snapshot import Snapshot
    from launch.spec import JobSpec

__all__ = ["Request", "mpi", "plan_text", "torch", "variables", "words"]

_HELP = {
    "line": "script and arguments, in quotes; paths are relative to what is pushed",
    "nproc-per-node": "processes on each node, or `auto` for one per slot (default: 1)",
    "env": "NAME=VALUE for every rank; may be repeated",
    "source": "the folder to push (default: the repository around the current folder, else that folder)",
    "name": "part of the job's id (default: the script's name)",
    "detach": "return once the job is on the head",
    "timeout": "the job's own limit from its start: 90, 90s, 10m or 2h (default: none)",
    "python": "the nodes' Python (default: python3)",
    "json": "print the job's last state as JSON; the ranks' lines go to stderr",
}
_MPI = 'fab launch.mpi "train.py --epochs 5" --nodes 0-3 --nproc-per-node 8'
_TORCH = 'fab launch.torch "train.py --epochs 5" --nodes 0-3 --nproc-per-node 8 --torchrun'


@dataclass(frozen=True, slots=True)
class Request:
    """What every kind of launch takes from its command line."""

    line: str
    nodes: str | None
    stack: str | None
    nproc_per_node: str
    env: Sequence[str]
    source: str | None
    name: str | None
    python: str
    timeout: str | None
    detach: bool
    json: bool
    dry_run: bool


@command("mpi", example=_MPI, help=_HELP, iterable=["env"], positional=["line"])
def mpi(  # noqa: PLR0913, PLR0917
    context: Context,
    line: str,
    nodes: str | None = None,
    stack: str | None = None,
    nproc_per_node: str = "1",
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
    request = Request(
        line, nodes, stack, nproc_per_node, env or (), source, name, python, timeout, detach, json, dry_run
    )
    _launch(context, request, "mpi")


@command(
    "torch",
    example=_TORCH,
    help={
        **_HELP,
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
    nproc_per_node: str = "1",
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

    The exit status is the job's. Ctrl-C leaves the job running and says how to follow and end it.
    """
    if torchrun and per_node:
        raise InputError("--per-node", None, "goes not with --torchrun", "give one of the two")
    request = Request(
        line, nodes, stack, nproc_per_node, env or (), source, name, python, timeout, detach, json, dry_run
    )
    _launch(context, request, "torchrun" if torchrun else "per-node" if per_node else "pytorch")


def _launch(context: Context, request: Request, how: str) -> None:
    from launch.plan import plan
    from launch.push import remote_code
    from launch.snapshot import plan_snapshot
    from launch.spec import JobNode

    stack = open_from(context, request.stack)
    inventory = stack.saved()
    nodes = choose_nodes(inventory, request.nodes)
    snapshot = plan_snapshot(source_folder(request.source), stack.hashes)
    planned = plan(
        _spec(request, how, nodes, snapshot.id),
        [JobNode(node.name, node.private_ip, node.slots) for node in nodes],
        size=inventory.size,
        remote=remote_code()[0],
        files={entry.path for entry in snapshot.entries},
    )
    if request.dry_run:
        if request.json:
            render.as_json(planned.as_dict())
        else:
            render.result(plan_text(planned, snapshot))
        return
    _run(stack, inventory, nodes, snapshot, planned, request)


def _run(
    stack: Stack,
    inventory: Inventory,
    nodes: Sequence[Node],
    snapshot: Snapshot,
    planned: JobPlan,
    request: Request,
) -> None:
    from launch.client import submit, submit_and_follow
    from launch.push import push
    from playbooks.connections import Cluster

    job, head = planned.id, nodes[0]
    with Cluster(inventory, stack.folder) as cluster:
        try:
            report = push(snapshot, cluster.host(head), nodes)
        except ManyNodesError as error:
            raise explained(inventory, ManyNodesError("the push before the job", error.results)) from None
        sent = render.amount(report.bytes_sent)
        render.progress(f"snapshot {report.snapshot}: {sent} sent in {report.seconds:.1f} s")
        remember(stack, job, head.name, PurePosixPath(planned.remote).name)
        if request.detach:
            submit(planned, cluster.host(head))
            if request.json:
                render.as_json({"job": job, "head": head.name})
            else:
                render.result(job)
            render.progress(_how_to_go_on(stack, job))
            return
        shown = Shown(to_stderr=request.json)
        try:
            state = submit_and_follow(planned, cluster.host(head), shown)
        except KeyboardInterrupt:
            render.progress(f"\njob {job} goes on without you\n{_how_to_go_on(stack, job)}")
            raise Exit(code=130) from None
    if request.json:
        render.as_json(state)
    end(state)


def _how_to_go_on(stack: Stack, job: str) -> str:
    choices = (("follow", f"logs -f {job}"), ("cancel", f"cancel {job}"), ("fetch", f"collect {job}"))
    return "\n".join(f"  {what}: fab {words} --stack {stack.name}" for what, words in choices)


def _spec(request: Request, how: str, nodes: Sequence[Node], snapshot: str) -> JobSpec:
    from launch.spec import JobSpec
    from launch.torch import torch_launcher_argv

    command_line = words("line", request.line)
    processes = _processes(request.nproc_per_node, nodes)
    argv = command_line
    if how == "torchrun":
        argv = torch_launcher_argv("torchrun", len(nodes), processes, command_line, request.python)
    elif how == "per-node":
        # As it is: the nodes' shell expands $NODE_RANK and its like.
        argv = (request.line,)
    return JobSpec(
        name=request.name or _name(command_line),
        kind="mpi" if how == "mpi" else "pytorch",
        command=argv,
        shell=how == "per-node" and not (len(command_line) == 1 and request.line.endswith((".py", ".sh"))),
        per_node=how in ("torchrun", "per-node"),
        processes_per_node=None if how in ("torchrun", "per-node") else processes,
        env=variables(request.env),
        snapshot=snapshot,
        python=request.python,
        timeout_s=None if request.timeout is None else seconds("--timeout", request.timeout),
    )


def words(key: str, line: str) -> tuple[str, ...]:
    """A command line as its words, quotes read as a shell reads them; nothing is expanded.

    >>> words("line", "train.py --name 'a b' --rank $LOCAL_RANK")
    ('train.py', '--name', 'a b', '--rank', '$LOCAL_RANK')

    Raises :class:`~launch.errors.InputError` for quotes that do not close.
    """
    try:
        return tuple(shlex.split(line))
    except ValueError as error:
        raise InputError(key, line, str(error).lower(), "close every quote") from None


def variables(pairs: Sequence[str]) -> Mapping[str, str]:
    """``NAME=VALUE`` pairs as a mapping; values may hold anything.

    >>> variables(["A=1", "B=x=y z"])
    {'A': '1', 'B': 'x=y z'}

    Raises :class:`~launch.errors.InputError` for a pair without ``=`` or a name given twice.
    """
    found: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise InputError("--env", pair, "is no NAME=VALUE", "write it like --env LR=0.1")
        if name in found:
            raise InputError("--env", pair, f"sets {name} a second time", "give each name once")
        found[name] = value
    return found


def _processes(text: str, nodes: Sequence[Node]) -> int:
    slots = min(node.slots for node in nodes)
    if text == "auto":
        return slots
    if not text.isdecimal() or int(text) < 1:
        raise InputError("--nproc-per-node", text, "is no number of processes", "give 1 or more, or auto")
    if int(text) > slots:
        small = next(node.name for node in nodes if node.slots == slots)
        raise InputError("--nproc-per-node", int(text), f"{small} has {slots} slots", f"give at most {slots}")
    return int(text)


def _name(argv: Sequence[str]) -> str:
    script = next((word for word in argv if word.endswith((".py", ".sh"))), argv[0] if argv else "job")
    return PurePosixPath(script).stem


def plan_text(planned: JobPlan, snapshot: Snapshot) -> str:
    """The plan for people: where, what, with which variables. ``--json`` has all of it."""
    lines = [
        f"job       {planned.id}",
        f"snapshot  {snapshot.id}: {len(snapshot.entries)} files, {render.amount(snapshot.size)}",
        f"from      {snapshot.root}",
        f"head      {planned.head.name} ({planned.head.private_ip})",
        f"nodes     {fold(node.node.name for node in planned.nodes)}",
        f"processes {planned.world_size}: " + _ranks_text(planned),
        f"in        {planned.cwd}",
        f"command   {shlex.join(planned.argv)}",
    ]
    lines += [f"{name:<9} {shlex.join(line.words)}" for name, line in planned.mpirun.items()]
    lines += [f"env       {key}={shlex.quote(value)}" for key, value in planned.environment(0).items()]
    return "\n".join(lines)


def _ranks_text(planned: JobPlan) -> str:
    parts = []
    for node in planned.nodes[:4]:
        first, last = node.ranks[0].rank, node.ranks[-1].rank
        parts.append(f"{first if first == last else f'{first}-{last}'} on {node.node.name}")
    return ", ".join(parts) + (", …" if len(planned.nodes) > len(parts) else "")
