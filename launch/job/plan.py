"""The plan of a job: everything that will be run, as data, made from a spec without I/O."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import PurePosixPath

from catalogue.sizes import fabric_settings
from launch.environment.environment_request import planned_record
from launch.errors import InputError
from launch.job.placement import NodePlan, place
from launch.job.rank_env import EXPANDED, job_environment, job_paths
from launch.job.spec import JobNode, JobSpec
from launch.launchers.base import Launcher, RankPlan
from launch.launchers.mpi import Mpi
from launch.launchers.registry import launcher_of
from launch.launchers.script import is_missing, run_script, script_on_nodes
from launch.promise import promise_of
from launch.remote.base import timing
from launch.remote.base.files import python_folder
from launch.remote.base.health_records import ProbeMode, ProbeOrder, Promise
from launch.remote.base.job_dir import PLAN_VERSION, without_values
from launch.remote.base.phase_records import Phase, PlannedPrice
from launch.remote.base.records import (
    BARE,
    Checks,
    DataRecord,
    EnvironmentRecord,
    Plan,
    ShownPlan,
)
from launch.remote.base.tf_config import FIRST_PORT
from launch.remote.mpi.base import CommandLine
from launch.remote.mpi.hostfile import hostfile_text, machinefile_text
from launch.remote.node.infiniband import has_infiniband
from launch.remote.node.work_dir import NAME as WORK

__all__ = ["JobPlan", "NodePlan", "RankPlan", "job_id", "plan"]

_NAME = re.compile(r"[^a-z0-9]+")
_WITHOUT_INFINIBAND = {"NCCL_IB_DISABLE": "1", "NCCL_NET": "Socket"}
"""Variables by which a user has NCCL do without InfiniBand."""


@dataclass(frozen=True, slots=True)
class JobPlan:
    """Everything that will be run; the head settles MASTER_PORT and slot numbers in the job's turn."""

    id: str
    spec: JobSpec
    remote: str
    """Folder of the node code under the home folder."""
    cwd: str
    argv: tuple[str, ...]
    """What each rank runs, with the variables in :data:`~launch.job.rank_env.EXPANDED` not filled in."""
    env: dict[str, str]
    """For every rank."""
    defaults: dict[str, str]
    """For every rank, giving way to the user's variables."""
    files: dict[str, str]
    """Paths for every rank on nodes where the file exists, giving way to the user's variables."""
    capability: str
    """Compute capability of the nodes' GPUs; empty without GPUs of NVIDIA, and where it is unknown."""
    infiniband: bool
    """The nodes' VM size has it; each node finds its own devices for UCX and NCCL."""
    promise: Promise
    """What the nodes' VM size promises of each of them."""
    probe: ProbeOrder
    """Whether the way between them is proven."""
    paths: dict[str, str]
    """Paths for every rank, ``~`` being the node's home folder."""
    hostfile: str
    machinefile: str
    mpirun: dict[str, CommandLine]
    """By MPI, of which the head has one; empty for jobs that need none."""
    start_limit_s: float
    nodes: tuple[NodePlan, ...]
    runs_in: EnvironmentRecord = field(default_factory=lambda: BARE)
    """What the ranks run in; without an id until it is made."""
    data: tuple[DataRecord, ...] = ()
    """Data that was staged for the job."""
    snapshots: tuple[str, ...] = ()
    """Ids of all that is pushed for the job, the code among it."""
    stages: tuple[Phase, ...] = ()
    """What was brought to the nodes before the job, in seconds since it is submitted."""
    py_spy: str = ""
    """Path below the nodes' home folder of the program that reads Python's stacks; empty without one."""
    identity: str = field(default="", repr=False)
    """Signed request for the nodes' identity (:mod:`launch.job.identity_request`); empty until then."""
    node_price: PlannedPrice | None = None
    """List price of each node, by which the head knows the job's cost; None where it is unknown."""

    @property
    def python(self) -> str:
        """The Python of the ranks: the folder of an environment that is made, else what the spec names."""
        made = self.runs_in["path"] if self.runs_in["kind"] == "python" else ""
        return made or self.spec.python

    def in_environment(self, record: EnvironmentRecord, variables: Mapping[str, str]) -> JobPlan:
        """Return the plan of the same job in an environment that was made, and that sets ``variables``."""
        is_venv = record["kind"] == "python" and "CONDA_PREFIX" not in variables
        paths = {"VIRTUAL_ENV": record["path"]} if is_venv else {}
        return replace(self, runs_in=record, env={**variables, **self.env}, paths={**self.paths, **paths})

    @property
    def launcher(self) -> Launcher:
        """The launcher of the job's kind."""
        return launcher_of(self.spec.kind)

    @property
    def head(self) -> JobNode:
        """The node of rank 0."""
        return self.nodes[0].node

    @property
    def world_size(self) -> int:
        """Processes the system starts."""
        return sum(len(node.ranks) for node in self.nodes)

    def environment(self, rank: int) -> dict[str, str]:
        """Return what the launcher sets for one rank, as far as it is known before the job's turn."""
        for node in self.nodes:
            for given in node.ranks:
                if given.rank == rank:
                    shared = {**self.defaults, **self.files, **self.env, **self.paths}
                    return {**shared, **node.env, **given.env, **self.spec.env}
        raise KeyError(rank)

    def as_dict(self) -> Plan:
        """Return the plan as ``job.json`` holds it: what the supervisor executes."""
        spec = self.spec
        services = self.launcher.services(spec)
        return {
            "version": PLAN_VERSION,
            "id": self.id,
            "name": spec.name,
            "display_name": spec.display_name,
            "experiment": spec.experiment,
            "description": spec.description,
            "tags": dict(spec.tags),
            "kind": spec.kind,
            "per_node": spec.per_node,
            "command": list(spec.command),
            "snapshot": spec.snapshot,
            "snapshots": list(self.snapshots),
            "remote": self.remote,
            "environment": self.runs_in,
            "data": list(self.data),
            "uploads": list(spec.uploads),
            "upload_every_s": spec.upload_every_s,
            "cwd": self.cwd,
            "argv": list(self.argv),
            "expand": [] if spec.shell else list(EXPANDED),
            "python": self.python,
            "checks": _checks(spec, self.argv, self.python, self.capability, has_mpirun=bool(self.mpirun)),
            "health": {"mode": spec.health, "promise": self.promise},
            "probe": self.probe,
            "stages": list(self.stages),
            "setup": spec.setup,
            "output_folders": [name for name, kind in spec.outputs.items() if kind != "uri_file"],
            "services": [given.rank for node in self.nodes for given in node.ranks if given.task in services],
            "first_port": FIRST_PORT,
            "drop": list(self.launcher.hidden()),
            "defaults": self.defaults,
            "files": self.files,
            "infiniband": int(self.infiniband),
            "paths": self.paths,
            "env": self.env,
            "user_env": dict(spec.env),
            "identity": self.identity or (None if spec.identity else ""),
            "master_addr": self.head.private_ip,
            "port": spec.port,
            "timeout_s": spec.timeout_s,
            "start_limit_s": self.start_limit_s,
            "grace_s": spec.grace_s,
            "max_restarts": spec.max_restarts,
            "hang_after_s": spec.hang_after_s,
            "py_spy": self.py_spy,
            "min_nodes": spec.min_nodes,
            "node_price": self.node_price,
            "hostfile": self.hostfile,
            "metrics": dict(spec.metrics),
            "machinefile": self.machinefile,
            "mpirun": {
                name: {"argv": line.argv, "env": dict(line.env)} for name, line in self.mpirun.items()
            },
            "nodes": [
                {
                    "name": node.node.name,
                    "private_ip": node.node.private_ip,
                    "slots": node.node.slots,
                    "reserve": node.reserve,
                    "env": node.env,
                    "ranks": [
                        {"rank": given.rank, "task": given.task, "env": given.env} for given in node.ranks
                    ],
                }
                for node in self.nodes
            ],
        }

    def shown(self) -> Plan | ShownPlan:
        """:meth:`as_dict` as ``--dry-run`` prints it and a collect brings it: without the values of the
        user's variables."""
        return without_values(self.as_dict())


