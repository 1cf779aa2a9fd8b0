"""``fab launch job.yml``: an Azure ML command job on the stack's own nodes."""

from __future__ import annotations

import dataclasses
import difflib
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from invoke.context import Context

from infra.inventory import Inventory, Node
from launch.access import Access
from launch.data.data_spec import DataSource
from launch.data.data_stores import Storage
from launch.errors import InputError
from launch.launchers.registry import LAUNCHERS
from launch.numbers import counted
from playbooks.check.on_unhealthy import ON_UNHEALTHY_HELP, on_unhealthy_flag, with_healthy_nodes
from playbooks.cli import output
from playbooks.cli.access import ACCESS, access_flags
from playbooks.cli.options import (
    HANG_HELP,
    HEALTH_HELP,
    IDENTITY_HELP,
    METRIC_HELP,
    PROBE,
    RECORDER_HELP,
    health_flag,
    metrics_flag,
    probe_flag,
    processes_flag,
    restarts_flag,
    variables,
)
from playbooks.cli.task import command, open_from, seconds
from playbooks.data.job_file_data import choose_job_stage, find_sources, find_uploads, input_places
from playbooks.data.stack_storage import SAS_HELP, STAGE_HELP, sas_flag, storage_of
from playbooks.data.staging import Staging
from playbooks.jobs.job_options import (
    ENVIRONMENT,
    confirm_identity,
    environment_flag,
    found_environment,
    registries_flag,
    with_full_paths,
)
from playbooks.jobs.submit import Handling, Identity, Load, hand_over, home_of, planned_as, source_text
from playbooks.nodes.choose import choose_free_nodes, choose_nodes, taken_words
from playbooks.nodes.push import key_numbers
from playbooks.project import Stack

if TYPE_CHECKING:
    from launch.environment.environment_spec import Environment
    from launch.job.plan import JobPlan
    from launch.jobfile import Flags, JobFile, Made

__all__ = [
    "LaunchOptions",
    "launch_file",
    "launch_job",
    "launch_options",
    "load_of",
    "read_job_file",
]

_JOB_FILE = "a job file, e.g. job.yml"
_REPLACES = "VMs of the job's nodes at which a look finds errors are deleted first, and new ones made"
_HELP = {
    "file": "the job file; paths in it are relative to its folder",
    "nodes": "names, instance ids, ranges of both: 0-3,node000007; all; any:4 for free ones (default: the "
    "file's `ranklift.nodes`, else as many as its `resources.instance_count` says, from the first)",
    "nproc-per-node": "processes on each node, over the file's; `auto` for one per slot",
    "env": "a variable for every rank, over the file's: NAME=VALUE, or NAME for its value here; may be "
    "repeated",
    **{option.replace("_", "-"): f"{text}; over the file's" for option, text in ENVIRONMENT.items()},
    **{option.replace("_", "-"): text for option, text in ACCESS.items()},
    "sas-file": SAS_HELP,
    "stage": f"{STAGE_HELP}; over the file's",
    "set": "one value of the file, by its path through the keys: inputs.lr=0.1; may be repeated",
    "name": "part of the job's id (default: the file's `name`, else `display_name`, else the script's name)",
    "timeout": "the job's own limit from its start, restarts included, over the file's: 90, 90s, 10m or 2h",
    "max-restarts": "launch it again on the same nodes after a failure, at most this often, over the file's",
    "hang-after": f"{HANG_HELP}, over the file's: 90s, 10m",
    "no-flight-recorder": RECORDER_HELP,
    "identity": IDENTITY_HELP,
    "health": f"{HEALTH_HELP}; over the file's",
    "on-unhealthy": f"{ON_UNHEALTHY_HELP}; over the file's",
    "grace": "time between SIGTERM and SIGKILL when its processes are ended, over the file's: 90s, 10m",
    **{option.replace("_", "-"): text for option, text in PROBE.items()},
    "metric": f"{METRIC_HELP}; over the file's",
    "cancel-on-interrupt": "Ctrl-C ends the job too (default: it continues)",
    "detach": "return once the job is on the head",
    "json": "print the job's last state as JSON; the ranks' lines go to stderr",
}


