"""``CondaDependencies``: the packages that a script requests, as a job file's ``conda_file``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from launch.azureml.exceptions import UserErrorException
from launch.azureml.missing import Element

__all__ = ["CondaDependencies"]

_DEFAULT_PYTHON = "3.10.18"
"""What azureml-core fills in; as a request it would refuse nodes with another Python."""


class CondaDependencies(Element):
    """Packages by name, which the head of a job installs."""

    def __init__(
        self,
        conda_dependencies_file_path: str | PathLike[str] | None = None,
        _underlying_structure: Any = None,
    ) -> None:
        self._channels: list[str] = []
        self._conda: list[str] = []
        self._pip: list[str] = []
        self._python_version: str | None = None
        self._wants_python = False
        self._file: tuple[str, object] | None = None
        self._requirements: tuple[str, tuple[str, ...]] | None = None
        if conda_dependencies_file_path is not None:
            self._read(conda_dependencies_file_path)
            self._file = str(Path(conda_dependencies_file_path).absolute()), self._contents()
        self._complete = True

    def _read(self, path: str | PathLike[str]) -> None:
        import yaml

        try:
            read = yaml.safe_load(Path(path).read_text())
            self._channels = [str(channel) for channel in read.get("channels") or ()]
            for entry in read.get("dependencies") or ():
                if isinstance(entry, dict):
                    self._pip += [str(package) for package in entry.get("pip") or ()]
                else:
                    self.add_conda_package(str(entry))
        except (OSError, yaml.YAMLError, AttributeError, TypeError, ValueError, RecursionError) as error:
            problem = f"is not a conda specification: {error}"
            raise UserErrorException("file_path", str(path), problem, "name a conda YAML file") from None

    @staticmethod
    def create(
        pip_indexurl: str | None = None,
        pip_packages: Iterable[str] | None = None,
        conda_packages: Iterable[str] | None = None,
        python_version: str = _DEFAULT_PYTHON,
        pin_sdk_version: bool = True,
    ) -> CondaDependencies:
        """Return dependencies on these packages."""
        made = CondaDependencies()
        made.set_python_version(python_version)
        made._wants_python = python_version != _DEFAULT_PYTHON
        if pip_indexurl:
            made.add_pip_package(f"--index-url {pip_indexurl}")
        for package in conda_packages or ():
            made.add_conda_package(package)
        for package in pip_packages or ():
            made.add_pip_package(package)
        return made

    @property
    def conda_packages(self) -> Sequence[str]:
        """Conda packages as requested."""
        return tuple(self._conda)

    @property
    def pip_packages(self) -> Sequence[str]:
        """Pip packages as requested."""
        return tuple(self._pip)

    @property
    def conda_channels(self) -> Sequence[str]:
        """Channels of the conda packages."""
        return tuple(self._channels)

    def add_channel(self, channel: str) -> None:
        """Add a channel."""
        self._channels.append(channel)

    def add_conda_package(self, conda_package: str) -> None:
        """Add a conda package; ``python=…`` sets the version of Python."""
        name, _, version = conda_package.partition("=")
        if name.strip() == "python":
            self.set_python_version(version.lstrip("="))
        elif conda_package not in self._conda:
            self._conda.append(conda_package)

    def add_pip_package(self, pip_package: str) -> None:
        """Add a pip package."""
        if pip_package not in self._pip:
            self._pip.append(pip_package)

    def remove_conda_package(self, conda_package: str) -> None:
        """Remove a conda package, if it was requested."""
        self._conda = [package for package in self._conda if package != conda_package]

    def remove_pip_package(self, pip_package: str) -> None:
        """Remove a pip package, if it was requested."""
        self._pip = [package for package in self._pip if package != pip_package]

    def set_pip_requirements(self, pip_requirements: Iterable[str]) -> None:
        """Replace the pip packages by the lines of a requirements file, without comments."""
        lines = (line.partition(" #")[0].strip() for line in pip_requirements)
        self._pip = [line for line in lines if line and not line.startswith("#")]
        self._requirements = None

    def _from_requirements(self, path: str | PathLike[str]) -> None:
        """Take a requirements file's packages. Raise OSError."""
        self.set_pip_requirements(Path(path).read_text().splitlines())
        self._requirements = str(Path(path).absolute()), tuple(self._pip)

    def set_python_version(self, version: str) -> None:
        """Set the version of Python that conda would install."""
        self._python_version = version
        self._wants_python = True

    def get_python_version(self) -> str | None:
        """Return the version of Python that conda would install; None without one."""
        return self._python_version

    def conda_file(self) -> str | dict[str, Any] | None:
        """Return a job file's ``conda_file``: the file that all of it was read from, else its content.

        None where nothing is requested: Azure ML's default Python and pip itself are not requests.
        """
        if self._file is not None and self._file[1] == self._contents():
            return self._file[0]
        python = [f"python={self._python_version}"] if self._python_version and self._wants_python else []
        pip: list[str] = list(self._pip)
        if self._requirements is not None and set(self._requirements[1]) <= set(pip):
            # The file itself, as its lines may continue one another and name files beside it.
            path, lines = self._requirements
            pip = [f"-r {path}", *(package for package in pip if package not in lines)]
        conda = [package for package in self._conda if package != "pip"]
        if not (python or conda or pip):
            return None
        # azureml-core adds pip to a requirements file; as a request it would be another environment.
        own = [
            *python,
            *(self._conda if self._requirements is None else conda),
            *([{"pip": pip}] if pip else []),
        ]
        return {**({"channels": list(self._channels)} if self._channels else {}), "dependencies": own}

    def files(self) -> list[Path]:
        """Return the files that it was read from."""
        return [
            Path(path) for path, _ in (one for one in (self._file, self._requirements) if one is not None)
        ]

    def _contents(self) -> object:
        return tuple(self._channels), tuple(self._conda), tuple(self._pip), self._python_version
