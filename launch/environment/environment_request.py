"""What a head is asked for, so that it makes a job's environment."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from launch.environment.environment_spec import (
    Bare,
    BuildEnvironment,
    Environment,
    ImageEnvironment,
    PythonEnvironment,
)
from launch.errors import InputError
from launch.numbers import counted
from launch.remote.base.records import BARE, EnvironmentRecord
from launch.remote.environment.request import FORMS

if TYPE_CHECKING:
    from launch.remote.environment.request import EnvironmentRequest

__all__ = ["environment_text", "planned_record", "request_of", "with_runtime"]


def request_of(
    environment: Environment | None,
    nodes: Sequence[tuple[str, str]],
    *,
    context: str = "",
    wheels: Sequence[str] = (),
    channels: Sequence[str] = (),
    registries: Mapping[str, dict[str, str]] = MappingProxyType({}),
) -> EnvironmentRequest | None:
    """Return the request for an environment; None where the nodes themselves are enough.

    ``nodes`` are names and addresses; ``context``, ``wheels`` and ``channels`` are snapshots of a build's
    files and of folders of wheels and of conda's packages; ``registries`` are the secrets of registries.

    >>> request_of(Bare(), []), request_of(None, [])
    (None, None)
    >>> made = request_of(PythonEnvironment("torch", title="requirements.txt"), [("node000000", "10.0.0.4")])
    >>> made["kind"], made["requirements"], made["title"]
    ('python', 'torch', 'requirements.txt')
    """
    if environment is None or isinstance(environment, Bare):
        return None
    request: EnvironmentRequest = {
        "kind": "python",
        "requirements": "",
        "constraints": "",
        "python": "",
        "conda": "",
        "channels": list(channels),
        "find_links": list(wheels),
        "reference": "",
        "context": context,
        "dockerfile": "",
        "runtime": "",
        "title": environment.title,
        "nodes": list(nodes),
        "registries": dict(registries),
    }
    if isinstance(environment, BuildEnvironment):
        request["kind"], request["dockerfile"] = "build", environment.dockerfile
        request["runtime"] = environment.runtime
        return request
    packages: PythonEnvironment | None
    if isinstance(environment, ImageEnvironment):
        request["kind"], request["reference"] = "image", environment.reference
        request["runtime"] = environment.runtime
        packages = environment.python
    else:
        packages = environment
    if packages is not None:
        for key in ("requirements", "constraints", "python", "conda"):
            request[key] = getattr(packages, key)
    return request


def with_runtime(environment: Environment | None, runtime: str | None) -> Environment | None:
    """Return the environment with what ``--runtime`` asks to start ranks. Raise
    :class:`~launch.errors.InputError`.

    >>> with_runtime(ImageEnvironment("docker.io/library/python:3.12"), "charliecloud").runtime
    'charliecloud'
    """
    if runtime is None:
        return environment
    if not isinstance(environment, ImageEnvironment | BuildEnvironment):
        why = "is for container images, and this job runs in none"
        raise InputError("--runtime", runtime, why, "leave it out, or name an image with --image")
    if runtime not in FORMS:
        raise InputError("--runtime", runtime, "is not a runtime of containers", f"use {', '.join(FORMS)}")
    return replace(environment, runtime=runtime)


def planned_record(environment: Environment | None) -> EnvironmentRecord:
    """Return the record of an environment that the head has not made yet: without an id.

    >>> planned_record(ImageEnvironment("docker.io/library/python:3.12", title="python:3.12"))["kind"]
    'image'
    """
    if environment is None or isinstance(environment, Bare):
        return BARE
    kind: Literal["python", "image"] = "python" if isinstance(environment, PythonEnvironment) else "image"
    runtime = getattr(environment, "runtime", "") or BARE["runtime"]
    return {**BARE, "kind": kind, "runtime": runtime, "title": environment.title}


def environment_text(environment: Environment) -> str:
    """Return a line about an environment, for people.

    >>> environment_text(PythonEnvironment("torch\\nnumpy", python="3.10", title="conda.yml"))
    'conda.yml: Python 3.10, 2 packages of pip'
    >>> environment_text(ImageEnvironment("docker.io/library/python:3.12", title="azureml:mine"))
    'azureml:mine: image docker.io/library/python:3.12'
    """
    if isinstance(environment, Bare):
        return "the nodes as they are"
    if isinstance(environment, BuildEnvironment):
        return f"image built from {environment.context / environment.dockerfile}"
    if isinstance(environment, ImageEnvironment):
        own = "" if environment.title in environment.reference else f"{environment.title}: "
        more = f", with {_packages(environment.python)}" if environment.python else ""
        return f"{own}image {environment.reference}{more}"
    return f"{environment.title}: {_packages(environment)}" if environment.title else _packages(environment)


def _packages(environment: PythonEnvironment) -> str:
    pip = [line for line in environment.requirements.splitlines() if not line.startswith("-")]
    conda = json.loads(environment.conda)["dependencies"] if environment.conda else []
    parts = [f"Python {environment.python}" if environment.python else ""]
    parts += [f"{counted(len(conda), 'package')} of conda" if conda else ""]
    parts += [f"{counted(len(pip), 'package')} of pip" if pip else ""]
    parts += [f"wheels of {folder}" for folder in environment.find_links]
    parts += [f"channel {folder}" for folder in environment.channels]
    return ", ".join(filter(None, parts)) or "the nodes' own Python"
