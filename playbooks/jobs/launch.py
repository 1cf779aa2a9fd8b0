"""``fab launch.<task>`` of every launcher: a script and its arguments, no job file."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import os
import shlex
from collections.abc import Collection, Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from invoke.context import Context
from invoke.tasks import Task

from launch.data.data_inputs import fill_inputs
from launch.errors import InputError
from launch.launchers.base import Launcher
from launch.launchers.line_variables import without_assignments
from launch.launchers.script import is_missing, module_of, run_script, with_python
from playbooks.check.on_unhealthy import ON_UNHEALTHY_HELP, on_unhealthy_flag, with_healthy_nodes
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
    restarts_flag,
)
from playbooks.cli.task import command, open_from
from playbooks.data.input_flags import read_inputs
from playbooks.data.stack_storage import SAS_HELP, STAGE_HELP, sas_flag
from playbooks.data.staging import Staging, pushed_path
from playbooks.jobs.job_options import (
    ENVIRONMENT,
    Request,
    environment_flag,
    found_environment,
    job_spec,
    registries_flag,
    with_full_paths,
)
from playbooks.jobs.submit import Handling, Identity, Load, hand_over, home_of, planned_as
from playbooks.nodes.choose import choose_free_nodes
from playbooks.nodes.push import key_numbers, source_folder

if TYPE_CHECKING:
    from launch.job.plan import JobPlan
    from launch.job.spec import JobSpec

__all__ = ["launch_task"]

_HELP = {
    "line": "script and arguments, in quotes or behind --, where it may be -m and a module; paths are "
    "relative to what is pushed. $RANK, $LOCAL_RANK, $MASTER_ADDR and the launcher's other variables expand "
    "in each process; $HOME, * and ~ do not",
    "nodes": "names, instance ids, ranges of both: 0-3,node000007; all; any:4 for free ones (default: all)",
    "env": "a variable for every rank: NAME=VALUE, or NAME for its value here; may be repeated",
    "source": "the folder to push (default: the repository around the current folder, else that folder)",
    "name": "part of the job's id (default: the script's name)",
    "detach": "return once the job is on the head",
    "timeout": "the job's own limit from its start, restarts included: 90, 90s, 10m or 2h (default: none)",
    "max-restarts": "launch it again on the same nodes after a failure, at most this often",
    "hang-after": f"{HANG_HELP}: 90, 90s, 10m or 2h (default: never)",
    "no-flight-recorder": RECORDER_HELP,
    "identity": IDENTITY_HELP,
    "health": f"{HEALTH_HELP} (default: strict)",
    "on-unhealthy": f"{ON_UNHEALTHY_HELP} (default: refuse)",
    "grace": "time between SIGTERM and SIGKILL when its processes are ended: 90, 90s, 10m (default: 3s)",
    "cancel-on-interrupt": "Ctrl-C ends the job too (default: it continues)",
    "python": "the nodes' Python, or the folder of an environment on them (default: python3)",
    **{option.replace("_", "-"): text for option, text in (ENVIRONMENT | ACCESS).items()},
    "input": "data for ${{inputs.NAME}} of the line: NAME=ADDRESS, e.g. iris=azureml:iris:1, or NAME=PATH of "
    "this machine; a folder where the address ends with a slash; may be repeated",
    "sas-file": SAS_HELP,
    "stage": STAGE_HELP,
    **{option.replace("_", "-"): text for option, text in PROBE.items()},
    "metric": METRIC_HELP,
    "json": "print the job's last state as JSON; the ranks' lines go to stderr",
}
_FIRST = {"nodes": None, "stack": None}
_LAST = {
    **{"env": None, "source": None, "name": None, "python": "python3", **dict.fromkeys(ENVIRONMENT | ACCESS)},
    "timeout": None,
    **{"input": None, "sas_file": None, "stage": None},
    **{
        "max_restarts": None,
        "hang_after": None,
        "no_flight_recorder": False,
        "identity": False,
        "health": None,
        "on_unhealthy": None,
        "grace": None,
        "cancel_on_interrupt": False,
        "detach": False,
        "json": False,
    },
    **dict.fromkeys(PROBE, False),
    "metric": None,
    "dry_run": False,
}
"""Options of every launcher, with their defaults; a launcher's own come between ``_FIRST`` and ``_LAST``."""


