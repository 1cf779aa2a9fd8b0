"""How runners come to life: over ssh, one per node, or by mpirun, one per rank."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

from launch.remote.links import Link
from launch.remote.processes import SIGTERM, die_with_parent

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["CannotLaunch", "Mpi", "archive", "find_mpi", "node_link", "start_mpirun", "sweep"]

_MODULES = "/etc/profile.d/modules.sh"
_VERSION = re.compile(r"\(Open MPI\) (\d+)\.(\S+)")
_KEPT = "~/.ranklift/mpirun.json"
_LIMIT_S = 20
NOT_FOUND = 127
SSH = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=5", "-T")


class CannotLaunch(Exception):
    """The head lacks what starts the ranks."""


class Mpi:
    """An Open MPI found on the head: ``command`` starts it, in ``env``."""

    def __init__(self, major: str, version: str, command: str, env: dict[str, str]) -> None:
        self.major, self.version, self.command, self.env = major, version, command, env


def find_mpi(known: list[str]) -> Mpi:
    """The head's Open MPI: on PATH, else from the HPC image's modules.

    One that is on PATH is called by its bare name: an absolute one would put its own folder in front of
    every rank's PATH. Raises :class:`CannotLaunch` naming what was found instead; ``known`` are the major
    versions there is a command line for.
    """
    env = dict(os.environ)
    command, shown = "mpirun", _version(env)
    if shown is None and os.path.exists(_MODULES):
        env = _module_environment()
        shown = _version(env)
        command = next(
            (
                f"{folder}/mpirun"
                for folder in env.get("PATH", "").split(":")
                if os.path.exists(f"{folder}/mpirun")
            ),
            command,
        )
    if shown is None:
        raise CannotLaunch(
            "there is no mpirun on the head: use an image that brings Open MPI, such as the HPC ones"
        )
    match = _VERSION.search(shown)
    if match is None or match[1] not in known:
        first = shown.strip().splitlines()[0] if shown.strip() else "nothing"
        wanted = f"Open MPI {' or '.join(known)} is needed, put its bin folder first on PATH"
        raise CannotLaunch(f"mpirun on the head answers {first!r}: {wanted}")
    return Mpi(match[1], f"{match[1]}.{match[2]}", command, env)


def _version(env: Mapping[str, str]) -> str | None:
    """What mpirun says of its version; remembered as long as its file stays the same."""
    found = shutil.which("mpirun", path=env.get("PATH"))
    if found is None:
        return None
    entry = os.stat(found)
    key = [os.path.realpath(found), entry.st_size, entry.st_mtime_ns]
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
        raise CannotLaunch(f"mpirun --version on the head did not end within {_LIMIT_S} s") from error
    says = done.stdout + done.stderr
    if _VERSION.search(says):
        with open(f"{kept}.{os.getpid()}", "w", encoding="utf-8") as file:
            json.dump({"of": key, "says": says}, file)
        os.rename(f"{kept}.{os.getpid()}", kept)
    return says


def _module_environment() -> dict[str, str]:
    script = f". {_MODULES} && {{ module load mpi/hpcx || module load mpi/openmpi; }} >/dev/null 2>&1; env -0"
    done = subprocess.run(["bash", "-c", script], capture_output=True, timeout=_LIMIT_S, check=False)
    pairs = (line.partition("=") for line in os.fsdecode(done.stdout).split("\0") if line)
    return {key: value for key, _, value in pairs}


def start_mpirun(argv: list[str], mpi: Mpi, secrets: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Starts mpirun in the home folder, which every node has; ``secrets`` reach it by environment alone."""
    return subprocess.Popen(
        [mpi.command, *argv[1:]],
        env=dict(mpi.env, **secrets),
        cwd=os.path.expanduser("~"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=lambda: die_with_parent(SIGTERM),  # noqa: PLW1509  the supervisor has no threads
    )


def node_link(plan: dict[str, Any], index: int) -> Link:
    """Starts the runner of one node: the head's own without ssh, the others' over it."""
    return Link(index, process=_remote(plan, index, "node", stdin=subprocess.PIPE, stderr=subprocess.PIPE))


def sweep(plan: dict[str, Any], index: int) -> subprocess.Popen[bytes]:
    """Ends what a killed runner left on its node; gives the process that does it."""
    return _remote(plan, index, f"sweep {plan['id']}", stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def archive(plan: dict[str, Any], index: int) -> subprocess.Popen[bytes]:
    """Has a node send the job's logs and outputs as a tar on the process's stdout."""
    return _remote(plan, index, f"archive {plan['id']}", stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)


def _remote(plan: dict[str, Any], index: int, what: str, stdin: int, stderr: int) -> subprocess.Popen[bytes]:
    # A shell line, because only the node's own shell knows its home folder. Nothing of the user's is in it.
    line = f'exec python3 -I -S "$HOME/{plan["remote"]}/__main__.py" {what}'
    node = plan["nodes"][index]
    argv = ["sh", "-c", line] if index == 0 else [*SSH, node["name"], line]
    return subprocess.Popen(argv, stdin=stdin, stdout=subprocess.PIPE, stderr=stderr, start_new_session=True)
