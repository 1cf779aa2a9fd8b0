"""The job's spec from a job file and the options that override it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Literal

from launch.environment.environment_spec import Environment
from launch.errors import InputError, InputErrors
from launch.job.rank_env import job_paths
from launch.job.spec import GRACE_S, HEALTH, JobSpec
from launch.jobfile.environment_reference import NamedEnvironment
from launch.jobfile.interpolation import filled, values_of
from launch.jobfile.mltable import MLTABLE
from launch.jobfile.schema import Data, JobFile
from launch.launchers.base import Start, either
from launch.launchers.detect import required_modules, runs_under, starts_own_processes
from launch.launchers.fit import fitted
from launch.launchers.imports import no_code
from launch.launchers.registry import LAUNCHERS, WITHOUT_DISTRIBUTION
from launch.launchers.script import is_missing, module_of_line, script_of
from launch.numbers import counted
from launch.remote.base.health_records import HealthMode

__all__ = [
    "Flags",
    "Made",
    "Pushed",
    "identity_refusal",
    "located",
    "make",
    "name_of",
    "node_count",
    "wanted_environment",
]

_COUNT = "distribution.process_count_per_instance"
_KEYS = {
    "processes_per_node": _COUNT,
    "workers": "distribution.worker_count",
    "parameter_servers": "distribution.parameter_server_count",
    "chief": "ranklift.chief",
    "mpi": "ranklift.mpi",
    "mpi_args": "ranklift.mpirun_args",
    "python": "ranklift.python",
    "runtime": "environment",
    "setup": "ranklift.setup",
    "shm_bytes": "resources.shm_size",
    "timeout_s": "limits.timeout",
    "metrics": "ranklift.metrics",
    "max_restarts": "ranklift.max_restarts",
    "hang_after_s": "ranklift.hang_after",
    "health": "ranklift.health",
    "grace_s": "ranklift.grace",
    "probe": "ranklift.probe",
    "identity": "ranklift.identity",
    "min_nodes": "command",
    "command": "command",
    "script": "command",
    "outputs": "outputs",
    "environment": "environment_variables",
}
"""The file's keys by the spec's."""
_NO_TEXT: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Flags:
    """Options that override the file."""

    environment: Environment | NamedEnvironment | None = None
    processes: int | Literal["auto"] | None = None
    env: Mapping[str, str] = field(default_factory=lambda: _NO_TEXT)
    name: str | None = None
    timeout_s: float | None = None
    metrics: Mapping[str, str] = field(default_factory=lambda: _NO_TEXT)
    max_restarts: int | None = None
    hang_after_s: float | None = None
    health: HealthMode | None = None
    grace_s: float | None = None
    probe: bool | None = None
    flight_recorder: bool = True
    identity: bool = False
    """Whether the user allows the nodes' identity: a file by itself does not get it."""


@dataclass(frozen=True, slots=True)
class Pushed:
    """What the push puts on the nodes."""

    snapshot: str
    files: Collection[str]
    """Paths of the code's files."""
    paths: Mapping[str, str]
    """Paths on the nodes of inputs that are files or folders, by name."""
    read: Callable[[str], str | None] = no_code
    """Returns the text of one of the code's files, None where it cannot be read."""


@dataclass(frozen=True, slots=True)
class Made:
    """A job's spec, and notices of what was chosen for the user."""

    spec: JobSpec
    notices: tuple[str, ...]


def name_of(job: JobFile, flags: Flags) -> str:
    """Return the first part of the job's id: the name given, else the script's, else the file's."""
    script = script_of(job.command)
    return flags.name or job.name or job.display_name or PurePosixPath(script or job.path.name).stem


def node_count(job: JobFile, chosen: int | None) -> int | None:
    """Return the number of the stack's first nodes that the job runs on; None for all that are named.

    ``chosen`` is the number of nodes that ``ranklift.nodes`` names, None without it. Raises
    :class:`~launch.errors.InputError` when both are given and differ.
    """
    if chosen is None:
        return job.instance_count or 1
    if job.instance_count not in (None, chosen):
        place = job.places["resources.instance_count"]
        other = job.places["ranklift.nodes"]
        raise place.wrong(
            f"{other.where} names {counted(chosen, 'node')}", "make the two agree, or leave one out"
        )
    return None


