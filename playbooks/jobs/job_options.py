"""A job's spec from a command line and its options."""

from __future__ import annotations

import filecmp
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from infra.inventory import Node
from launch.access import Access
from launch.errors import InputError
from launch.launchers.script import module_of
from launch.launchers.shell_line import operator_of, words
from launch.numbers import counted
from launch.remote.base.health_records import HealthMode
from playbooks.cli.options import processes_flag, variables
from playbooks.cli.task import seconds
from playbooks.jobs.submit import source_text

if TYPE_CHECKING:
    from launch.environment.environment_spec import Environment
    from launch.job.spec import JobSpec
    from launch.jobfile import JobFile, NamedEnvironment
    from launch.launchers.base import Launcher, Line

__all__ = [
    "ENVIRONMENT",
    "Request",
    "confirm_identity",
    "environment_flag",
    "found_environment",
    "job_spec",
    "registries_flag",
    "with_full_paths",
]

_FIND_LINKS = "find_links"
ENVIRONMENT = {
    "requirements": "packages for the ranks: a requirements file, of the code or of the current folder; "
    "installed once, and kept on the nodes",
    "conda": "packages for the ranks, from a conda file",
    "image": "a container image for the ranks: REGISTRY/NAME:TAG",
    "environment": "an environment by name: environments/NAME.yml, or Microsoft's; bare: the nodes alone",
    _FIND_LINKS: "a folder of wheels on this machine, which is sent along; may be repeated",
    "runtime": "what starts containers: docker, enroot or charliecloud (default: the first there is)",
    "registry_token": "FILE, or HOST=FILE for that registry alone: Docker's config.json, or USER:PASSWORD or "
    "a token, which without HOST is for --image",
}
"""Options of every launch for what the ranks run in, with their help; of :data:`_ONE`, one is given."""
_ONE = ("requirements", "conda", "image", "environment")


@dataclass(frozen=True, slots=True)
class Request:
    """A command line and its options, as far as the job's spec depends on them."""

    line: str
    env: Sequence[str]
    name: str | None
    python: str
    timeout: str | None
    max_restarts: int = 0
    health: HealthMode | None = None
    grace: str | None = None
    environment: Environment | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    """Values of the launcher's own options, by name."""
    probe: bool | None = None
    metrics: Mapping[str, str] = field(default_factory=dict)
    hang_after: str | None = None
    flight_recorder: bool = True
    identity: bool = False


def job_spec(
    request: Request, launcher: Launcher, nodes: Sequence[Node], snapshot: str, root: Path, home: str
) -> tuple[JobSpec, tuple[str, ...]]:
    """Return the job of a command line and its options, and notices of what was chosen for the user.

    ``root`` is the code's folder, ``snapshot`` the code's id, ``home`` the nodes' home folder. Raise
    :class:`~launch.errors.InputError`.
    """
    from launch.job.spec import GRACE_S, HEALTH, JobSpec
    from launch.launchers.detect import required_modules, runs_under
    from launch.launchers.fit import fitted

    command_line = words("line", request.line)
    read, module = partial(source_text, root), module_of(command_line)
    scripts = _scripts(command_line, module)
    source = next((text for text in map(read, scripts) if text is not None), None)
    # What runs a module imports the packages around it, from the code's folder.
    begin = (
        (source or "", scripts[0] if scripts else "") if module is None else (f"import {module}.__main__", "")
    )
    line = _line(request, nodes, command_line, source)
    started = launcher.start_line(line)
    if not started.shell:
        _refuse_operators(request.line, launcher)
    start, env = started.start, variables(request.env, os.environ)
    written = started.command[0] if started.shell else started.command
    fit = fitted("line", written, len(nodes), launcher.name, env, read)
    fewest = launcher.fewest_nodes(fit.command) if start.per_node else None
    fields: dict[str, Any] = {"max_restarts": request.max_restarts, **started.fields}
    spec = JobSpec(
        name=request.name or _name(command_line, module),
        kind=launcher.name,
        command=(fit.command,) if isinstance(fit.command, str) else tuple(fit.command),
        shell=started.shell,
        per_node=start.per_node,
        processes_per_node=start.processes,
        env=env,
        snapshot=snapshot,
        python=request.python,
        environment=request.environment,
        requires=required_modules(*begin, read)
        if source is not None and runs_under(request.python, command_line)
        else (),
        timeout_s=None if request.timeout is None else seconds("--timeout", request.timeout),
        hang_after_s=None if request.hang_after is None else seconds("--hang-after", request.hang_after),
        min_nodes=fewest,
        probe=request.probe,
        flight_recorder=request.flight_recorder,
        identity=request.identity,
        metrics=request.metrics,
        home=home,
        health=request.health or HEALTH,
        grace_s=GRACE_S if request.grace is None else seconds("--grace", request.grace),
        **fields,
    )
    return spec, (*start.notices, *fit.notices)


