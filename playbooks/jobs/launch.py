"""``launch.mpi``, ``launch.torch`` and ``launch.tensorflow``: a script and its arguments, no job file."""

from __future__ import annotations

from invoke.context import Context

from launch.errors import InputError
from launch.numbers import whole
from playbooks.cli.options import number, restarts_flag, words
from playbooks.cli.task import choose_nodes, command, open_from
from playbooks.jobs.job_options import Kind, Request, job_spec
from playbooks.jobs.submit import Handling, Identity, Load, hand_over, home_of, planned_as
from playbooks.nodes.push import key_numbers, source_folder

__all__ = ["mpi", "tensorflow", "torch"]

_HELP = {
    "line": "script and arguments, in quotes; paths are relative to what is pushed",
    "env": "a variable for every rank: NAME=VALUE, or NAME for its value here; may be repeated",
    "source": "the folder to push (default: the repository around the current folder, else that folder)",
    "name": "part of the job's id (default: the script's name)",
    "detach": "return once the job is on the head",
    "timeout": "the job's own limit from its start, restarts included: 90, 90s, 10m or 2h (default: none)",
    "max-restarts": "launch it anew on the same nodes after a failure, at most this often",
    "grace": "time between SIGTERM and SIGKILL when its processes are ended: 90, 90s, 10m (default: 3s)",
    "cancel-on-interrupt": "Ctrl-C ends the job too (default: it goes on)",
    "python": "the nodes' Python, or the folder of an environment on them (default: python3)",
    "json": "print the job's last state as JSON; the ranks' lines go to stderr",
}
_PROCESSES = {"nproc-per-node": "processes on each node, or `auto` for one per slot (default: 1)"}
_MPI = 'fab launch.mpi "train.py --epochs 5" --nodes 0-3 --nproc-per-node 8'
_TORCH = 'fab launch.torch "train.py --epochs 5" --nodes 0-3 --nproc-per-node 8 --torchrun'
_TENSORFLOW = 'fab launch.tensorflow "train.py --epochs 5" --nodes 0-3'


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
    max_restarts: str | None = None,
    grace: str | None = None,
    cancel_on_interrupt: bool = False,
    detach: bool = False,
    json: bool = False,
    dry_run: bool = False,
) -> None:
    """Pushes the code and runs it under mpirun.

    The exit status is the job's. Ctrl-C leaves the job running and says how to follow and end it.
    """
    handling = Handling(detach, json, dry_run, cancel_on_interrupt)
    request = Request(
        line,
        nodes,
        stack,
        env or (),
        source,
        name,
        python,
        timeout,
        handling,
        restarts_flag(max_restarts) or 0,
        grace,
    )
    extra = words("--mpirun-args", mpirun_args or "")
    _launch(context, request, Kind("mpi", nproc_per_node, flavour=mpi, mpi_args=extra))


@command(
    "torch",
    example=_TORCH,
    help={
        **_HELP,
        **_PROCESSES,
        "max-restarts": "launch it anew on the same nodes after a failure, at most this often; with a range "
        "of nodes torchrun restarts its processes that often, on the nodes that are left",
        "torchrun": "start torchrun once on every node, which starts the processes",
        "rdzv-backend": "how torchrun's nodes meet, static or c10d (default: static; c10d with a range)",
        "nnodes": "with torchrun: the fewest and the most nodes that may take part, like 2:4; a single "
        "number must be that of the job's nodes",
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
    rdzv_backend: str | None = None,
    nnodes: str | None = None,
    per_node: bool = False,
    env: list[str] | None = None,
    source: str | None = None,
    name: str | None = None,
    python: str = "python3",
    timeout: str | None = None,
    max_restarts: str | None = None,
    grace: str | None = None,
    cancel_on_interrupt: bool = False,
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
        raise InputError("--per-node", None, "does not go with --torchrun", "give one of the two")
    for flag, value in (("--rdzv-backend", rdzv_backend), ("--nnodes", nnodes)):
        if value is not None and not torchrun and not (flag == "--nnodes" and whole(value) is not None):
            raise InputError(flag, value, "is for torchrun", "add --torchrun, or leave it out")
    handling = Handling(detach, json, dry_run, cancel_on_interrupt)
    request = Request(
        line,
        nodes,
        stack,
        env or (),
        source,
        name,
        python,
        timeout,
        handling,
        restarts_flag(max_restarts) or 0,
        grace,
    )
    kind = Kind(
        "pytorch",
        nproc_per_node,
        torchrun=torchrun,
        per_node=per_node,
        rdzv_backend=rdzv_backend,
        nnodes=nnodes,
    )
    _launch(context, request, kind)


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
    workers: str = "0",
    parameter_servers: str = "0",
    chief: bool = False,
    env: list[str] | None = None,
    source: str | None = None,
    name: str | None = None,
    python: str = "python3",
    timeout: str | None = None,
    max_restarts: str | None = None,
    grace: str | None = None,
    cancel_on_interrupt: bool = False,
    detach: bool = False,
    json: bool = False,
    dry_run: bool = False,
) -> None:
    """Pushes the code and runs it as the tasks of a TensorFlow cluster, each with its TF_CONFIG.

    The exit status is the job's. Ctrl-C leaves the job running and says how to follow and end it.
    """
    handling = Handling(detach, json, dry_run, cancel_on_interrupt)
    request = Request(
        line,
        nodes,
        stack,
        env or (),
        source,
        name,
        python,
        timeout,
        handling,
        restarts_flag(max_restarts) or 0,
        grace,
    )
    from launch.job.spec import MOST_SERVERS

    kind = Kind(
        "tensorflow",
        workers=number("--workers", workers, "workers") or None,
        parameter_servers=number(
            "--parameter-servers", parameter_servers, "parameter servers", high=MOST_SERVERS
        ),
        chief=chief,
    )
    _launch(context, request, kind)


def _launch(context: Context, request: Request, kind: Kind) -> None:
    from launch.code.snapshot import plan_snapshot

    stack = open_from(context, request.stack)
    inventory = stack.saved()
    nodes = choose_nodes(inventory, request.nodes)
    snapshot = plan_snapshot(source_folder(request.source), stack.hashes, key_numbers(stack))
    files = {entry.path for entry in snapshot.entries}
    spec, notices = job_spec(request, kind, nodes, snapshot.id, snapshot.root, home_of(inventory.user))
    identity = Identity()
    planned = planned_as(identity, spec, inventory.size, nodes, files)
    hand_over(stack, inventory, nodes, planned, Load(snapshot), request.handling, notices)
