"""Which MPI a node has: on PATH with the job's Python first, else in an HPC image's environment modules."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from launch.remote.base.whole_file import replace_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["CannotLaunch", "Mpi", "find_mpi", "title"]

_MODULES_SCRIPT = "/etc/profile.d/modules.sh"
_MODULES = {
    "openmpi": ("mpi/hpcx", "mpi/openmpi"),
    "mpich": ("mpi/mvapich2", "mpi/mvapich"),
    "intelmpi": ("mpi/impi-2021", "mpi/impi"),
}
"""As Azure's HPC images name them, the first choice first."""
_MODULES_OWN = re.compile(r"_.*|LOADEDMODULES|LMOD.*|MODULE.*|BASH_.*|SHLVL|PWD|OLDPWD|MANPATH|COLUMNS|LINES")
_SAYS = (
    ("openmpi", re.compile(r"\(Open MPI\) (\d\S+)")),
    ("intelmpi", re.compile(r"Intel\(R\) MPI Library.*Version (\d\S+)")),
    ("mpich", re.compile(r"HYDRA build details:\s+Version:\s+(\d\S+)")),
)
_TITLES = {"openmpi": "Open MPI", "mpich": "MPICH", "intelmpi": "Intel MPI"}
_KEPT = "~/.ranklift/mpirun.json"
_LIMIT_S = 20


class CannotLaunch(Exception):
    """Nodes lack what starts the ranks."""


class Mpi:
    """An MPI found on this node: ``command`` starts it in ``env``, of which ranks need ``exports``.

    ``name`` is that of its command line in the plan: ``openmpi-4``, ``openmpi-5``, ``mpich``, ``intelmpi``.
    """

    def __init__(self, name: str, version: str, command: str, env: dict[str, str]) -> None:
        self.name, self.version, self.command, self.env = name, version, command, env
        self.exports = _changed(env)

    @property
    def library_path(self) -> str:
        """Where programs that were built with this MPI find its library, when it is in no usual place.

        For ranks alone: mpirun's ssh must not take its libraries from there. Open MPI sees to it itself.
        """
        folder = f"{os.path.dirname(os.path.dirname(self.command))}/lib"
        own = "/" in self.command and not self.name.startswith("openmpi")
        return folder if own and os.path.exists(f"{folder}/libmpi.so.12") else ""

    @property
    def title(self) -> str:
        """For people, with its version."""
        return f"{title(self.name)} {self.version}"


def title(name: str) -> str:
    """An MPI's own name.

    >>> title("openmpi-4"), title("mpich")
    ('Open MPI', 'MPICH')
    """
    return _TITLES[name.partition("-")[0]]


def find_mpi(known: list[str], first: str = "") -> Mpi:
    """This node's MPI, of those the plan has a command line for.

    ``first`` is a folder that comes before all others on PATH. One that PATH has anyway is called by its bare
    name: an absolute one makes Open MPI put that folder in front of every rank's PATH. Raises
    :class:`CannotLaunch` naming what was found instead.
    """
    wanted = " or ".join(dict.fromkeys(title(name) for name in known))
    others = []
    for found, env in _candidates(known, first):
        says = _version(found, env)
        name, version = _identify(says)
        if name in known:
            return Mpi(name, version, "mpirun" if shutil.which("mpirun") == found else found, env)
        shown = f"{title(name)} {version}" if name else repr((says.strip().splitlines() or [""])[0])
        if shown not in others:
            others.append(shown)
    if others:
        raise CannotLaunch(f"mpirun is {' and '.join(others)}, wanted is {wanted}")
    raise CannotLaunch(f"there is no mpirun, wanted is {wanted}")


def _identify(says: str) -> tuple[str, str]:
    """Name and version; Open MPI's name has its major version, for its command line depends on that."""
    for name, pattern in _SAYS:
        match = pattern.search(says)
        if match:
            version = match[1]
            return (f"{name}-{version.partition('.')[0]}" if name == "openmpi" else name), version
    return "", ""


def _candidates(known: list[str], first: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Every mpirun there is, with its environment. Modules are loaded only when nothing else serves."""
    env = dict(os.environ)
    usual = env.get("PATH", os.defpath)
    for folder in [*filter(None, [first]), *usual.split(":")]:
        found = shutil.which("mpirun", path=folder) if folder else None
        if found is not None:
            # Intel's is a script that looks for the rest on PATH
            yield found, env if found == shutil.which("mpirun") else dict(env, PATH=f"{folder}:{usual}")
    if not os.path.exists(_MODULES_SCRIPT):
        return
    for flavour in dict.fromkeys(name.partition("-")[0] for name in known):
        for module in _MODULES[flavour]:
            loaded = _module_environment(module)
            found = shutil.which("mpirun", path=loaded.get("PATH")) if loaded else None
            if loaded and found:
                yield found, loaded


def _module_environment(module: str) -> dict[str, str] | None:
    script = f". {_MODULES_SCRIPT} && module load {module} >/dev/null 2>&1 && env -0"
    try:
        done = subprocess.run(["bash", "-c", script], capture_output=True, timeout=_LIMIT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise CannotLaunch(f"`module load {module}` did not end within {_LIMIT_S} s") from error
    if done.returncode:
        return None
    pairs = (line.partition("=") for line in os.fsdecode(done.stdout).split("\0") if line)
    return {key: value for key, _, value in pairs}


def _changed(env: Mapping[str, str]) -> list[str]:
    """What a module set or changed: ranks on other nodes have not loaded it."""
    changed = (key for key, value in env.items() if os.environ.get(key) != value)
    return sorted(key for key in changed if key != "PATH" and not _MODULES_OWN.fullmatch(key))


def _version(found: str, env: Mapping[str, str]) -> str:
    """What mpirun says of its version; remembered as long as its file stays the same."""
    entry = os.stat(found)
    key: list[Any] = [os.path.realpath(found), entry.st_size, entry.st_mtime_ns]
    kept = os.path.expanduser(_KEPT)
    try:
        with open(kept, encoding="utf-8") as file:
            known = json.load(file)
        if known["of"] == key:
            return str(known["says"])
    except (OSError, ValueError, KeyError):
        pass  # not asked before
    try:
        done = subprocess.run(
            [found, "--version"], env=env, capture_output=True, text=True, timeout=_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise CannotLaunch(f"{found} --version did not end within {_LIMIT_S} s") from error
    except OSError as error:
        return str(error)
    says = done.stdout + done.stderr
    if _identify(says)[0]:
        with suppress(OSError):  # no room: it is asked again the next time
            replace_file(kept, json.dumps({"of": key, "says": says}).encode())
    return says