@command(
    "file",
    example="fab launch job.yml --set inputs.lr=0.1",
    called="launch",
    help=_HELP,
    iterable=["allow_path", "env", "fill", "find_links", "metric", "set"],
    positional=["file"],
)
def launch_file(  # noqa: PLR0913, PLR0917
    context: Context,
    file: str,
    nodes: str | None = None,
    stack: str | None = None,
    nproc_per_node: str | None = None,
    env: list[str] | None = None,
    set: list[str] | None = None,
    name: str | None = None,
    timeout: str | None = None,
    max_restarts: str | None = None,
    hang_after: str | None = None,
    no_flight_recorder: bool = False,
    identity: bool = False,
    health: str | None = None,
    on_unhealthy: str | None = None,
    grace: str | None = None,
    requirements: str | None = None,
    conda: str | None = None,
    image: str | None = None,
    environment: str | None = None,
    find_links: list[str] | None = None,
    runtime: str | None = None,
    registry_token: str | None = None,
    fill: list[str] | None = None,
    allow_path: list[str] | None = None,
    sas_file: str | None = None,
    stage: str | None = None,
    probe: bool = False,
    no_probe: bool = False,
    metric: list[str] | None = None,
    cancel_on_interrupt: bool = False,
    detach: bool = False,
    json: bool = False,
    dry_run: bool = False,
) -> None:
    """Launch the command job that an Azure ML job file describes.

    The exit status is the job's. Ctrl-C leaves the job running and prints how to follow and end it.
    """
    from launch.jobfile import Flags, wanted_environment, with_assets

    chosen = open_from(context, stack)
    inventory = chosen.saved()
    access = access_flags(fill, allow_path)
    read = read_job_file(file, set or (), access)  # refuses what is not a path
    folders = [Path(file).expanduser().absolute().parent, Path.cwd(), chosen.project]
    job = with_assets(read, folders, access)
    named = {
        **{"requirements": requirements, "conda": conda, "image": image, "environment": environment},
        **{"find_links": find_links, "runtime": runtime},
    }
    sources = [folder for folder in (job.code, folders[0]) if folder is not None and folder.is_dir()]
    given = with_full_paths(named, sources, access)
    flags = Flags(
        environment=environment_flag(given, access),
        processes=None if nproc_per_node is None else processes_flag(nproc_per_node),
        env=variables(env or (), os.environ),
        name=name,
        timeout_s=None if timeout is None else seconds("--timeout", timeout),
        max_restarts=restarts_flag(max_restarts),
        hang_after_s=None if hang_after is None else seconds("--hang-after", hang_after),
        health=health_flag(health),
        grace_s=None if grace is None else seconds("--grace", grace),
        probe=probe_flag(probe, no_probe),
        flight_recorder=not no_flight_recorder,
        identity=identity or confirm_identity(job, access, dry_run=dry_run),
        metrics=metrics_flag(metric or ()),
    )
    about_unhealthy = on_unhealthy_flag(on_unhealthy) or job.own.on_unhealthy
    wanted, notices = _nodes(job, chosen, inventory, nodes, dry_run=dry_run)
    runs_in = found_environment(wanted_environment(job, flags), given, folders, access)
    registries = registries_flag(registry_token, runs_in, image, access, dry_run=dry_run)
    handling = Handling(detach, json, dry_run, cancel_on_interrupt, registries)
    options = launch_options(chosen, inventory, job, flags, runs_in, sas_file, stage)
    load = load_of(chosen, job, access.folders)
    notices = [*access.notes, *notices]
    if about_unhealthy == "replace":
        spec = _staged(chosen, inventory, wanted, job, options, load)[0].first_plan().spec  # has no mistake
        if on_unhealthy is None:
            line = (
                f"{job.places['ranklift.on_unhealthy'].where}: ranklift.on_unhealthy = replace: {_REPLACES}"
            )
            if dry_run:
                notices = [*notices, line]
            else:
                output.progress(line)
        healthy = with_healthy_nodes(chosen, inventory, wanted, spec.env, spec.health, dry_run=dry_run)
        inventory, wanted, more = healthy
        notices = [*notices, *more]
    launch_job(chosen, inventory, wanted, job, options, load, handling, notices)


