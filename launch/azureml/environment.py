"""``Environment``: variables, and what the processes run in, as a job file has it."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

from launch.azureml.conda_dependencies import CondaDependencies
from launch.azureml.exceptions import NotSupported, UserErrorException
from launch.azureml.missing import Element, WithVariables

__all__ = [
    "DEFAULT_SHM_SIZE",
    "DOCKERFILE",
    "NO_DOCKER",
    "ContainerRegistry",
    "DockerSection",
    "Environment",
    "PythonSection",
]

DEFAULT_SHM_SIZE = "2g"
DOCKERFILE = "build/Dockerfile"
NO_DOCKER = {
    "build_context": "write a job file with environment: build: path:, and launch it with `fab launch`",
    "base_image_registry": "put the registry in front of the image's name",
    "platform": "leave it out: images are chosen for the nodes",
    "arguments": "leave them out: what InfiniBand and GPUs need is set for every container",
}
"""Settings of Docker without a counterpart, each with the remedy."""


@dataclass(eq=False, repr=False)
class PythonSection(Element):
    """The Python that runs the script.

    With ``user_managed_dependencies`` it is ``interpreter_path``, a path or a command on the nodes, or in the
    image; otherwise it has the ``conda_dependencies``, or those of the ``conda_dependencies_file``.
    """

    interpreter_path: str = "python"
    user_managed_dependencies: bool = False
    conda_dependencies: CondaDependencies = field(default_factory=CondaDependencies)
    conda_dependencies_file: str | PathLike[str] | None = None


@dataclass(eq=False, repr=False)
class ContainerRegistry(Element):
    """A registry with its login, which is refused when a run is submitted."""

    address: str | None = None
    username: str | None = None
    password: str | None = None
    registry_identity: Any = None

    def __bool__(self) -> bool:
        return any((self.address, self.username, self.password, self.registry_identity))


@dataclass(eq=False, repr=False)
class DockerSection(Element):
    """An image: its name or a Dockerfile; ``shm_size`` is the least size of the nodes' /dev/shm."""

    enabled: bool = False
    base_image: str | None = None
    base_dockerfile: str | PathLike[str] | None = None
    base_image_registry: Any = field(default_factory=ContainerRegistry)
    build_context: Any = None
    platform: Any = None
    shared_volumes: bool = True
    gpu_support: bool = False
    shm_size: str | None = DEFAULT_SHM_SIZE
    arguments: list[str] = field(default_factory=list)


class Environment(WithVariables):
    """A name, variables for every process, packages and an image."""

    def __init__(self, name: str, **kwargs: Any) -> None:
        self.name = name
        self.version: str | None = None
        self.python = PythonSection()
        self.docker = DockerSection()
        self._variables = {}
        self._reference = ""
        self._complete = True

    @staticmethod
    def get(workspace: Any, name: str, version: str | None = None, label: str | None = None) -> Environment:
        """Return an environment by name: ``environments/NAME.yml``, or one of Microsoft's with an image."""
        if label and version:
            remedy = "give one of the two"
            raise UserErrorException("label", label, "cannot be combined with a version", remedy)
        found = Environment(name)
        found.version = version
        found._reference = f"azureml:{name}" + (f":{version}" if version else f"@{label or 'latest'}")
        return found

    @staticmethod
    def from_conda_specification(name: str, file_path: str | PathLike[str]) -> Environment:
        """Return one with the packages of a conda file. Raise UserErrorException for an unreadable file."""
        made = Environment(name)
        made.python.conda_dependencies = CondaDependencies(file_path)
        return made

    @staticmethod
    def from_pip_requirements(
        name: str, file_path: str | PathLike[str], pip_version: str | None = None
    ) -> Environment:
        """Return one with a requirements file's packages. Raise UserErrorException for an unreadable file."""
        made = Environment(name)
        try:
            made.python.conda_dependencies._from_requirements(file_path)
        except OSError as error:
            problem = f"cannot be read: {error.strerror}"
            remedy = "name a requirements file"
            raise UserErrorException("file_path", str(file_path), problem, remedy) from None
        made.python.conda_dependencies.add_conda_package(f"pip={pip_version}" if pip_version else "pip")
        return made

    @staticmethod
    def from_docker_image(
        name: str,
        image: str,
        container_registry: Any = None,
        conda_specification: str | PathLike[str] | None = None,
        pip_requirements: str | PathLike[str] | None = None,
    ) -> Environment:
        """Return one with an image, and packages on top of it."""
        made = _with_packages(name, conda_specification, pip_requirements)
        made.docker.base_image = image
        made.docker.base_image_registry = container_registry
        return made

    @staticmethod
    def from_dockerfile(
        name: str,
        dockerfile: str | PathLike[str],
        conda_specification: str | PathLike[str] | None = None,
        pip_requirements: str | PathLike[str] | None = None,
    ) -> Environment:
        """Return one with a Dockerfile: its path, or its text. A script that submits it gives no packages."""
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

    def job_key(self) -> str | dict[str, Any] | None:
        """Return a job file's ``environment``; None where nothing is requested.

        A Dockerfile is :data:`DOCKERFILE` beside the job file. Raise NotSupported for what a job file cannot
        have.
        """
        python, docker = self.python, self.docker
        for key in ("build_context", "base_image_registry", "platform", "arguments"):
            if getattr(docker, key):
                raise NotSupported(f"DockerSection.{key}", NO_DOCKER[key])
        packages: str | dict[str, Any] | None = None
        if not python.user_managed_dependencies:
            packages = python.conda_dependencies.conda_file()
            if python.conda_dependencies_file is not None:
                packages = str(Path(python.conda_dependencies_file).absolute())
        if self._reference:
            if packages or docker.base_image or docker.base_dockerfile:
                remedy = f"write environments/{self.name}.yml with all of it, in Azure ML's format"
                raise NotSupported("a change of an environment that is stored under a name", remedy)
            return self._reference
        if docker.base_dockerfile:
            if packages or docker.base_image:
                remedy = "let the Dockerfile install the packages, from its own base image"
                raise NotSupported("a Dockerfile with packages or an image beside it", remedy)
            return {"build": {"path": str(Path(DOCKERFILE).parent)}}
        image = {"image": docker.base_image} if docker.base_image else {}
        return {**image, **({"conda_file": packages} if packages else {})} or None

    def dockerfile(self) -> str | None:
        """Return the text of the Dockerfile; None without one. Raise UserErrorException for a path that
        cannot be read."""
        given = self.docker.base_dockerfile
        if isinstance(given, str) and ("\n" in given or not Path(given).is_file()):
            return given
        try:
            return None if given is None else Path(given).read_text()
        except (OSError, UnicodeDecodeError) as error:
            problem = f"cannot be read: {getattr(error, 'strerror', None) or error}"
            raise UserErrorException("dockerfile", str(given), problem, "name a Dockerfile") from None

    def files(self) -> list[Path]:
        """Return the conda and requirements files that the script names."""
        python = self.python
        own = python.conda_dependencies_file
        return python.conda_dependencies.files() if own is None else [Path(own)]


def _with_packages(
    name: str, conda: str | PathLike[str] | None, pip: str | PathLike[str] | None
) -> Environment:
    if conda and pip:
        remedy = "give one of the two"
        raise UserErrorException(
            "pip_requirements", str(pip), "cannot be combined with a conda specification", remedy
        )
    if conda:
        return Environment.from_conda_specification(name, conda)
    return Environment.from_pip_requirements(name, pip) if pip else Environment(name)
