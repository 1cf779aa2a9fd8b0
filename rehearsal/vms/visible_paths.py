"""Paths of this machine that nodes see: its software and their Python environments, nothing else.

Nodes stand for other machines, but their processes run as this user: a job that reads ``~/.ssh``, another
project's keys or a file below ``/srv`` finds nothing on Azure, and must find nothing here. So the visible
paths are listed, not the hidden ones: a folder that is not considered is not visible.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["VARIABLES", "VisiblePaths", "environments", "visible_paths"]

VARIABLES = (
    "AWS_CONFIG_FILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AZURE_CONFIG_DIR",
    "DOCKER_CONFIG",
    "GNUPGHOME",
    "KUBECONFIG",
    "PULUMI_HOME",
    "XDG_CONFIG_HOME",
)
"""Environment variables by which credentials may lie among the software."""

_SYSTEM = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32")
"""The folders, or links into them, that a distribution's packages fill."""
_PACKAGES = "var/lib/dpkg"
"""By which ``dpkg`` on a node knows what is installed."""
_SOURCES = ("usr/src", "usr/local/src")
"""Folders among the system's software into which people check out code."""
_ADDED = "opt"
"""Folder with one folder for each installed software."""
_MODULES = ("usr/lib/python3*/dist-packages", "usr/local/lib/python3*/dist-packages")
_FRAMEWORKS = ("functorch", "mpi4py", "numpy", "tensorflow", "torch", "torchgen")
"""Modules that Debian's packages may have put beside the system's own, as ``make frameworks`` does."""
_PARTS = ("bin", "lib", "lib64", "include", "share")
"""Of an interpreter that is installed in a home folder or in a project itself."""


@dataclass(frozen=True, slots=True)
class VisiblePaths:
    """Paths of this machine on a node, all read-only."""

    shown: tuple[Path, ...] = ()
    """Files and folders that are there under their own path, with everything in them."""
    links: tuple[tuple[Path, str], ...] = ()
    """Symbolic links, with what each has for its target."""
    hidden: tuple[Path, ...] = ()
    """Below the shown folders: files and folders that are empty to nodes."""
    kept: tuple[Path, ...] = ()
    """Folders that are there whatever they lie in: hidden ones, or ones that a node has of its own."""
    removed: tuple[Path, ...] = ()
    """Below the shown folders: what nodes do not have. (An empty folder is a module to Python.)"""


def visible_paths(
    environment: Mapping[str, str],
    project: Path,
    needed: tuple[Path, ...],
    machine: Path = Path("/"),
    *,
    bare: bool = False,
) -> VisiblePaths:
    """Return what the nodes of a ``project``'s rehearsal see of the ``machine``.

    That is the software that is installed for everyone, without the project, the user's home folders and what
    :data:`VARIABLES` name, and the ``needed`` Python environments with the interpreters that they link to.
    The system's Python of ``bare`` nodes lacks the frameworks that this machine's may have.
    """
    private = [project.resolve(), *_homes(environment)]
    private += [
        Path(one).resolve()
        for name in VARIABLES
        for one in environment.get(name, "").split(os.pathsep)
        if one and Path(one).is_absolute()
    ]
    shown, links = [], []
    for name in _SYSTEM:
        path = machine / name
        if path.is_symlink() and path.resolve().is_relative_to(machine / "usr"):
            links.append((path, str(path.readlink())))
        elif path.is_dir():
            shown.append(path)
    if (machine / _PACKAGES).is_dir():
        shown.append(machine / _PACKAGES)
    added = sorted((machine / _ADDED).iterdir()) if (machine / _ADDED).is_dir() else []
    shown += [path for path in added if _is_there(path) and not _is_work(path, private)]
    hidden = list(dict.fromkeys([*(machine / name for name in _SOURCES), *private]))
    system = (machine, machine / "usr", machine / "usr/local")
    kept = [part for path in needed for part in _prefixes(path) if part not in system]
    return VisiblePaths(
        tuple(shown),
        tuple(links),
        # A variable may name a folder that is as good as all software: that one is not hidden.
        tuple(
            path
            for path in hidden
            if path.exists() and any(path != one and path.is_relative_to(one) for one in shown)
        ),
        tuple(dict.fromkeys(part for path in kept for part in _parts(path, private))),
        tuple(_frameworks(machine)) if bare else (),
    )


def environments(node_python: Path) -> tuple[Path, ...]:
    """Return the nodes' own environment and the virtual environments that lie beside it.

    A job may ask for one of these; all are found by their ``pyvenv.cfg``.
    """
    found = [node_python]
    for folder in dict.fromkeys((node_python.parent, node_python.resolve().parent)):
        found += sorted(path.parent for path in folder.glob("*/pyvenv.cfg"))
    return tuple(dict.fromkeys(found))


def _frameworks(machine: Path) -> Iterator[Path]:
    for pattern in _MODULES:
        for folder in sorted(machine.glob(pattern)):
            yield from (folder / name for name in _FRAMEWORKS if (folder / name).is_dir())


def _is_there(path: Path) -> bool:
    try:
        return path.is_dir() or path.is_file()
    except OSError:
        return False  # not even its owner may look at it, as at some mounts of FUSE


def _is_work(path: Path, private: list[Path]) -> bool:
    """Whether people work in a folder, rather than use what is installed in it."""
    real = path.resolve()
    if any(one.is_relative_to(real) or real.is_relative_to(one) for one in private if one != Path("/")):
        return True
    return any(next(real.glob(pattern), None) for pattern in (".ranklift", "*/.ranklift"))


def _homes(environment: Mapping[str, str]) -> Iterator[Path]:
    if environment.get("HOME"):
        yield Path(environment["HOME"]).resolve()
    try:
        yield Path(pwd.getpwuid(os.getuid()).pw_dir).resolve()
    except KeyError:
        return  # a container's user may have no entry


def _prefixes(python: Path) -> Iterator[Path]:
    """Yield an environment's folder and those of the interpreters that it leads to, link by link.

    Each of them may be named by a link that has to lead somewhere on a node, too.
    """
    # Its programs name the Python of the folder that it was made in, be it reached by a link or not.
    yield from dict.fromkeys((python, python.resolve()))
    program = python / "bin" / "python"
    for _ in range(40):  # as many as the kernel follows
        if not program.is_symlink():
            break
        program = Path(os.path.normpath(program.parent / program.readlink()))
        yield program.parent.parent
    yield program.resolve().parent.parent


def _parts(prefix: Path, private: list[Path]) -> Iterator[Path]:
    if any(one.is_relative_to(prefix.resolve()) for one in private):
        yield from (prefix / name for name in _PARTS if (prefix / name).is_dir())
    elif prefix.is_dir():
        yield prefix