def read_job_file(path: str, settings: Sequence[str], access: Access) -> JobFile:
    """Return the job file, with ``--set``'s values; it may read what ``access`` says. Raise
    :class:`~launch.errors.InputError`."""
    from launch.jobfile import read

    file = Path(os.path.expanduser(path))  # noqa: PTH111  (an unknown ~user stays in the name)
    if not os.path.exists(file):  # noqa: PTH110  (too long a name is none)
        if path in (one.task for one in LAUNCHERS.values()):
            raise InputError("file", path, "no such file", f"did you mean fab launch.{path}?")
        known = (one.name for one in file.parent.glob("*.y*ml"))
        close = difflib.get_close_matches(file.name, known, n=1)
        other = f"name {_JOB_FILE}, or give a script or command to fab launch.torch"
        raise InputError(
            "file", path, "no such file", f"did you mean {file.with_name(close[0])}?" if close else other
        )
    if file.is_dir():
        raise InputError("file", path, "is a folder", f"name {_JOB_FILE}")
    if path.endswith((".py", ".sh")) or _starts_as_script(file):
        remedy = f"launch it with fab launch.torch {shlex.quote(path)}, or launch.mpi"
        raise InputError("file", path, "is a script, not a job file", remedy)
    overrides = []
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key:
            raise InputError("--set", setting, "is not KEY=VALUE", "write it like --set inputs.lr=0.1")
        overrides.append((key, value))
    return read(file, overrides, access)


def _starts_as_script(file: Path) -> bool:
    try:
        if not file.is_file():
            return False
        with file.open("rb") as stream:
            return stream.read(2) == b"#!"
    except OSError:
        return False  # the reader says why


def _nodes(
    job: JobFile, stack: Stack, inventory: Inventory, flag: str | None, *, dry_run: bool
) -> tuple[Sequence[Node], Sequence[str]]:
    """Return the nodes of ``--nodes``, else the file's own choice, else the first nodes of the stack; and
    notices of what was chosen for the user."""
    from launch.jobfile import node_count

    if flag is not None:
        return choose_free_nodes(stack, inventory, flag, dry_run=dry_run)
    named: Sequence[Node] | None = None
    notices: Sequence[str] = ()
    if job.own.nodes is not None:
        try:
            named, notices = choose_free_nodes(stack, inventory, job.own.nodes, dry_run=dry_run)
        except InputError as error:
            raise job.located(error, "ranklift.nodes") from None
    count = node_count(job, None if named is None else len(named))
    if named is not None:
        return named, notices
    present = choose_nodes(inventory, None)
    if count is not None and count > len(present):
        few = InputError(
            "instance_count",
            count,
            f"stack {inventory.stack} has {counted(len(present), 'node')}",
            "ask for fewer, or set ranklift:nodeCount and run `fab up`",
        )
        raise job.located(few, "resources.instance_count")
    if job.instance_count is None:
        taken = taken_words(stack, inventory, present[:count])
        notices = (f"no --nodes and no resources.instance_count: the job takes {taken}",)
    return present[:count], notices


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    """What the options choose, or the file where they do not."""

    flags: Flags
    environment: Environment | None
    storage: Storage
    sources: Mapping[str, DataSource]
    """By input, what is in storage."""


def launch_options(
    stack: Stack,
    inventory: Inventory,
    job: JobFile,
    flags: Flags,
    environment: Environment | None,
    sas_file: str | None,
    stage: str | None,
) -> LaunchOptions:
    """Return what the options choose, with the data in storage. Raise :class:`~launch.errors.InputError`."""
    from launch.jobfile import Data

    in_storage = job.own.upload or any(one.path for one in job.outputs.values())
    in_storage |= any(isinstance(data, Data) and data.address is not None for data in job.inputs.values())
    in_storage |= bool(stage or job.own.stage)
    storage = storage_of(stack, inventory) if in_storage else Storage(None)
    sources = find_sources(job, storage, sas_flag(sas_file), choose_job_stage(job, stage, storage))
    return LaunchOptions(flags, environment, storage, sources)


