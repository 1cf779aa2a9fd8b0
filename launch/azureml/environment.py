"""``Environment``: its variables and its own Python carry over, its packages do not."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from launch.azureml.conda_dependencies import CondaDependencies
from launch.azureml.exceptions import UserErrorException
from launch.azureml.missing import Element, WithVariables

__all__ = ["DEFAULT_SHM_SIZE", "DockerSection", "Environment", "PythonSection"]

DEFAULT_SHM_SIZE = "2g"


@dataclass(eq=False, repr=False)
class PythonSection(Element):
    """The Python that runs the script.

    With ``user_managed_dependencies`` it is ``interpreter_path``, a path or a command on the nodes;
    otherwise it is the nodes' own ``python``, and a notice names the ``conda_dependencies``.
    """

    interpreter_path: str = "python"
    user_managed_dependencies: bool = False
    conda_dependencies: CondaDependencies = field(default_factory=CondaDependencies)
    conda_dependencies_file: str | None = None


@dataclass(eq=False, repr=False)
class DockerSection(Element):
    """An image's settings; only ``shm_size`` has an effect: the least size of the nodes' /dev/shm."""

    enabled: bool = False
    base_image: str | None = None
    base_dockerfile: str | None = None
    base_image_registry: Any = None
    build_context: Any = None
    platform: Any = None
    shared_volumes: bool = True
    gpu_support: bool = False
    shm_size: str | None = DEFAULT_SHM_SIZE
    arguments: list[str] = field(default_factory=list)


class Environment(WithVariables):
    """A name, variables for every process, and a Python; nothing is built or installed."""

    def __init__(self, name: str, **kwargs: Any) -> None:
        self.name = name
        self.version: str | None = None
        self.python = PythonSection()
        self.docker = DockerSection()
        self._variables = {}
        self._kept_elsewhere = False
        self._complete = True

    @staticmethod
    def get(workspace: Any, name: str, version: str | None = None, label: str | None = None) -> Environment:
        """Return an environment by name alone: what Azure ML stores under the name does not carry over."""
        if label and version:
            remedy = "give one of the two"
            raise UserErrorException("label", label, "cannot be combined with a version", remedy)
        found = Environment(name)
        found.version = version
        found._kept_elsewhere = True
        return found

    @staticmethod
    def from_conda_specification(name: str, file_path: str) -> Environment:
        """Return one with the packages of a conda file. Raise UserErrorException for an unreadable file."""
        made = Environment(name)
        made.python.conda_dependencies = CondaDependencies(file_path)
        return made

    @staticmethod
    def from_pip_requirements(name: str, file_path: str, pip_version: str | None = None) -> Environment:
        """Return one with a requirements file's packages. Raise UserErrorException for an unreadable file."""
        try:
            lines = Path(file_path).read_text().splitlines()
        except OSError as error:
            problem = f"cannot be read: {error.strerror}"
            remedy = "name a requirements file"
            raise UserErrorException("file_path", str(file_path), problem, remedy) from None
        made = Environment(name)
        made.python.conda_dependencies.set_pip_requirements(lines)
        made.python.conda_dependencies.add_conda_package(f"pip={pip_version}" if pip_version else "pip")
        return made

    @staticmethod
    def from_docker_image(
        name: str,
        image: str,
        container_registry: Any = None,
        conda_specification: str | None = None,
        pip_requirements: str | None = None,
    ) -> Environment:
        """Return one with an image's name, which a notice will report."""
        made = _with_packages(name, conda_specification, pip_requirements)
        made.docker.base_image = image
        made.docker.base_image_registry = container_registry
        return made

    @staticmethod
    def from_dockerfile(
        name: str,
        dockerfile: str,
        conda_specification: str | None = None,
        pip_requirements: str | None = None,
    ) -> Environment:
        """Return one with a Dockerfile, which a notice will report."""
        made = _with_packages(name, conda_specification, pip_requirements)
        made.docker.base_dockerfile = dockerfile
        return made

    def clone(self, new_name: str) -> Environment:
        """Return a copy under another name."""
        made = copy.copy(self)
        made.name, made.environment_variables = new_name, self._variables
        return made

    def register(self, workspace: Any) -> Environment:
        """Return the environment itself, as Ranklift does not store environments."""
        return self

    def lost(self) -> Sequence[str]:
        """Return a few words for each part that does not carry over."""
        python, docker = self.python, self.docker
        parts = (
            ("what Azure ML keeps under this name", self._kept_elsewhere),
            *((what, not python.user_managed_dependencies) for what in python.conda_dependencies.asked_for()),
            (f"image {docker.base_image}", docker.base_image),
            ("its Dockerfile", docker.base_dockerfile),
            ("its build context", docker.build_context),
            ("arguments for Docker", docker.arguments),
        )
        return [what for what, is_lost in parts if is_lost]


def _with_packages(name: str, conda: str | None, pip: str | None) -> Environment:
    if conda and pip:
        remedy = "give one of the two"
        raise UserErrorException(
            "pip_requirements", pip, "cannot be combined with a conda specification", remedy
        )
    if conda:
        return Environment.from_conda_specification(name, conda)
    return Environment.from_pip_requirements(name, pip) if pip else Environment(name)