def launch_task(launcher: Launcher) -> Task[Any]:
    """Return the task that starts a command line by this launcher."""
    own = {option.name: option.default for option in launcher.options}
    defaults = {**_FIRST, **own, **_LAST}

    def task(context: Context, line: str, **given: Any) -> None:
        _launch(context, launcher, line, {**defaults, **given})

    kinds = inspect.Parameter.POSITIONAL_OR_KEYWORD
    required = [inspect.Parameter(name, kinds) for name in ("context", "line")]
    optional = [inspect.Parameter(name, kinds, default=value) for name, value in defaults.items()]
    task.__signature__ = inspect.Signature([*required, *optional])  # type: ignore[attr-defined]
    task.__doc__ = launcher.summary
    texts = {option.name.replace("_", "-"): option.help for option in launcher.options}
    return command(
        launcher.task,
        example=launcher.example,
        help={**_HELP, **texts, **launcher.shared_help},
        iterable=["allow_path", "env", "fill", "find_links", "input", "metric"],
        positional=["line"],
    )(task)


def _check_first_word(line: str, source: Path, files: Collection[str]) -> None:
    """Refuse a line whose first word cannot be run: a job file, a folder, a file that is neither script nor
    program, a path that leads nowhere. Other words may be programs of the nodes."""
    try:
        word = (shlex.split(line) or [""])[0]
    except ValueError:  # reported with the whole line, later
        return
    if word.startswith("-"):
        remedy = "give a script, a program of the nodes, or -m and a module"
        raise InputError("script", word, "is an option", remedy)
    path, pushed = source / word, str(PurePosixPath(word))
    places = (path, Path.cwd() / word)
    here = next((one for one in places if os.path.exists(one)), None)  # noqa: PTH110  (too long a name is none)
    remedy = "give a script of the folder that is pushed, or a program of the nodes"
    if path.suffix.lower() in (".yml", ".yaml"):
        if here is None:
            raise InputError("script", word, f"{source} has no such file", remedy)
        typed = (
            f"launch it with fab launch.file {shlex.quote(word if here != path else os.path.relpath(path))}"
        )
        raise InputError("script", word, "is a job file, not a script", typed)
    if word.startswith(("/", "~")) or "$" in word or "=" in word:  # a place on the nodes, or not known yet
        return
    if word and here == path and path.is_dir():
        raise InputError("script", word, "is a folder", remedy)
    if here is None and ("/" in word or path.suffix in (".py", ".sh")):
        close = difflib.get_close_matches(pushed, files, n=1)
        meant = f"did you mean {close[0]}?" if close else remedy
        raise InputError("script", word, f"is not in the pushed code: {source} has no such file", meant)
    is_script = path.suffix in (".py", ".sh")
    if path.suffix and pushed in files and not (is_script or os.access(path, os.X_OK)):
        raise InputError("script", word, "is neither a script nor a program", remedy)


def _check_here(line: str, source: Path, files: Collection[str]) -> None:
    """Refuse a script that the current folder has under this name, and the pushed code under another."""
    try:
        argv = shlex.split(line)
    except ValueError:  # reported with the whole line, later
        return
    script = (run_script(argv) or argv[0]) if argv else ""
    here = os.path.realpath(Path.cwd() / script)
    if not script.endswith((".py", ".sh")) or not is_missing(script, files) or not os.path.isfile(here):  # noqa: PTH113  (too long a name is none)
        return
    inner = os.path.relpath(here, os.path.realpath(source))
    remedy = f"did you mean {inner}?" if inner in files else "give the folder to push: --source ."
    raise InputError("script", script, f"is not in the pushed code: {source} has no such file", remedy)


def _check_module(line: str, source: Path, files: Collection[str]) -> None:
    """Refuse a module that a package of the code lacks, and a path in a module's place. Another one may be
    installed on the nodes."""
    try:
        module = module_of(shlex.split(line))
    except ValueError:  # reported with the whole line, later
        return
    if module is None:
        return
    name = module.removesuffix(".py").replace("/", ".")
    path, top = name.replace(".", "/"), name.partition(".")[0]
    if name != module:
        raise InputError("-m", module, "is a path, and -m takes a module's name", f"write -m {name}")
    is_there = any(f"{path}{end}" in files for end in (".py", "/__main__.py"))
    if is_there or not {f"{top}.py", f"{top}/__init__.py"} & {*files}:
        return
    modules = [file[:-3].replace("/", ".") for file in files if file.endswith(".py")]
    close = difflib.get_close_matches(module, modules, n=1)
    remedy = f"did you mean {close[0]}?" if close else "name one of the code, and see .gitignore"
    raise InputError("-m", module, f"is not in the pushed code: {source} has no {path}.py", remedy)


