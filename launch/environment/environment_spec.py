"""What a job's ranks run in, as the user asked for it; a head makes it once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from launch.errors import InputError

__all__ = ["MOST_FOLDERS", "Bare", "BuildEnvironment", "Environment", "ImageEnvironment", "PythonEnvironment"]

MOST_FOLDERS = 4
"""Folders of this machine that packages come from: a head keeps :data:`launch.remote.store.store.KEEP`
snapshots, and each folder is one, as is the job's code."""


@dataclass(frozen=True, slots=True)
class PythonEnvironment:
    """Packages for a Python of their own."""

    requirements: str = ""
    """pip's requirements, one a line, without comments; files that they include are inlined."""
    constraints: str = ""
    """The lines of pip's constraint files, without comments."""
    python: str = ""
    """The wanted version, such as ``3.10``; empty for the node's own python3."""
    conda: str = ""
    """JSON with ``channels`` and ``dependencies``, without pip's part and Python; empty where pip installs
    all of it. A channel ``folder:0`` is the first of ``channels``."""
    channels: tuple[Path, ...] = ()
    """Folders of conda's packages on this machine, which are sent along."""
    find_links: tuple[Path, ...] = ()
    """Folders of wheels on this machine, which are sent along."""
    title: str = ""
    """For people: where it comes from, such as ``requirements.txt``."""

    def __post_init__(self) -> None:
        """Raise :class:`~launch.errors.InputError` for more folders than a head keeps."""
        folders = len(self.find_links) + len(self.channels)
        if folders > MOST_FOLDERS:
            problem = f"are {folders} folders of this machine; a job may have {MOST_FOLDERS}"
            remedy = "put the wheels into one folder, and the packages of conda into one channel"
            raise InputError("--find-links and the conda file's channels", None, problem, remedy)


@dataclass(frozen=True, slots=True)
class ImageEnvironment:
    """A container image."""

    reference: str
    """``REGISTRY/NAME[:TAG][@DIGEST]``."""
    python: PythonEnvironment | None = None
    """Packages installed on top of the image."""
    title: str = ""
    runtime: str = ""
    """What starts the ranks: ``docker``, ``enroot`` or ``charliecloud``; empty for what the head has."""


@dataclass(frozen=True, slots=True)
class BuildEnvironment:
    """A container image that the head builds."""

    context: Path
    """The folder of the build's files on this machine."""
    dockerfile: str = "Dockerfile"
    """Path of the Dockerfile, relative to that folder."""
    title: str = ""
    runtime: str = ""
    """What starts the ranks: ``docker``, ``enroot`` or ``charliecloud``; empty for what the head has."""


@dataclass(frozen=True, slots=True)
class Bare:
    """The nodes themselves, with what they have: asked for by the user."""

    title: str = "bare"


Environment = PythonEnvironment | ImageEnvironment | BuildEnvironment | Bare
