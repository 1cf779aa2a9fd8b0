"""The job file of a ``ScriptRunConfig``, as data and without I/O on the cluster."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launch.azureml.command_line import joined, line, strings
from launch.azureml.dataset import bind_data
from launch.azureml.environment import DEFAULT_SHM_SIZE, NO_DOCKER
from launch.azureml.exceptions import NotSupported, UserErrorException
from launch.azureml.runconfig import DISTRIBUTED, RunConfiguration
from launch.azureml.script_run_config import ScriptRunConfig

__all__ = ["Submission", "in_script_words", "submission"]

_NAMES = {
    "command": "command",
    "code": "source_directory",
    "distribution": "distributed_job_config",
    "environment.conda_file": "environment.python.conda_dependencies",
    "environment.image": "environment.docker.base_image",
    "environment.build": "environment.docker.base_dockerfile",
    "inputs": "arguments",
    "limits.timeout": "max_run_duration_seconds",
    "outputs": "arguments",
    "ranklift.python": "RANKLIFT_PYTHON or interpreter_path",
    "resources.instance_count": "node_count",
    "resources.shm_size": "docker_runtime_config.shm_size",
}
"""What the script gives, by the keys of the job file that are made of it; others are the same."""
_REMEDIES = (
    (re.compile("launch with --environment bare"), "set RANKLIFT_PYTHON=python3 for the nodes' own"),
    (re.compile(r"give --allow-path \S+ if it may be sent"), "copy it beside the file that names it"),
    (re.compile(r"give --fill \w+ to fill it in"), "write its value"),
)
"""Remedies that only a command line has, and a script's."""
_OUTSIDE = "read from outside of the repository: "
"""Begins a line about a file that the script itself has named."""
_COMMAND = re.compile(r"(python|pypy)[^/]*")
_MARK = re.compile(r"\$(?=\{\{|\[\[)")
"""The ``$`` that begins an input's name or an optional part in a job file."""


@dataclass(frozen=True, slots=True)
class Submission:
    """A run to launch."""

    job: dict[str, Any]
    """The job file: an Azure ML command job."""
    stack: str | None
    """The stack's name; None for the chosen one."""
    notices: tuple[str, ...]
    """Notices of settings that do not carry over."""
    dockerfile: str | None = None
    """Text of the Dockerfile that the job file names."""
    files: tuple[str, ...] = ()
    """Files that the script names, and the job file in its turn."""


def submission(
    config: ScriptRunConfig, experiment: str, tags: Mapping[str, Any], environ: Mapping[str, str]
) -> Submission:
    """Return the submission of ``config``.

    RANKLIFT_STACK in ``environ`` names the stack, whatever the compute target's name; RANKLIFT_PYTHON names
    the nodes' Python. Raise UserErrorException naming the key, NotSupported for what has no counterpart.
    """
    run = config.run_config
    _refuse_data(run)
    source = Path(config.source_directory).expanduser().resolve()
    if not source.is_dir():
        remedy = "give the folder with the code"
        raise UserErrorException("source_directory", str(config.source_directory), "is not a folder", remedy)
    distribution, nodes = _distribution(run)
    words, data, texts = bind_data(config.command or config.arguments)
    interpreter, python = _python(run, environ)
    stack, notices = _stack(run.target, environ)
    environment = run.environment.job_key()
    both = {**run.environment.environment_variables, **run.environment_variables}
    variables = {str(name): str(value) for name, value in both.items()}
    # The default size is not a request: as a requirement it would refuse nodes with less.
    shm_size = run.docker.shm_size if run.docker.shm_size != DEFAULT_SHM_SIZE else None
    literal = {name: _MARK.sub("${{inputs.dollar}}", value) for name, value in variables.items()}
    job: dict[str, Any] = {
        "command": _command(config, source, interpreter, words, texts),
        "code": str(source),
        "experiment_name": experiment,
        "tags": {str(key): str(value) for key, value in tags.items()},
        "inputs": {**({"dollar": "$"} if literal != variables else {}), **data.get("inputs", {})},
        "outputs": data.get("outputs"),
        "environment": environment,
        "environment_variables": literal,
        "distribution": distribution,
        "resources": {"instance_count": nodes, **({"shm_size": str(shm_size)} if shm_size else {})},
        "limits": {"timeout": run.max_run_duration_seconds} if run.max_run_duration_seconds else None,
        "ranklift": {"python": python} if python else None,
    }
    return Submission(
        {key: value for key, value in job.items() if value},
        stack,
        (*notices, *_lost(run)),
        run.environment.dockerfile() if environment else None,
        tuple(str(path.absolute()) for path in run.environment.files()) if environment else (),
    )


def in_script_words(text: str, path: str, job_file: str) -> str:
    """Return what ``fab launch`` says of a run's job file at ``path``, whose text is ``job_file``, in the
    words of the script; "" for a line that is not for its user.

    >>> in_script_words("/job.yml, line 4: limits.timeout = 0: is too short", "/job.yml", "")
    'max_run_duration_seconds = 0: is too short'
    >>> in_script_words("x is not in the code (/job.yml, line 2)", "/job.yml", "command: x\\ncode: /src\\n")
    'x is not in the code (source_directory)'
    """
    if text.startswith(_OUTSIDE):
        return ""
    lines = job_file.splitlines()

    def named(found: re.Match[str]) -> str:
        above = "\n".join(lines[: int(found[1] or 0)])
        key = found[2] or next(iter(re.findall(r"^\w+", above, re.MULTILINE)[-1:]), "the run")
        part = next((one for one in _NAMES if key == one or key.startswith((f"{one}.", f"{one}["))), "")
        return _NAMES[part] + key[len(part) :] if part else key

    place = rf"{re.escape(path)}(?:, line (\d{{1,9}}))?(?:: ([\w.\[\]-]+)(?= = |: |\)))?"
    text = re.sub(place, named, text)
    for remedy, own in _REMEDIES:
        text = remedy.sub(own, text)
    return text