def with_full_paths(given: Mapping[str, Any], sources: Sequence[Path], access: Access) -> dict[str, Any]:
    """Return the options with full paths of requirements, conda files and folders of wheels; each that was
    relative becomes a note of ``access``.

    A relative path starts at one of ``sources``, the folders of the job's code and file, or at the current
    folder. Raise :class:`~launch.errors.InputError` for one that leads nowhere, or to files that differ.
    """
    full = dict(given)
    for name in ("requirements", "conda"):
        if given[name] is not None:
            full[name] = _full_path(f"--{name}", given[name], sources, access)
    wheels = given[_FIND_LINKS] or ()
    full[_FIND_LINKS] = [_full_path("--find-links", text, sources, access, "folder") for text in wheels]
    return full


def _full_path(key: str, text: str, sources: Sequence[Path], access: Access, kind: str = "file") -> str:
    path = Path(os.path.expanduser(text))  # noqa: PTH111  (an unknown ~user stays in the name)
    if path.is_absolute():
        return str(path)
    starts = list(dict.fromkeys(_absolute(start) for start in (*sources, Path.cwd())))
    is_there = os.path.isdir if kind == "folder" else os.path.isfile  # too long a name is none
    there = [place for place in (_absolute(Path(start, path)) for start in starts) if is_there(place)]
    if not there:
        where = ", nor in ".join(starts)
        raise InputError(key, text, f"there is no such {kind} in {where}", f"give the full path of a {kind}")
    if other := next((one for one in there[1:] if not _is_same(there[0], one)), None):
        problem = f"is {there[0]} or {other}, which differ"
        raise InputError(key, text, problem, "give the full path of the one that you mean")
    access.notes.append(f"{key} {text}: {there[0]}")
    return there[0]


def _absolute(path: Path) -> str:
    """Return the full path, without ``..`` unless that leads elsewhere, through a link."""
    short = os.path.abspath(path)  # noqa: PTH100  (Path.resolve follows links)
    return short if os.path.realpath(short) == os.path.realpath(path) else str(path.absolute())


def _is_same(one: str, other: str) -> bool:
    """Return whether two paths lead to the same folder, or to files with the same content."""
    try:
        return Path(one).samefile(other) or filecmp.cmp(one, other, shallow=False)
    except OSError:
        return False


def environment_flag(given: Mapping[str, Any], access: Access) -> Environment | NamedEnvironment | None:
    """Return what the options in :data:`ENVIRONMENT` ask for, whose files may read what ``access`` says; None
    without any.

    Raise :class:`~launch.errors.InputError` for two of them, and for a wrong file.
    """
    chosen = [name for name in _ONE if given[name] is not None]
    if len(chosen) > 1:
        problem = f"cannot be combined with --{chosen[0]}"
        raise InputError(f"--{chosen[1]}", given[chosen[1]], problem, "give one of the two")
    if not chosen:
        return None
    from launch.environment.environment_spec import ImageEnvironment
    from launch.environment.image_reference import image_reference
    from launch.environment.requirements import read_requirements
    from launch.jobfile import read_conda, read_name

    key, text = f"--{chosen[0]}", given[chosen[0]]
    if chosen[0] == "requirements":
        return read_requirements(Path(text).expanduser(), access, key)
    if chosen[0] == "conda":
        return read_conda(Path(text).expanduser(), access, key)
    if chosen[0] == "image":
        return ImageEnvironment(image_reference(key, text), title=text)
    return read_name(key, text)


