"""Which MPI a node has: on PATH with the job's Python first, else in an HPC image's environment modules."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from launch.remote.base import timing
from launch.remote.base.files import replace_file, which
from launch.remote.mpi.base import Mpi
from launch.remote.mpi.registry import MPIS, mpi_of

__all__ = ["CannotLaunch", "FoundMpi", "find_mpi"]

_MODULES_SCRIPT = "/etc/profile.d/modules.sh"
_MODULES_OWN = re.compile(r"_.*|LOADEDMODULES|LMOD.*|MODULE.*|BASH_.*|SHLVL|PWD|OLDPWD|MANPATH|COLUMNS|LINES")
_KEPT = "~/.ranklift/mpirun.json"
_STARTS = "~/.ranklift/mpi-starts.json"
_ONE_RANK = (
    "import ctypes, sys; mpi = ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL); "
    "sys.exit(mpi.MPI_Init(None, None) or mpi.MPI_Finalize())"
)


class CannotLaunch(Exception):
    """Nodes lack what starts the ranks."""


class FoundMpi:
    """An MPI found on this node: ``command`` starts it in ``env``, of which ranks need ``exports``.

    ``name`` is that of its command line in the plan, ``module`` the environment module that has it, or empty.
    """

    def __init__(self, kind: Mpi, version: str, command: str, env: dict[str, str], module: str = "") -> None:
        self.kind, self.name, self.version = kind, kind.name(version), version
        self.command, self.env, self.module = command, env, module
        self.passed_over: list[str] = []
        """Modules before this one that do not start, each with its last words."""
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
        """Its own name and version, and its module."""
        return f"{self.kind.title} {self.version}" + (f" ({self.module})" if self.module else "")


def find_mpi(known: list[str], first: str = "") -> FoundMpi:
    """Return this node's MPI, of those the plan has a command line for.

    ``first`` is a folder that comes before all others on PATH. One that PATH has anyway is called by its bare
    name: an absolute one makes Open MPI put that folder in front of every rank's PATH.

    Of several modules it is the first that starts one rank: HPC-X of some images ends with an error of UCX,
    and their ``mpi/openmpi`` works (Azure/azhpc-images#462). Where none starts it is the first one, whose
    error the job then shows.

    Raise :class:`CannotLaunch` naming what was found instead.
    """
    by_name = {name: mpi_of(name) for name in known}
    kinds = list(dict.fromkeys(kind for kind in by_name.values() if kind is not None))
    unknown = [f"{name} (unknown)" for name, kind in by_name.items() if kind is None]
    wanted = " or ".join([*(kind.title for kind in kinds), *unknown])
    others = []
    broken: list[FoundMpi] = []
    for found, env, module in _candidates(kinds, first):
        output = _version_output(found, env)
        kind, version = _identify(output)
        if kind is not None and kind.name(version) in known:
            command = "mpirun" if which("mpirun", _path()) == found else found
            mpi = FoundMpi(kind, version, command, env, module)
            why = _failure(mpi) if module else ""
            if not why:
                mpi.passed_over = [words for one in broken for words in one.passed_over]
                return mpi
            mpi.passed_over = [f"{module} does not start: {why}"]
            broken.append(mpi)
            continue
        shown = f"{kind.title} {version}" if kind else repr((output.strip().splitlines() or [""])[0])
        if shown not in others:
            others.append(shown)
    if broken:
        return broken[0]
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


def _candidates(kinds: list[Mpi], first: str) -> Iterator[tuple[str, dict[str, str], str]]:
    """Yield every mpirun there is, with its environment and module. Modules are loaded only when nothing else
    serves."""
    env = dict(os.environ)
    usual = _path()
    for folder in [*filter(None, [first]), *usual.split(":")]:
        found = which("mpirun", folder) if folder else ""
        if found:
            # Intel's is a script that looks for the rest on PATH
            yield found, env if found == which("mpirun", usual) else dict(env, PATH=f"{folder}:{usual}"), ""
    if not os.path.exists(_MODULES_SCRIPT):
        return
    for kind in kinds:
        for module in kind.modules:
            loaded = _module_environment(module)
            found = which("mpirun", loaded.get("PATH", "")) if loaded else ""
            if loaded and found:
                yield found, loaded, module


def _path() -> str:
    return os.environ.get("PATH", os.defpath)


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


def _failure(mpi: FoundMpi) -> str:
    """Return the last words of an MPI that cannot start one rank on this node; empty when it can.

    What starts is kept for as long as the node is up and mpirun's file stays the same.
    """
    entry = os.stat(mpi.command if "/" in mpi.command else which(mpi.command, _path()))
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        key: list[Any] = [mpi.module, mpi.command, entry.st_size, entry.st_mtime_ns, file.read().strip()]
    kept = os.path.expanduser(_STARTS)
    if _kept(kept) == key:
        return ""
    argv = [mpi.command, "-np", "1", "python3", "-I", "-S", "-c", _ONE_RANK, mpi.kind.soname]
    with subprocess.Popen(
        argv,
        env=mpi.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=timing.MPI_START_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return f"one rank did not start and end within {timing.MPI_START_S:g} s"
    if process.returncode:
        lines = [line for line in output.decode("utf-8", "replace").splitlines() if line.strip(" -")]
        return lines[-1].strip() if lines else f"exit status {process.returncode}"
    with suppress(OSError):  # no room: it is started again the next time
        replace_file(kept, json.dumps(key).encode())
    return ""


def _kept(path: str) -> object:
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return None


def _changed(env: Mapping[str, str]) -> list[str]:
    """Return the variables that a module set or changed: ranks on other nodes have not loaded it."""
    changed = (key for key, value in env.items() if os.environ.get(key) != value)
    return sorted(key for key in changed if key != "PATH" and not _MODULES_OWN.fullmatch(key))


def _version_output(found: str, env: Mapping[str, str]) -> str:
    """Return what ``mpirun --version`` prints; kept as long as mpirun's file stays the same."""
    entry = os.stat(found)
    key: list[Any] = [os.path.realpath(found), entry.st_size, entry.st_mtime_ns]
    kept = os.path.expanduser(_KEPT)
    known = _kept(kept)
    if isinstance(known, dict) and known.get("of") == key and "says" in known:
        return str(known["says"])
    try:
        done = _run([found, "--version"], f"{found} --version", env)
    except OSError as error:
        return str(error)
    output = os.fsdecode(done.stdout + done.stderr)
    if _identify(output)[0]:
        with suppress(OSError):  # no room: mpirun is run again the next time
            replace_file(kept, json.dumps({"of": key, "says": output}).encode())
    return output
