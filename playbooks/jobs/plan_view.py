"""A job's plan as text: every command, on which nodes and with which variables."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from launch.environment.environment_request import environment_text
from launch.job.rank_env import job_paths
from launch.job.spec import GRACE_S, HEALTH
from launch.nodeset import fold, ranges
from launch.numbers import counted
from launch.remote.base.messages import size
from launch.remote.base.records import DataRecord

if TYPE_CHECKING:
    from pathlib import Path

    from launch.code.snapshot import Snapshot
    from launch.job.plan import JobPlan, NodePlan, RankPlan

__all__ = ["plan_text"]

_BYTES_PER_MIB = 1 << 20
_HEALTH = {
    "strict": "strict: an error at a node refuses the job",
    "off": "off: nobody looks at the nodes",
    "warn": "what is wrong with a node is shown, and the job starts",
}
_PROBE = {
    True: "before any rank starts: only InfiniBand between nodes will do",
    False: "off: nothing proves InfiniBand between nodes",
}
_IDENTITY = "ranks, and all else that runs as their user meanwhile, may act as the nodes' identity"
_HIDDEN = "(value not shown)"


def plan_text(
    planned: JobPlan,
    snapshot: Snapshot,
    data: Mapping[Path, Snapshot] | None = None,
    notices: Sequence[str] = (),
    kind: str | None = None,
) -> str:
    """Return what ``launch`` would do, one fact a line; ``--json`` prints the same for programs.

    ``data`` are the snapshots of the job's inputs by their path, ``kind`` replaces the plan's own word. The
    head chooses MASTER_PORT, TensorFlow's ports and the MPI when the job starts: the ports here hold if the
    first one is free, and the command lines are those of every MPI that the head may have.
    """
    lines = [
        *_facts(planned, snapshot, data or {}, kind),
        *(f"note       {notice}" for notice in notices),
        "",
        "hostfile",
        *(f"  {line}" for line in planned.hostfile.splitlines()),
        *_environment(planned),
    ]
    return "\n".join(lines)


def _facts(
    planned: JobPlan, snapshot: Snapshot, data: Mapping[Path, Snapshot], kind: str | None
) -> list[str]:
    spec = planned.spec
    nodes = [node.node.name for node in planned.nodes]
    facts = [
        ("job", planned.id),
        ("kind", kind or spec.kind + (", run once on each node" if spec.per_node else "")),
        ("snapshot", f"{snapshot.id}: {_amount(snapshot)}"),
    ]
    if snapshot.entries:
        facts.append(("from", str(snapshot.root)))
    facts += [("data", f"{path}: snapshot {found.id}, {_amount(found)}") for path, found in data.items()]
    facts += [
        ("data", f"{one['name']}: {one['url']}, staged {_place_of(one)} before") for one in planned.data
    ]
    facts += [
        ("head", f"{planned.head.name} ({planned.head.private_ip})"),
        ("nodes", fold(nodes)),
        ("processes", f"{planned.world_size}: {_ranks_text(planned)}"),
        ("in", _at_home(planned.cwd, planned)),
    ]
    if spec.environment is not None:
        facts.append(("runs in", environment_text(spec.environment)))
    if spec.python != "python3":
        facts.append(("python", spec.python))
    if spec.setup:
        facts.append(("setup", spec.setup))
    if spec.requires:
        facts.append(("needs", ", ".join(spec.requires)))
    if spec.shm_bytes:
        facts.append(("memory", f"at least {spec.shm_bytes / _BYTES_PER_MIB:.0f} MiB that processes share"))
    limits = {"limit": spec.timeout_s, "hangs after": spec.hang_after_s}
    facts += [(name, f"{seconds:g} s") for name, seconds in limits.items() if seconds]
    facts += [("metric", f"{name}: {pattern}") for name, pattern in spec.metrics.items()]
    if spec.max_restarts:
        facts.append(("restarts", f"up to {spec.max_restarts} after a failure, on the same nodes"))
    if spec.health != HEALTH:
        facts.append(("health", _HEALTH[spec.health]))
    facts += [("probe", words) for wanted, words in _PROBE.items() if wanted is spec.probe]
    if not spec.flight_recorder:
        facts.append(("recorder", "PyTorch's flight recorder is left alone"))
    facts += [("identity", _IDENTITY)] * spec.identity
    if spec.min_nodes:
        facts.append(("fewest", f"continues with {counted(spec.min_nodes, 'node')} when others are lost"))
    if spec.grace_s != GRACE_S:
        facts.append(("grace", f"{spec.grace_s:g} s"))
    folder = f"{spec.home}/.ranklift/jobs/{planned.id}"
    outputs = job_paths(folder)["RANKLIFT_OUTPUT_DIR"]
    facts += [("output", f"{name} ({asset}): {outputs}/{name}") for name, asset in spec.outputs.items()]
    facts.append(("command", shlex.join(planned.argv)))
    files = {name: f"{folder}/{name}" for name in ("hostfile", "machinefile")}
    for name, line in planned.mpirun.items():
        typed = [files.get(word[1:-1], word) if word.startswith("{") else word for word in line.words]
        facts.append((name, shlex.join(typed)))
    return [f"{what:<10} {text}" for what, text in facts]


def _environment(planned: JobPlan) -> list[str]:
    user = dict(planned.spec.env)
    paths = {key: _at_home(path, planned) for key, path in planned.paths.items()}
    lines = ["", "environment of every rank"]
    lines += _pairs({**planned.defaults, **planned.env, **paths, **dict.fromkeys(user)})
    files = {key: path for key, path in planned.files.items() if key not in user}
    if files:
        lines += ["", "where the node has that file", *_pairs(files)]
    lines += ["", "environment of one node's ranks"]
    lines += [f"  {node.node.name}  {_row(node.env, user)}" for node in planned.nodes]
    ranks = [
        (given.rank, node.node.name, {**given.env, **_from_mpi(planned, node, given)})
        for node in planned.nodes
        for given in node.ranks
    ]
    if any(env for _, _, env in ranks):
        width = len(str(planned.world_size - 1))
        lines += ["", "environment of one rank"]
        lines += [f"  {rank:>{width}}  {name}  {_row(env, user)}" for rank, name, env in ranks]
    return lines


def _from_mpi(planned: JobPlan, node: NodePlan, given: RankPlan) -> dict[str, str]:
    """Return variables under Open MPI's names that ranks of every MPI get (guide G4)."""
    if not planned.mpirun:
        return {}
    return {
        "OMPI_COMM_WORLD_RANK": str(given.rank),
        "OMPI_COMM_WORLD_SIZE": str(planned.world_size),
        "OMPI_COMM_WORLD_LOCAL_RANK": str(given.local_rank),
        "OMPI_COMM_WORLD_LOCAL_SIZE": str(len(node.ranks)),
    }


def _pairs(variables: Mapping[str, str | None]) -> Iterable[str]:
    """Return a line for each variable; without the value of a user's (None here), which may be secret."""
    return (
        f"  {key}={_HIDDEN if value is None else shlex.quote(value)}"
        for key, value in sorted(variables.items())
    )


def _row(variables: Mapping[str, str], user: Mapping[str, str]) -> str:
    return " ".join(f"{key}={shlex.quote(value)}" for key, value in variables.items() if key not in user)


def _at_home(path: str, planned: JobPlan) -> str:
    return planned.spec.home + path[1:] if path.startswith("~") else path


def _place_of(data: DataRecord) -> str:
    return f"in {data['path']}" if data["path"] else "on every node"


def _amount(snapshot: Snapshot) -> str:
    return f"{counted(len(snapshot.entries), 'file')}, {size(snapshot.size)}"


def _ranks_text(planned: JobPlan) -> str:
    parts = []
    for node in planned.nodes[:4]:
        parts.append(f"{ranges(given.rank for given in node.ranks) or 'none'} on {node.node.name}")
    return ", ".join(parts) + (", …" if len(planned.nodes) > len(parts) else "")