def job_id(name: str, now: datetime, random: Callable[[int], str] = secrets.token_hex) -> str:
    """Return a unique id, sortable by time within a name: ``name-YYYYmmdd-HHMMSS-xxxx``.

    >>> job_id("My Digits!", datetime(2026, 3, 1, 9, 5, 7), lambda _: "0f3a")
    'my-digits-20260301-090507-0f3a'
    """
    short = _NAME.sub("-", name.lower()).strip("-")[:40] or "job"
    return f"{short}-{now:%Y%m%d-%H%M%S}-{random(2)}"


def plan(
    spec: JobSpec,
    nodes: Sequence[JobNode],
    *,
    size: str,
    remote: str,
    files: Collection[str] | None = None,
    rehearsed: bool = False,
    now: datetime | None = None,
    random: Callable[[int], str] = secrets.token_hex,
) -> JobPlan:
    """Return the plan of the job on these nodes, the first of which is the head.

    ``remote`` is the id of the node code (:func:`launch.code.node_code.remote_id`), ``files`` the snapshot's
    paths: with them a missing script is found before anything connects. The nodes may be ``rehearsed``. Raise
    :class:`~launch.errors.InputError`.
    """
    if not nodes:
        remedy = "choose some with --nodes, or run `fab up`"
        raise InputError("nodes", None, "no nodes to run on", remedy)
    argv = _rank_argv(spec)
    if files is not None:
        _check_script(argv, files)
    identifier = job_id(spec.name, now or datetime.now(), random)
    placed = place(spec, nodes)
    world_size = sum(len(node.ranks) for node in placed)
    folder = f"~/.ranklift/jobs/{identifier}"
    settings = fabric_settings(size)
    remote_folder = f".ranklift/remote/{remote}"
    counts = [(node.node.name, len(node.ranks)) for node in placed]
    launcher = launcher_of(spec.kind)
    hidden = launcher.hidden()
    return JobPlan(
        id=identifier,
        spec=spec,
        remote=remote_folder,
        cwd=f"{folder}/{WORK}",
        argv=argv,
        env=job_environment(
            identifier,
            spec.experiment or spec.name,
            [node.private_ip for node in nodes],
            spec.port,
            world_size,
            promise_of(size).get("gpus", 0),
        ),
        defaults={
            "PYTHONUNBUFFERED": "1",
            **launcher.defaults(spec),
            **{key: value for key, value in settings.env.items() if not (hidden and key.startswith(hidden))},
        },
        files=dict(settings.files),
        capability=settings.capability,
        infiniband=settings.infiniband,
        promise=promise_of(size),
        probe=_probe_order(spec, promise_of(size), len(nodes), rehearsed=rehearsed),
        paths={
            **job_paths(folder),
            **({"VIRTUAL_ENV": spec.python.rstrip("/")} if python_folder(spec.python) else {}),
        },
        hostfile=hostfile_text(counts),
        machinefile=machinefile_text(counts),
        mpirun=launcher.mpirun(spec, nodes, world_size, remote_folder, settings.infiniband),
        start_limit_s=timing.START_BASE_S + timing.START_PER_NODE_S * len(nodes),
        nodes=placed,
        runs_in=planned_record(spec.environment),
    )


