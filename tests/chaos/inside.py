"""Rehearsed nodes from within: which processes there are, whose they are, and how to break things there."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rehearsal import control

ENTER = Path(__file__).with_name("enter.py")
INIT = "init\0/etc/rehearsal/init\0"
USER = "home/azureuser"
LIMIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Process:
    """A process as its node sees it."""

    pid: int
    parent: int
    args: str
    job: str
    """What RANKLIFT_JOB_ID it was started with; empty without."""
    rank: str
    start: int
    """With the pid its identity: clock ticks after boot."""
    descriptors: int
    kilobytes: int
    """Memory of its own."""


@dataclass(frozen=True, slots=True)
class Inside:
    """One living node."""

    name: str
    init: int
    """Its first process, as this machine numbers it."""

    def _act(self, *words: str) -> str:
        argv = [sys.executable, "-I", "-S", str(ENTER), str(self.init), *words]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=LIMIT_S)
        assert done.returncode == 0, f"{self.name}: {words}: {done.stderr}"
        return done.stdout

    def processes(self) -> list[Process]:
        """Every process that runs on it."""
        return [Process(**json.loads(line)) for line in self._act("scan").splitlines()]

    def of_job(self, job: str) -> list[Process]:
        """Those that belong to a job by their environment or name it on their command line."""
        return [found for found in self.processes() if found.job == job or job in found.args]

    def tops(self, job: str) -> list[Process]:
        """What its runners have started: processes of the job whose parents are not."""
        everything = self.processes()
        own = {found.pid for found in everything if found.job == job}
        return [found for found in everything if found.job == job and found.parent not in own]

    def rank(self, job: str, number: int) -> Process:
        """The first process of a rank."""
        return next(found for found in self.tops(job) if found.rank == str(number))

    def kill(self, number: signal.Signals, *pids: int) -> None:
        """Sends a signal to processes, by the node's numbers."""
        self._act("kill", str(int(number)), *map(str, pids))

    def mount(self, folder: str, size: str) -> None:
        """Puts an empty file system of ``size`` over a folder of the node."""
        self._act("mount", folder, size)

    def unmount(self, folder: str) -> None:
        """Takes that file system away again."""
        self._act("unmount", folder)

    def seal(self, folder: str) -> None:
        """Makes a folder one that nobody can write to."""
        self._act("seal", folder)

    def path(self, name: str) -> Path:
        """A file in the home folder there, for this process to read and write."""
        return Path(f"/proc/{self.init}/root/{USER}/{name}")


def nodes(project: Path, stack: str) -> dict[str, Inside]:
    """The living nodes of a rehearsed stack, by name."""
    status = control.status(project)
    networks = status.networks or {}
    (user_namespace,) = (
        its["user_namespace"] for network, its in networks.items() if f"/ranklift-{stack}/" in network.lower()
    )
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and _is_init(entry, user_namespace):
            name = (entry / "root/etc/hostname").read_text().strip()
            found[name] = Inside(name, int(entry.name))
    return dict(sorted(found.items()))


def _is_init(place: Path, user_namespace: str) -> bool:
    try:
        if (place / "cmdline").read_text() != INIT:
            return False
        numbers = next(_fields(place, "NSpid"))
        return numbers[-1] == "1" and str((place / "ns/user").readlink()) == user_namespace
    except OSError:
        return False


def _fields(place: Path, key: str) -> Iterator[list[str]]:
    for line in (place / "status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            yield line.split()[1:]


def is_of_the_watch(args: str) -> bool:
    """Whether it is the node's watch, which runs from its first boot on, or what keeps that."""
    return args.endswith("keep ranklift-watch.service") or "/watch.py watch " in args


def new_since(before: Iterable[Process], now: Iterable[Process]) -> list[Process]:
    """Processes that were not there before, connections of the operator's aside."""
    known = {(found.pid, found.start) for found in before}
    return [
        found
        for found in now
        if (found.pid, found.start) not in known and not found.args.startswith(("sshd:", "/usr/sbin/sshd"))
    ]