def found_environment(
    wanted: Environment | NamedEnvironment | None,
    given: Mapping[str, Any],
    folders: Sequence[Path],
    access: Access,
) -> Environment | None:
    """Return the environment that a launch makes, with ``--find-links`` and ``--runtime``.

    A name is looked for in ``folders``; its file may read what ``access`` says. Raise
    :class:`~launch.errors.InputError`.
    """
    if wanted is None and not given[_FIND_LINKS] and given["runtime"] is None:
        return None  # without the imports, which take a tenth of a launch's processor time here
    from launch.environment.environment_request import with_runtime
    from launch.environment.requirements import with_wheels
    from launch.jobfile import resolve

    found = with_wheels(resolve(wanted, folders, access), given[_FIND_LINKS] or (), access)
    return with_runtime(found, given["runtime"])


def registries_flag(
    given: str | None, environment: Environment | None, image: str | None, access: Access, *, dry_run: bool
) -> Mapping[str, dict[str, str]]:
    """Return the credentials of ``--registry-token`` that the environment's head gets, by registry.

    One without the name of its registry is for ``--image``: the user is asked before it goes to a registry
    that a file names. Raise :class:`~launch.errors.InputError`.
    """
    if given is None:
        return {}
    from launch.environment.registry_secrets import read_registry_secrets, secrets_for, split_host

    host, file = split_host(given)

    def confirm(registry: str) -> None:
        if image is None:
            question = f"A file names an image of {registry}. Send the login in {file} to {registry}?"
            problem = f"does not name its registry, and a file names an image of {registry}"
            remedy = f"give --registry-token {registry}={file} if it may go there"
            refusal = InputError("--registry-token", given, problem, remedy)
            access.confirm(question, refusal, dry_run=dry_run)

    return secrets_for(environment, read_registry_secrets(Path(file).expanduser(), host), confirm)


def confirm_identity(job: JobFile, access: Access, *, dry_run: bool) -> bool:
    """Return whether the file asks for the nodes' identity, where ``--set`` does or the user agrees at the
    terminal. Raise :class:`~launch.errors.InputError` without a yes."""
    from launch.jobfile import identity_refusal

    if job.own.identity and not (place := job.places["ranklift.identity"]).is_typed:
        question = (
            f"{place.where} asks for the nodes' identity: the job's ranks, and all else that runs as their "
            "user meanwhile, may act as it in Azure, and so delete nodes of a stack with idleStopMinutes. "
            "Sign the job for it?"
        )
        access.confirm(question, identity_refusal(job), dry_run=dry_run)
    return job.own.identity


def _line(request: Request, nodes: Sequence[Node], argv: tuple[str, ...], source: str | None) -> Line:
    from launch.launchers.base import COUNT, Line

    count = request.options.get(COUNT.name)
    return Line(
        text=request.line,
        words=argv,
        source=source,
        python=request.python,
        max_restarts=request.max_restarts,
        slots=[node.slots for node in nodes],
        count=None if count is None else _processes(count, nodes),
        options=request.options,
    )


def _scripts(line: Sequence[str], module: str | None) -> list[str]:
    """Return the paths in the code where the launched script or ``module`` may lie."""
    if module is not None:
        path = module.replace(".", "/")
        return [f"{path}.py", f"{path}/__main__.py"]
    script = next((word for word in line if word.endswith(".py")), None)
    return [] if script is None or PurePosixPath(script).is_absolute() else [script]


def _refuse_operators(line: str, launcher: Launcher) -> None:
    """Refuse what a shell would act on: none reads the line, and the script would get it as an argument."""
    if operator := operator_of(line):
        problem = f"{operator} would be an argument of the script: no shell reads this line"
        remedy = (
            f"for a shell, write fab launch.{launcher.task} \"bash -c '…'\" or the command of a job file; "
            f"for an argument, write '{operator}' in quotes"
        )
        raise InputError("line", line, problem, remedy)


def _processes(text: str, nodes: Sequence[Node]) -> int:
    chosen = processes_flag(text)
    slots = min(node.slots for node in nodes)
    if chosen == "auto":
        return slots
    if chosen > slots:
        small = next(node.name for node in nodes if node.slots == slots)
        raise InputError(
            "--nproc-per-node", chosen, f"{small} has {counted(slots, 'slot')}", f"give at most {slots}"
        )
    return chosen


def _name(argv: Sequence[str], module: str | None) -> str:
    if module is not None:
        return module.rpartition(".")[2] or module
    script = next((word for word in argv if word.endswith((".py", ".sh"))), argv[0] if argv else "job")
    return PurePosixPath(script).stem
