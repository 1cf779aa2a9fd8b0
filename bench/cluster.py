"""A rehearsed cluster for a bench, in a project folder of its own that is gone afterwards."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["ROOT", "Bench", "Timed", "rehearsal", "roomy"]

ROOT = Path(__file__).parent.parent
STACK = "rehearsal"
_LIMIT_S = 600.0


@dataclass(frozen=True, slots=True)
class Timed:
    """One whole command, from its start to its exit."""

    seconds: float
    stdout: str = field(repr=False)

    def json(self) -> Any:
        """What it printed, read as JSON."""
        return json.loads(self.stdout)


@dataclass(frozen=True, slots=True)
class Bench:
    """The project folder, and the environment in which ``fab`` and ``pulumi`` work on its rehearsal."""

    folder: Path
    environment: dict[str, str] = field(repr=False)

    @property
    def stack_folder(self) -> Path:
        """The stack's inventory and keys."""
        return self.folder / ".ranklift" / STACK

    @property
    def ssh_config(self) -> Path:
        """What plain ssh, and so nearly every peer, reaches the nodes with."""
        return self.stack_folder / "ssh_config"

    def run(self, argv: Sequence[str], **more: str) -> Timed:
        """Runs one command to its end, with ``more`` in its environment.

        Raises RuntimeError with all it said when it fails.
        """
        began = time.perf_counter()
        done = subprocess.run(
            argv,
            cwd=self.folder,
            env={**self.environment, **more},
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )
        seconds = time.perf_counter() - began
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(argv)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return Timed(seconds, done.stdout)

    def fab(self, *words: str) -> Timed:
        """One ``fab`` command on the bench's stack."""
        return self.run(["fab", *words])

    def ssh(self, node: str, line: str) -> Timed:
        """One bash line on a node, through plain ssh; its stderr comes with its stdout."""
        script = f"exec 2>&1; {line}"
        return self.run(["ssh", "-F", str(self.ssh_config), node, f"bash -c {shlex.quote(script)}"])

    def nodes(self, count: int) -> float:
        """Makes the stack have ``count`` nodes; gives the seconds from ``pulumi up`` until all answer."""
        self.run(["pulumi", "config", "set", "ranklift:nodeCount", str(count)])
        self.run(["pulumi", "config", "set", "ranklift:largeScaleSet", "true"])
        up = self.run(["pulumi", "up", "--yes", "--skip-preview"])
        return up.seconds + self.fab("wait").seconds

    def names(self) -> list[str]:
        """The nodes' names, as the ssh_config has them."""
        text = self.ssh_config.read_text()
        hosts = [line.split()[1] for line in text.splitlines() if line.startswith("Host ")]
        return [host for host in hosts if not set(host) & set("*?!")]


def roomy(gigabytes: float) -> Path | None:
    """A folder in memory, when that much would leave as much again; else ``None``.

    Rehearsed nodes share one disk, which real ones do not: what writes gigabytes to all of them at once would
    measure that disk, the same for everyone.
    """
    memory = Path("/dev/shm")  # noqa: S108  (a folder of its own is made in it)
    text = Path("/proc/meminfo").read_text()
    available = int(text.partition("MemAvailable:")[2].split()[0]) * 1024
    needed = 2 * gigabytes * 1e9
    fits = memory.is_dir() and shutil.disk_usage(memory).free > needed and available > needed
    return memory if fits else None


@contextmanager
def rehearsal(within: Path | None = None, *, bare: bool = False) -> Iterator[Bench]:
    """A rehearsal that runs, with the stack selected and nothing up; all of it is gone at the end.

    ``within`` is where its folder is made, the nodes' disks in it; by default among temporary files. Nodes
    that are not ``bare`` have the frameworks' Python.
    """
    folder = Path(tempfile.mkdtemp(prefix="ranklift-bench-", dir=within))
    shutil.copy(ROOT / "Pulumi.yaml", folder)
    shutil.copy(ROOT / "Pulumi.rehearsal.yaml", folder)
    shutil.copy(ROOT / "fabfile.py", folder)
    (folder / "infra").symlink_to(ROOT / "infra")
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "RANKLIFT_PROJECT": str(folder),
        "RANKLIFT_STACK": STACK,
    }
    # Some shells forbid it, and every command would compile the project anew: no user's does.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    bench = Bench(folder, environment)
    try:
        python = [] if bare else ["--node-python", str(ROOT / ".venv-node")]
        bench.fab("rehearsal.start", "--nodes-limit", "300", *python)
        for line in bench.fab("rehearsal.env").stdout.splitlines():
            name, _, value = line.removeprefix("export ").partition("=")
            environment[name] = value.strip("'")
        bench.run(["pulumi", "stack", "select", "--create", STACK])
        yield bench
    finally:
        try:
            bench.fab("rehearsal.stop")
        finally:
            shutil.rmtree(folder, ignore_errors=True)