def make(
    job: JobFile,
    *,
    nodes: int,
    identifier: str,
    home: str,
    pushed: Pushed,
    environment: Environment | None = None,
    source: str | None = None,
    flags: Flags | None = None,
) -> Made:
    """Return the job ``identifier`` on ``nodes`` nodes.

    ``environment`` is what :func:`wanted_environment` returned, resolved; ``source`` is the text of the
    script that the command runs (:func:`~launch.launchers.script.script_of`), where it is known. Raise
    :class:`~launch.errors.InputError` naming the file's line.
    """
    flags = flags or Flags()
    if job.own.identity and not flags.identity:
        raise identity_refusal(job)
    command = job.places["command"]
    outputs = job_paths(f"{home}/.ranklift/jobs/{identifier}")["RANKLIFT_OUTPUT_DIR"]
    known = values_of(job, pushed.paths, outputs)
    line = filled(job.command, known, command)
    _check_script(job, line, pushed)
    kind = job.distribution.kind if job.distribution else WITHOUT_DISTRIBUTION
    start = _start(job, nodes, line, source, flags)
    env = {
        key: filled(value, known, job.places[f"environment_variables.{key}"])
        for key, value in job.env.items()
    }
    line, added = _fitted(job, line, nodes, kind, {**env, **flags.env}, pushed)
    distribution = job.distribution
    python = job.own.python or "python3"
    try:
        spec = JobSpec(  # noqa: S604  (shell: a field of the job)
            name=name_of(job, flags),
            kind=kind,
            command=(line,),
            shell=True,
            per_node=start.per_node,
            processes_per_node=start.processes,
            workers=distribution.workers if distribution else None,
            parameter_servers=distribution.parameter_servers if distribution else 0,
            chief=job.own.chief,
            mpi=job.own.mpi,
            mpi_args=job.own.mpirun_args,
            env={**env, **flags.env},
            snapshot=pushed.snapshot,
            setup=job.own.setup,
            python=python,
            environment=environment,
            requires=_required(job, source, pushed.read) if runs_under(python, line) else (),
            shm_bytes=job.shm_bytes,
            outputs={name: one.type for name, one in job.outputs.items()},
            timeout_s=flags.timeout_s or job.timeout_s,
            metrics={**job.own.metrics, **flags.metrics},
            max_restarts=job.own.max_restarts if flags.max_restarts is None else flags.max_restarts,
            hang_after_s=flags.hang_after_s or job.own.hang_after_s,
            health=flags.health or job.own.health or HEALTH,
            grace_s=flags.grace_s or job.own.grace_s or GRACE_S,
            probe=job.own.probe if flags.probe is None else flags.probe,
            flight_recorder=job.own.flight_recorder and flags.flight_recorder,
            identity=flags.identity,
            min_nodes=LAUNCHERS[kind].fewest_nodes(line) if start.per_node else None,
            display_name=job.display_name,
            experiment=job.experiment,
            description=job.description,
            tags=job.tags,
            home=home,
        )
    except InputErrors as several:
        raise InputErrors([located(job, flags, error) for error in several.errors]) from None
    except InputError as error:
        raise located(job, flags, error) from None
    return Made(spec, (*start.notices, *added, *_overridden(job), *_tables(job)))


def _required(job: JobFile, source: str | None, read: Callable[[str], str | None]) -> tuple[str, ...]:
    """Return the modules that the command's script, whose text is ``source``, or its module imports."""
    if source is not None:
        return required_modules(source, script_of(job.command) or "", read)
    module = module_of_line(job.command)
    return () if module is None else required_modules(f"import {module}.__main__", "", read)


def identity_refusal(job: JobFile) -> InputError:
    """Return the error for a file that asks for the nodes' identity, where the user has not allowed it."""
    return job.places["ranklift.identity"].wrong(
        "is not for a file alone to decide: its ranks could do what the nodes' identity may",
        "give --identity if they may (fab scaling: --set ranklift.identity=true), or remove it",
    )


def wanted_environment(job: JobFile, flags: Flags) -> Environment | NamedEnvironment | None:
    """Return what the ranks are to run in: the option's, else the ``ranklift:`` block's, else the file's own.

    A Python of the nodes, which the block names, replaces the file's own too.
    """
    if flags.environment is not None or job.own.environment is not None:
        return flags.environment or job.own.environment
    return None if job.own.python is not None else job.environment


def _overridden(job: JobFile) -> tuple[str, ...]:
    if job.environment is None or job.own.environment is not None or job.own.python is None:
        return ()
    at = job.places["environment"].where
    return (f"{at}: environment is not used: ranklift.python names a Python of the nodes",)


def _tables(job: JobFile) -> tuple[str, ...]:
    """Return a notice for each table whose file is in storage, where nothing reads it before the job does."""
    names = [
        name
        for name, data in job.inputs.items()
        if isinstance(data, Data) and data.type == MLTABLE and data.address is not None and not data.direct
    ]
    what = "its folder comes to the nodes, but nothing that its MLTable names elsewhere"
    return tuple(f"input {name}: {what}" for name in names)