def _launch(context: Context, launcher: Launcher, line: str, given: dict[str, Any]) -> None:
    from launch.code.snapshot import plan_data, plan_snapshot
    from playbooks.node_price import saved_price

    options = {
        option.name: value
        if isinstance(value := given[option.name], bool) or value is None
        else option.read(f"--{option.name.replace('_', '-')}", value)
        for option in launcher.options
    }
    launcher.check_options(options)
    # a shell sets its variables itself
    assigned, line = ((), line) if options.get("per_node") else without_assignments("line", line)
    line = with_python(line, given["python"])
    stack, source = open_from(context, given["stack"]), source_folder(given["source"])
    dry_run = given["dry_run"]
    access = access_flags(given["fill"], given["allow_path"])
    _, real = access.typed("source", source)
    folders = [source, Path.cwd(), stack.project]
    given = with_full_paths(given, [source], access)
    environment = found_environment(environment_flag(given, access), given, folders, access)
    registries = registries_flag(
        given["registry_token"], environment, given["image"], access, dry_run=dry_run
    )
    handling = Handling(given["detach"], given["json"], dry_run, given["cancel_on_interrupt"], registries)
    request = Request(
        line,
        env=[*(given["env"] or ()), *assigned],
        name=given["name"],
        python=given["python"],
        timeout=given["timeout"],
        max_restarts=restarts_flag(given["max_restarts"]) or 0,
        health=health_flag(given["health"]),
        grace=given["grace"],
        environment=environment,
        options=options,
        probe=probe_flag(given["probe"], given["no_probe"]),
        metrics=metrics_flag(given["metric"] or ()),
        hang_after=given["hang_after"],
        flight_recorder=not given["no_flight_recorder"],
        identity=given["identity"],
    )
    on_unhealthy = on_unhealthy_flag(given["on_unhealthy"])
    inventory = stack.saved()
    nodes, chosen = choose_free_nodes(stack, inventory, given["nodes"], dry_run=dry_run)
    snapshot = plan_snapshot(source, stack.hashes_of(source), key_numbers(stack), real)
    files = {entry.path for entry in snapshot.entries}
    _check_first_word(line, source, files)
    _check_here(line, source, files)
    _check_module(line, source, files)
    home, identity = home_of(inventory.user), Identity()
    price = saved_price(stack, inventory)
    signed = sas_flag(given["sas_file"])
    found = read_inputs(stack, inventory, given["input"] or (), signed, source, given["stage"], access)
    data = {
        path: plan_data(path, stack.hashes_of(path), key_numbers(stack), access.folders, real)
        for path, real in found.local.values()
    }
    there = {name: pushed_path(home, data[path].id, path) for name, (path, _) in found.local.items()}

    def spec_with(paths: Mapping[str, str]) -> tuple[JobSpec, tuple[str, ...]]:
        line = fill_inputs(request.line, {**there, **found.remote, **paths})
        with_paths = dataclasses.replace(request, line=line)
        return job_spec(with_paths, launcher, nodes, snapshot.id, snapshot.root, home)

    def plan_with(paths: Mapping[str, str]) -> JobPlan:
        spec, size = spec_with(paths)[0], inventory.size
        return planned_as(identity, spec, size, nodes, files, rehearsed=stack.is_rehearsed, price=price)

    staging = Staging(found.sources, found.storage, plan_with)
    planned = staging.first_plan()
    if on_unhealthy == "replace":  # a job with a mistake replaces no node
        env, health = planned.spec.env, planned.spec.health
        inventory, nodes, more = with_healthy_nodes(stack, inventory, nodes, env, health, dry_run=dry_run)
        chosen, planned = [*chosen, *more], staging.first_plan()
    _, notices = spec_with(staging.placeholders)
    load = Load(snapshot, data, staging, allowed=access.folders)
    names = [one.partition("=")[0] for one in assigned]
    as_env = [f"{', '.join(names)}: set for every rank, as --env does"] if names else []
    notes = [*access.notes, *chosen, *as_env, *notices]
    hand_over(stack, inventory, nodes, planned, load, handling, notes)