def _probe_order(spec: JobSpec, promise: Promise, nodes: int, *, rehearsed: bool) -> ProbeOrder:
    """Return whether the way between the nodes is proven: not where the user does without InfiniBand. Raise
    :class:`~launch.errors.InputError` for a probe that has nothing to prove."""
    without = _without_infiniband(spec)
    if spec.probe:
        if not promise.get("hcas"):
            problem, remedy = f"{promise['size']} has no InfiniBand to prove", "leave it out"
            raise InputError("probe", None, problem, remedy)
        if nodes == 1:
            raise InputError("probe", None, "one node reaches no other", "leave it out, or take more nodes")
        if without:
            problem = f"cannot be combined with {without}={spec.env[without]}, which does without InfiniBand"
            raise InputError("probe", None, problem, "give one of the two")
    mode: ProbeMode = "on" if spec.probe else "auto"
    if spec.probe is False or without in _WITHOUT_INFINIBAND:
        mode = "off"
    elif without:
        mode = "ranks"
    return {"mode": mode, "rehearsal": int(rehearsed)}


def _rank_argv(spec: JobSpec) -> tuple[str, ...]:
    """Return what each rank runs: the command, under the interpreter for its first word's ending."""
    first = spec.command[0]
    if spec.shell:
        return ("bash", "-c", first)
    if first.endswith(".py"):
        return ("python" if python_folder(spec.python) else spec.python, "-u", *spec.command)
    return ("bash", *spec.command) if first.endswith(".sh") else spec.command


def _without_infiniband(spec: JobSpec) -> str:
    """Return the user's variable by which NCCL, or the MPI of the job, does without InfiniBand; or ""."""
    for name, value in _WITHOUT_INFINIBAND.items():
        if spec.env.get(name) == value:
            return name
    if spec.kind != Mpi.name:
        return ""
    if not has_infiniband(spec.env.get("UCX_TLS", "all")):
        return "UCX_TLS"
    return "FI_PROVIDER" if spec.env.get("FI_PROVIDER", "").startswith(("tcp", "sockets")) else ""


def _checks(
    spec: JobSpec, argv: tuple[str, ...], python: str, capability: str, *, has_mpirun: bool
) -> Checks:
    """Return what every node must have before the first rank starts; empty when that is nothing."""
    needs_python = spec.python != "python3" and (bool(spec.requires) or spec.python == argv[0])
    wanted: Checks = {
        "setup": spec.setup,
        "requires": list(spec.requires),
        "shm_bytes": spec.shm_bytes or 0,
        "needs_python": int(needs_python),
        "script": _script_to_find(spec, argv),
    }
    if not (any(wanted.values()) or python_folder(python)):
        return {}
    if capability and "torch" in spec.requires:
        wanted["gpu"] = capability
        if spec.flight_recorder and not has_mpirun:  # there only a node's first rank is checked
            wanted["recorder"] = 1
    return {**wanted, "python": python}


def _check_script(argv: tuple[str, ...], files: Collection[str]) -> None:
    script = run_script(argv)
    if script is None or not is_missing(script, files):
        return
    import difflib

    close = difflib.get_close_matches(script, files, n=1)
    meant = f"did you mean {close[0]}? else " if close else ""
    remedy = f"{meant}give its path from the folder that is pushed, and see .gitignore"
    raise InputError("script", str(PurePosixPath(script)), "is not in the pushed code", remedy)


def _script_to_find(spec: JobSpec, argv: tuple[str, ...]) -> str:
    """Return the script that only the nodes can look for: one that is not part of the code, or may be made by
    the setup line. Empty where there is none, or where it is not clear."""
    script = (script_on_nodes(spec.command[0]) if spec.shell else run_script(argv)) or ""
    return script if spec.setup or script.startswith("/") else ""
