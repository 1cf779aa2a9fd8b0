"""Which MPI a node has: on PATH with the job's Python first, else in an HPC image's environment modules."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from launch.remote.base import timing
from launch.remote.base.files import replace_file
from launch.remote.mpi.base import Mpi
from launch.remote.mpi.registry import MPIS, mpi_of

__all__ = ["CannotLaunch", "FoundMpi", "find_mpi"]

_MODULES_SCRIPT = "/etc/profile.d/modules.sh"
_MODULES_OWN = re.compile(r"_.*|LOADEDMODULES|LMOD.*|MODULE.*|BASH_.*|SHLVL|PWD|OLDPWD|MANPATH|COLUMNS|LINES")
_KEPT = "~/.ranklift/mpirun.json"


class CannotLaunch(Exception):
    """Nodes lack what starts the ranks."""


class FoundMpi:
    """An MPI found on this node: ``command`` starts it in ``env``, of which ranks need ``exports``; ``name``
    is that of its command line in the plan."""

    def __init__(self, kind: Mpi, version: str, command: str, env: dict[str, str]) -> None:
        self.kind, self.name, self.version = kind, kind.name(version), version
        self.command, self.env = command, env
        self.exports = _changed(env)

    @property
    def library_path(self) -> str:
        """Folder of its library where that is not a usual place; for ranks alone, as mpirun's ssh must not
        use it."""
        folder = f"{os.path.dirname(os.path.dirname(self.command))}/lib"
        library = self.kind.library
        return folder if library and "/" in self.command and os.path.exists(f"{folder}/{library}") else ""

    @property
    def title(self) -> str:
        """Its own name and version."""
        return f"{self.kind.title} {self.version}"


def find_mpi(known: list[str], first: str = "") -> FoundMpi:
    """Return this node's MPI, of those the plan has a command line for.

    ``first`` is a folder that comes before all others on PATH. One that PATH has anyway is called by its bare
    name: an absolute one makes Open MPI put that folder in front of every rank's PATH. Raise
    :class:`CannotLaunch` naming what was found instead.
    """
    by_name = {name: mpi_of(name) for name in known}
    kinds = list(dict.fromkeys(kind for kind in by_name.values() if kind is not None))
    unknown = [f"{name} (unknown)" for name, kind in by_name.items() if kind is None]
    wanted = " or ".join([*(kind.title for kind in kinds), *unknown])
    others = []
    for found, env in _candidates(kinds, first):
        output = _version_output(found, env)
        kind, version = _identify(output)
        if kind is not None and kind.name(version) in known:
            return FoundMpi(kind, version, "mpirun" if shutil.which("mpirun") == found else found, env)
        shown = f"{kind.title} {version}" if kind else repr((output.strip().splitlines() or [""])[0])
        if shown not in others:
            others.append(shown)
    if others:
        raise CannotLaunch(f"mpirun is {' and '.join(others)}; {wanted} is required")
    raise CannotLaunch(f"no mpirun was found; {wanted} is required")


def _identify(output: str) -> tuple[Mpi | None, str]:
    """Return the MPI that prints this as its version, and the version."""
    for mpi in MPIS.values():
        match = mpi.version.search(output)
        if match:
            return mpi, match[1]
    return None, ""


def _candidates(kinds: list[Mpi], first: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield every mpirun there is, with its environment. Modules are loaded only when nothing else serves."""
    env = dict(os.environ)
    usual = env.get("PATH", os.defpath)
    for folder in [*filter(None, [first]), *usual.split(":")]:
        found = shutil.which("mpirun", path=folder) if folder else None
        if found is not None:
            # Intel's is a script that looks for the rest on PATH
            yield found, env if found == shutil.which("mpirun") else dict(env, PATH=f"{folder}:{usual}")
    if not os.path.exists(_MODULES_SCRIPT):
        return
    for kind in kinds:
        for module in kind.modules:
            loaded = _module_environment(module)
            found = shutil.which("mpirun", path=loaded.get("PATH")) if loaded else None
            if loaded and found:
                yield found, loaded


def _module_environment(module: str) -> dict[str, str] | None:
    script = f". {_MODULES_SCRIPT} && module load {module} >/dev/null 2>&1 && env -0"
    done = _run(["bash", "-c", script], f"`module load {module}`")
    if done.returncode:
        return None
    pairs = (line.partition("=") for line in os.fsdecode(done.stdout).split("\0") if line)
    return {key: value for key, _, value in pairs}


def _run(
    argv: list[str], name: str, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(argv, env=env, capture_output=True, timeout=timing.MPI_LOOK_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise CannotLaunch(f"{name} did not end within {timing.MPI_LOOK_S} s") from error


def _changed(env: Mapping[str, str]) -> list[str]:
    """Return the variables that a module set or changed: ranks on other nodes have not loaded it."""
    changed = (key for key, value in env.items() if os.environ.get(key) != value)
    return sorted(key for key in changed if key != "PATH" and not _MODULES_OWN.fullmatch(key))


def _version_output(found: str, env: Mapping[str, str]) -> str:
    """Return what ``mpirun --version`` prints; kept as long as mpirun's file stays the same."""
    entry = os.stat(found)
    key: list[Any] = [os.path.realpath(found), entry.st_size, entry.st_mtime_ns]
    kept = os.path.expanduser(_KEPT)
    try:
        with open(kept, encoding="utf-8") as file:
            known = json.load(file)
        if known["of"] == key:
            return str(known["says"])
    except (OSError, ValueError, KeyError):
        pass  # the first time
    try:
        done = _run([found, "--version"], f"{found} --version", env)
    except OSError as error:
        return str(error)
    output = os.fsdecode(done.stdout + done.stderr)
    if _identify(output)[0]:
        with suppress(OSError):  # no room: mpirun is run again the next time
            replace_file(kept, json.dumps({"of": key, "says": output}).encode())
    return output