def _command(
    config: ScriptRunConfig, source: Path, interpreter: str, words: Any, texts: Mapping[str, str]
) -> str:
    """Return the job's line of the command or the arguments; ``texts`` replace words that stand for data."""
    if config.command:
        if config.script or config.arguments:
            key = "script" if config.script else "arguments"
            remedy = "give either script and arguments, or command"
            raise UserErrorException(
                key, repr(getattr(config, key)), "cannot be combined with a command", remedy
            )
        return _with_data(joined(words), texts)
    if not config.script:
        remedy = "give a script, or a command"
        raise UserErrorException("script", None, "is not given", remedy)
    script = (source / config.script).resolve()
    if not script.is_file() or not script.is_relative_to(source):
        remedy = "give its path from the source directory"
        raise UserErrorException("script", config.script, f"is not a file in {source}", remedy)
    home, rest = ("~/", interpreter[2:]) if interpreter.startswith("~/") else ("", interpreter)
    made = home + line([rest, str(script.relative_to(source)), *strings(words)])
    return _with_data(made, texts)


def _with_data(made: str, texts: Mapping[str, str]) -> str:
    for word, text in texts.items():
        made = made.replace(word, text)
    return made


def _distribution(run: RunConfiguration) -> tuple[dict[str, Any] | None, int]:
    """Return a job file's distribution and the number of nodes."""
    communicator = str(run.communicator).lower()
    if communicator in ("none", ""):
        nodes = _count("node_count", run.node_count)
        if nodes > 1:
            problem = "several nodes need a distributed job"
            raise UserErrorException("node_count", nodes, problem, "give a distributed_job_config")
        return None, nodes
    kinds = {name.lower(): kind for kind, (_, _, names) in DISTRIBUTED.items() for name in names}
    if communicator not in kinds:
        remedy = "use MpiConfiguration, PyTorchConfiguration or TensorflowConfiguration"
        raise NotSupported(f"the communicator {run.communicator}", remedy)
    kind = kinds[communicator]
    job = getattr(run, kind)
    if kind == "tensorflow":
        workers = _count("worker_count", job.worker_count)
        servers = _count("parameter_server_count", job.parameter_server_count, least=0)
        return {"type": kind, "worker_count": workers, "parameter_server_count": servers}, workers
    nodes = _nodes(run, job.node_count)
    if kind == "mpi":
        count = _count("process_count_per_node", job.process_count_per_node)
    elif job.process_count is None:
        return {"type": kind}, nodes
    else:
        total = _count("process_count", job.process_count)
        if total % nodes:
            problem = f"does not divide by node_count = {nodes}"
            remedy = "give a multiple of node_count: process_count is the total over all nodes"
            raise UserErrorException("process_count", total, problem, remedy)
        count = total // nodes
    return {"type": kind, "process_count_per_instance": count}, nodes


def _nodes(run: RunConfiguration, configured: Any) -> int:
    """Return the node count that RunConfiguration and the job's configuration agree on; 1 may mean unset."""
    given, own = _count("node_count", run.node_count), _count("node_count", configured)
    if 1 < given != own > 1:
        problem = f"the run configuration has node_count = {given}"
        raise UserErrorException("node_count", own, problem, "give one number")
    return max(given, own)


def _count(key: str, value: Any, least: int = 1) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise UserErrorException(key, repr(value), f"is not a number of at least {least}", "give one")
    return value


def _python(run: RunConfiguration, environ: Mapping[str, str]) -> tuple[str, str | None]:
    """Return the interpreter at the start of the script's line, and the Python that the job names."""
    python = run.environment.python
    if python.user_managed_dependencies and python.interpreter_path not in ("", "python"):
        path = python.interpreter_path
        if "/" in path and not path.startswith(("/", "~/")):
            remedy = "give its whole path on the nodes, or a command"
            raise UserErrorException("interpreter_path", path, "is a relative path", remedy)
        return path, path
    named = environ.get("RANKLIFT_PYTHON")
    if not named:
        return "python", None
    if "/" in named and not named.startswith("~"):
        named = str(Path(named).absolute())
    return (named if _COMMAND.fullmatch(Path(named).name) else "python"), named


def _stack(target: str, environ: Mapping[str, str]) -> tuple[str | None, tuple[str, ...]]:
    chosen = environ.get("RANKLIFT_STACK") or None
    if target == "local":
        return chosen, ()
    if chosen in (None, target):
        return target, ()
    return chosen, (f"compute target {target}: runs go to stack {chosen}, which RANKLIFT_STACK names",)


def _lost(run: RunConfiguration) -> tuple[str, ...]:
    notices = []
    if run.docker.use_docker and not run.environment.job_key():
        notices.append("docker_runtime_config: the environment names no image: the job runs on the nodes")
    if run.priority is not None:
        notices.append(f"priority {run.priority}: does not carry over: jobs take their turns as they come")
    if run.credential_passthrough:
        notices.append("credential_passthrough: does not carry over: a node's own identity is used")
    return tuple(notices)


def _refuse_data(run: RunConfiguration) -> None:
    if run.docker.arguments:
        raise NotSupported("DockerConfiguration.arguments", NO_DOCKER["arguments"])
    for key in ("data", "data_references", "output_data"):
        if getattr(run, key):
            remedy = "put the dataset into the arguments: Dataset.File.from_files(…).as_download()"
            raise NotSupported(f"RunConfiguration.{key}", remedy)
