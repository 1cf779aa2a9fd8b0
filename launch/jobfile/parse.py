"""Parse a job file: check keys, types and paths, and report every mistake with its line."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from launch.access import Access, Scope
from launch.data.data_address import is_address
from launch.durations import LONGEST_S
from launch.errors import InputError, InputErrors
from launch.expressions import MARK
from launch.job.spec import LONGEST
from launch.jobfile import values
from launch.jobfile.environment_block import read_environment
from launch.jobfile.fields import Reader
from launch.jobfile.interpolation import check
from launch.jobfile.schema import JobFile, Own
from launch.jobfile.sections import OWN, read_distribution, read_input, read_output, read_own
from launch.jobfile.yaml_source import Place, compose

__all__ = ["UNUSED", "USED", "read"]

USED = (
    *("$schema", "type", "command", "code", "name", "display_name", "experiment_name", "description", "tags"),
    *("inputs", "outputs", "environment", "environment_variables", "distribution", "resources", "limits"),
    "ranklift",
)
"""Keys of the format that have an effect here, and ``$schema``, which is for editors."""
_TEXTS = ("compute", "parent_job_name", "id", "status")
_BLOCKS = (
    *("services", "identity", "queue_settings", "properties", "creation_context", "log_files"),
    "parameters",
)
UNUSED = (*_TEXTS, *_BLOCKS)
"""Keys of the format without an effect here."""
_HINTS = {
    **dict.fromkeys(OWN, "write it under ranklift:"),
    **dict.fromkeys(("instance_count", "instance_type", "shm_size"), "write it under resources:"),
    **dict.fromkeys(
        ("process_count_per_instance", "worker_count", "parameter_server_count"),
        "write it under distribution:",
    ),
    **dict.fromkeys(("image", "conda_file", "build"), "write it under environment:"),
    **dict.fromkeys(("script", "args", "arguments"), "write it into command:, e.g. python train.py --lr 0.1"),
    "timeout": "write it under limits:",
    "requirements": "write environment: {requirements: FILE} under ranklift:",
    "nodes": "write instance_count: under resources: for their number, nodes: under ranklift: for their ids",
    "env": "write environment_variables:",
}
"""Where keys belong that are written at the top."""
_OTHERS = {"jobs": "a pipeline's", "trial": "a sweep's"}
"""Keys that only other kinds of jobs have, with the owner of each."""
_INSTANCES = values.whole("say on how many nodes the job is to run")
_RESOURCES_UNUSED = ("instance_type", "locations", "max_instance_count", "docker_args", "properties")


def read(path: Path, overrides: Sequence[tuple[str, str]] = (), access: Access | None = None) -> JobFile:
    """Return the job file at ``path``; ``overrides`` replace single values (``inputs.lr``, ``0.1``), and
    ``access`` allows it more than its repository.

    Raise :class:`~launch.errors.InputError` naming file, line, key, value and remedy, or
    :class:`~launch.errors.InputErrors` with all of them when there are several.
    """
    scope, _ = (access or Access()).typed("file", path)
    root = compose(path)
    for key, new in overrides:
        _check_setting(root, key, new)
    if overrides:
        root = compose(path, overrides)
    entries = root.entries()
    _check_kind(entries)
    reader = Reader()
    top = reader.block(root, USED, UNUSED, _HINTS)
    for key in (key for key in entries if key in UNUSED):
        with reader.collecting():
            _check_unused(key, entries[key])
    reader.get(top, "$schema", values.text, "")
    command = _command(reader, root, top)
    inputs = {
        key: value
        for key, place in reader.named(top.get("inputs"), "an input").items()
        if (value := read_input(reader, place, scope)) is not None
    }
    outputs = {
        key: read_output(reader, place)
        for key, place in reader.named(top.get("outputs"), "an output").items()
    }
    env = {
        key: reader.get({key: place}, key, lambda one: values.written(one, replaced=True), "")
        for key, place in reader.named(top.get("environment_variables"), "a variable").items()
    }
    distribution = read_distribution(reader, top["distribution"]) if "distribution" in top else None
    resources = reader.block(top.get("resources"), ("instance_count", "shm_size"), _RESOURCES_UNUSED)
    limits = reader.block(top.get("limits"), ("timeout",))
    job = JobFile(
        path=path,
        command=command,
        code=reader.get(top, "code", lambda place: _code(place, scope), None),
        name=reader.get(top, "name", values.text, None),
        display_name=reader.get(top, "display_name", values.text, ""),
        experiment=reader.get(top, "experiment_name", values.text, ""),
        description=reader.get(top, "description", values.text, ""),
        tags=_tags(reader, top.get("tags")),
        inputs=inputs,
        outputs=outputs,
        env=env,
        distribution=distribution,
        instance_count=reader.get(resources, "instance_count", _INSTANCES, None),
        shm_bytes=reader.get(resources, "shm_size", values.byte_size, None),
        timeout_s=reader.get(limits, "timeout", _seconds, None),
        environment=read_environment(reader, top.get("environment"), scope),
        own=read_own(reader, top["ranklift"], scope) if "ranklift" in top else Own(),
        unused=tuple(reader.unused),
        places=reader.places,
    )
    if not reader.errors:
        with reader.collecting():
            check(job)
    if reader.errors:
        raise reader.errors[0] if len(reader.errors) == 1 else InputErrors(reader.errors)
    return job


def _check_unused(key: str, place: Place) -> None:
    """Raise an error for a value of the wrong type, though its key has no effect here."""
    if key in _BLOCKS:
        place.entries()
    else:
        values.text(place)


def _check_setting(root: Place, key: str, value: str) -> None:
    """Refuse an override of an input or output that the file lacks: nothing would use a new one."""
    group, _, rest = key.partition(".")
    name = rest.partition(".")[0]
    if group not in ("inputs", "outputs") or not name:
        return
    place = root.entries().get(group)
    known = sorted(place.entries()) if place is not None and place.is_mapping else []
    if name in known:
        return
    close = values.nearest(name, known)
    problem = f"the file has no {group[:-1]} {name}" + (f", only {', '.join(known)}" if known else "")
    remedy = f"did you mean {group}.{close}?" if close else f"add {name} under {group}: in the file"
    raise InputError(f"--set {key}", value, problem, remedy)


def _check_kind(entries: Mapping[str, Place]) -> None:
    """Refuse another kind of file with one error, as each of its keys would be unknown here."""
    remedy = "launch the file of a command job"
    if "type" in entries and values.text(entries["type"]) != "command":
        raise entries["type"].wrong("is not a kind of job that runs here", remedy)
    schema = entries.get("$schema")
    if schema is not None and "Component.schema" in schema.text:
        raise schema.wrong("is a component's", remedy)
    for key, what in _OTHERS.items():
        if key in entries and "command" not in entries:
            raise entries[key].wrong(f"is {what}", remedy)


def _command(reader: Reader, root: Place, top: Mapping[str, Place]) -> str:
    if "command" not in top:
        remedy = "add one, e.g. command: python train.py"
        reader.add(InputError(root.where, None, "the job has no command", remedy))
        return ""
    command = reader.get(top, "command", lambda place: values.text(place, replaced=True), "-")
    if not command.strip():
        reader.add(top["command"].wrong("is empty", "give the command line to run, e.g. python train.py"))
    size = len(command.encode("utf-8", "surrogatepass"))
    if size > LONGEST:
        problem = f"has {size} bytes; Linux's limit is {LONGEST}"
        reader.add(top["command"].wrong(problem, "put it into a script of the code"))
        return ""
    if "\0" in command:
        reader.add(top["command"].wrong("holds a NUL byte", "remove it"))
    return command


def _code(place: Place, scope: Scope) -> Path:
    value = values.without_file(values.text(place))
    if is_address(value) or value.startswith("git+"):
        raise place.wrong(
            "is not on this machine", "check it out and give that folder, relative to the job file"
        )
    found = values.local(place, value, scope)
    return found if found.is_dir() else Path(os.path.abspath(scope.named(value)))  # noqa: PTH100  (keeps its name)


def _seconds(place: Place) -> float:
    given = values.whole("give whole seconds, e.g. 3600", high=10**18)(place)
    if given > LONGEST_S:
        raise place.wrong("is more than 365 days", f"give at most {LONGEST_S}, or leave it out for no limit")
    return float(given)


def _tags(reader: Reader, place: Place | None) -> dict[str, str]:
    tags = reader.entries(place)
    reader.add(
        *(
            tag.wrong("has an expression in its name, which is not replaced", "write the name itself")
            for key, tag in tags.items()
            if MARK in key
        )
    )
    return {
        key: "" if tag.is_null else reader.get({key: tag}, key, values.text, "") for key, tag in tags.items()
    }