def located(job: JobFile, flags: Flags, error: InputError) -> InputError:
    """Return an error about the job with the line of the file, or the option, that caused it."""
    kind, _, name = error.key.partition(" ")
    if (kind == "env" and (name or str(error.value)) in flags.env) or (
        error.key == "processes_per_node" and flags.processes is not None
    ):
        key = f"--env {name or error.value}" if kind == "env" else "--nproc-per-node"
        return InputError(key, error.value, error.problem, error.remedy)
    options = {
        "--max-restarts": error.key == "max_restarts" and flags.max_restarts is not None,
        "--probe": error.key == "probe" and flags.probe is not None,
        f"--metric {name}": kind == "metrics" and name in flags.metrics,
    }
    for option, is_at_fault in options.items():
        if is_at_fault:
            return InputError(option, error.value, error.problem, error.remedy)
    if kind == "env":
        return job.located(error, f"environment_variables.{name or error.value}")
    if kind == "outputs" and f"outputs.{error.value}" in job.places:
        return job.located(error, f"outputs.{error.value}")
    if kind in ("outputs", "metrics") and name:
        return job.located(error, f"outputs.{name}" if kind == "outputs" else f"ranklift.metrics.{name}")
    return job.located(error, _KEYS.get(kind, ""))


def _check_script(job: JobFile, line: str, pushed: Pushed) -> None:
    script = script_of(line)
    if script is None or not is_missing(script, pushed.files) or job.own.setup:
        return  # a setup line may make it: the nodes look for it then
    if job.code is None:
        problem, remedy = f"runs {script}, but no code is pushed", "add code: with the script's folder"
    else:
        where = job.places["code"].where
        problem = f"runs {script}, which is not in the code ({where})"
        remedy = "give its path from that folder, and see .gitignore"
    raise job.places["command"].wrong(problem, remedy, at=script if script in job.command else "")


def _fitted(
    job: JobFile, line: str, nodes: int, kind: str, variables: Mapping[str, str], pushed: Pushed
) -> tuple[str, tuple[str, ...]]:
    """Return the line as so many nodes can run it, and notices of what was added to it."""
    place = job.places["command"]
    try:
        found = fitted("command", line, nodes, kind, variables, pushed.read)
    except InputError as error:
        parts = (str(error.value), str(error.value).split(" ")[0])
        at = next((part for part in parts if part in job.command), "")
        raise place.wrong(error.problem, error.remedy, at=at) from None
    return str(found.command), found.notices


def _start(job: JobFile, nodes: int, line: str, source: str | None, flags: Flags) -> Start:
    """Return the processes to start on each node."""
    if job.distribution is None:
        if nodes > 1:
            raise _no_distribution(job, nodes)
        if flags.processes is not None:
            raise InputError(
                "--nproc-per-node", flags.processes, f"{job.path} has no distribution", "add one to the file"
            )
        return Start(per_node=True, processes=None)
    launcher = starts_own_processes(line, None)
    count = flags.processes or job.distribution.processes
    if launcher is not None and count not in (None, 1):
        error = InputError(
            "processes_per_node",
            count,
            f"cannot be combined with this command: {launcher}",
            "leave the count out, or run the script without that launcher",
        )
        raise located(job, flags, error)
    _check_tasks(job, nodes)
    used = LAUNCHERS[job.distribution.kind]
    start = used.start(count, line, source)
    if count is None and not start.per_node and used.no_count_notice:
        return dataclasses.replace(start, notices=(used.no_count_notice,))
    return start


def _check_tasks(job: JobFile, nodes: int) -> None:
    """Refuse more nodes than tasks: a node without a task would be reserved for nothing."""
    wanted = job.distribution
    if wanted is None or wanted.workers is None:
        return
    others = wanted.parameter_servers + job.own.chief
    tasks = wanted.workers + others
    if tasks >= nodes:
        return
    count = job.places.get("resources.instance_count")
    fewer = (
        f"resources.instance_count ({count.where}) at most {tasks}"
        if count is not None and count.text.strip() == str(nodes)
        else f"choose at most {counted(tasks, 'node')}"
    )
    raise job.places["distribution.worker_count"].wrong(
        f"makes {counted(tasks, 'task')} for {counted(nodes, 'node')}",
        f"make worker_count at least {nodes - others}, or {fewer}",
    )


def _no_distribution(job: JobFile, nodes: int) -> InputError:
    problem = f"{nodes} nodes without a distribution would each do the same work"
    remedy = f"add distribution: with type: {either(LAUNCHERS)}, or run on one node"
    place = job.places.get("resources.instance_count")
    if place is not None and place.text == str(nodes):
        return place.wrong(problem, remedy)
    return InputError(str(job.path), None, problem, remedy)