def launch_job(
    stack: Stack,
    inventory: Inventory,
    nodes: Sequence[Node],
    job: JobFile,
    options: LaunchOptions,
    load: Load,
    handling: Handling,
    chosen: Sequence[str] = (),
) -> None:
    """Plan the job on ``nodes`` and launch it, as :func:`~playbooks.jobs.submit.hand_over` does; ``chosen``
    are notices of what was chosen for the user."""
    staging, made = _staged(stack, inventory, nodes, job, options, load)
    notices = [*filter(None, [job.notice]), *chosen, *made.notices]
    kind = "one process" if job.distribution is None else None
    load = dataclasses.replace(load, staging=staging)
    hand_over(stack, inventory, nodes, staging.first_plan(), load, handling, notices, kind)


def _staged(
    stack: Stack,
    inventory: Inventory,
    nodes: Sequence[Node],
    job: JobFile,
    options: LaunchOptions,
    load: Load,
) -> tuple[Staging, Made]:
    """Return what plans the job on ``nodes``, and the job as it is before its data is there. Raise
    :class:`~launch.errors.InputError` for a job with a mistake."""
    from launch.jobfile import Pushed, located, make, name_of, script_of
    from playbooks.node_price import saved_price

    identity, home, flags = Identity(), home_of(inventory.user), options.flags
    files = {entry.path for entry in load.code.entries}
    script = script_of(job.command)
    pushed = {path: one.id for path, one in load.data.items()}
    places = input_places(job, pushed, home, options.sources)
    snapshot = load.code.id if load.code.entries else ""
    price = saved_price(stack, inventory)

    def make_with(paths: Mapping[str, str]) -> Made:
        return make(
            job,
            nodes=len(nodes),
            identifier=identity.of(name_of(job, flags)),
            home=home,
            pushed=Pushed(snapshot, files, {**places, **paths}, partial(source_text, load.code.root)),
            environment=options.environment,
            source=source_text(load.code.root, script) if script in files else None,
            flags=flags,
        )

    def plan_with(paths: Mapping[str, str]) -> JobPlan:
        uploads = find_uploads(job, identity.of(name_of(job, flags)), options.storage)
        try:
            spec = make_with(paths).spec
            spec = dataclasses.replace(spec, uploads=uploads, upload_every_s=job.own.upload_every_s)
            return planned_as(
                identity, spec, inventory.size, nodes, rehearsed=stack.is_rehearsed, price=price
            )
        except InputError as error:
            raise located(job, flags, error) from None

    staged = [one for name, one in options.sources.items() if name not in places]
    staging = Staging(staged, options.storage, plan_with)
    return staging, make_with(staging.placeholders)


def load_of(stack: Stack, job: JobFile, allowed: tuple[Path, ...]) -> Load:
    """Return the code, without what its ignore files name, and every input on this machine, whole; links in
    data may lead into ``allowed``."""
    from launch.code.snapshot import EMPTY, plan_data, plan_snapshot
    from launch.jobfile import Data

    code, keys = EMPTY, key_numbers(stack)
    if job.code is not None:
        try:
            plan_code = plan_snapshot if job.code.is_dir() else plan_data
            code = plan_code(
                job.code, stack.hashes_of(job.code), keys, expected=job.code if job.code.is_dir() else None
            )
        except InputError as error:
            raise job.located(error, "code") from None
    data = {}
    for name, value in job.inputs.items():
        if isinstance(value, Data) and value.local is not None and value.local not in data:
            try:
                data[value.local] = plan_data(
                    value.local, stack.hashes_of(value.local), keys, allowed, value.real
                )
            except InputError as error:
                raise job.located(error, f"inputs.{name}.path") from None
    return Load(code, data, allowed=allowed)
