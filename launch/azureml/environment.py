"""``Environment``: its variables and its own Python carry over, its packages do not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from launch.azureml.conda_dependencies import CondaDependencies
from launch.azureml.element import Element
from launch.azureml.exceptions import UserErrorException

__all__ = ["DockerSection", "Environment", "PythonSection"]

_SHM_SIZE = "2g"


class PythonSection(Element):
    """The Python that runs the script.

    With ``user_managed_dependencies`` it is ``interpreter_path``, a path or a command on the nodes;
    otherwise it is the nodes' own ``python``, and a notice names the ``conda_dependencies``.
    """

    def __init__(self) -> None:
        self.interpreter_path = "python"
        self.user_managed_dependencies = False
        self.conda_dependencies: CondaDependencies = CondaDependencies()
        self.conda_dependencies_file: str | None = None
        self._complete = True


class DockerSection(Element):
    """An image's settings; only ``shm_size`` has an effect: the least size of the nodes' /dev/shm."""

    def __init__(self) -> None:
        self.enabled = False
        self.base_image: str | None = None
        self.base_dockerfile: str | None = None
        self.base_image_registry: Any = None
        self.build_context: Any = None
        self.platform: Any = None
        self.shared_volumes = True
        self.gpu_support = False
        self.shm_size: str | None = _SHM_SIZE
        self.arguments: list[str] = []
        self._complete = True


class Environment(Element):
    """A name, variables for every process, and a Python; nothing is built or installed."""

    def __init__(self, name: str, **kwargs: Any) -> None:
        self.name = name
        self.version: str | None = None
        self.python = PythonSection()
        self.docker = DockerSection()
        self._variables: dict[str, str] = {}
        self._kept_elsewhere = False
        self._complete = True

    @property
    def environment_variables(self) -> dict[str, str]:
        """Variables of every process of a run."""
        return self._variables

    @environment_variables.setter
    def environment_variables(self, variables: Mapping[str, str]) -> None:
        self._variables = dict(variables)

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
            raise UserErrorException(
                "file_path", str(file_path), problem, "name a requirements file"
            ) from None
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
        made = Environment(new_name)
        made.version, made.python, made.docker = self.version, self.python, self.docker
        made.environment_variables = self._variables
        made._kept_elsewhere = self._kept_elsewhere
        return made

    def register(self, workspace: Any) -> Environment:
        """Return the environment itself, as Ranklift does not store environments."""
        return self

    def lost(self) -> Sequence[str]:
        """Return a few words for each part that does not carry over."""
        parts = []
        if self._kept_elsewhere:
            parts.append("what Azure ML keeps under this name")
        if not self.python.user_managed_dependencies:
            parts += self.python.conda_dependencies.asked_for()
        docker = self.docker
        if docker.base_image:
            parts.append(f"image {docker.base_image}")
        parts += [
            what
            for what, given in (
                ("its Dockerfile", docker.base_dockerfile),
                ("its build context", docker.build_context),
                ("arguments for Docker", docker.arguments),
            )
            if given
        ]
        return parts


def _with_packages(name: str, conda: str | None, pip: str | None) -> Environment:
    if conda and pip:
        remedy = "give one of the two"
        raise UserErrorException(
            "pip_requirements", pip, "cannot be combined with a conda specification", remedy
        )
    if conda:
        return Environment.from_conda_specification(name, conda)
    return Environment.from_pip_requirements(name, pip) if pip else Environment(name)
