"""Three stand-in nodes with the files of a job, and an operator who reaches each of them.

As a command it collects from nodes that are in a folder already, and prints how that went.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO

from launch.errors import NodeUnreachable, RankliftError, RetryError
from launch.host import Completed, Host
from launch.results.collect import Others, collect
from launch.results.download import CollectReport, NodeFiles
from launch.results.folder import SUMS
from tests.launch.remote.sample_records import sample_plan, sample_state
from tests.launch.standin import REMOTE, SSH, LocalHost

JOB = "train-20260301-090507-0f3a"
HEAD, SECOND, THIRD = NAMES = ("node000000", "node000001", "node000002")


def noise(count: int, seed: int = 0) -> bytes:
    """Bytes that are the same every time and nowhere repeat."""
    return hashlib.shake_128(b"%d" % seed).digest(count)


class Far(LocalHost):
    """A node as the operator reaches it: or not, or only until so many bytes have come."""

    def __init__(self, name: str, home: Path, env: dict[str, str]) -> None:
        super().__init__(name, home, {**env, "HOME": str(home)})
        self.gone = False
        self.breaks_after: int | None = None
        self.asked: list[str] = []
        self.prefix: Sequence[str] = ()

    def stream(
        self,
        argv: Sequence[str],
        on_stdout: Callable[[bytes], object],
        *,
        stdin: bytes | IO[bytes] | None = None,
        timeout: float | None = None,
    ) -> Completed:
        if self.gone:
            raise NodeUnreachable(self.name, "no answer within 15 s")
        self.asked.append(" ".join(argv[4:]) or "version")
        left = self.breaks_after

        def take(data: bytes) -> None:
            nonlocal left
            on_stdout(data if left is None else data[:left])
            if left is not None:
                left -= len(data)
                if left <= 0:
                    raise NodeUnreachable(self.name, "the connection broke")

        return super().stream([*self.prefix, *argv], take, stdin=stdin, timeout=timeout)


class Cluster:
    """Three nodes with one job's files, and the operator's results folder."""

    def __init__(self, folder: Path) -> None:
        """Nodes that are in ``folder`` already; see :meth:`make`."""
        self.nodes = folder / "nodes"
        self.into = folder / "results"
        self.folder = self.into / JOB
        self.ssh = self.nodes / "bin/ssh"
        env = {
            "PATH": f"{self.ssh.parent}:/usr/bin:/bin",
            "STANDIN": str(self.nodes),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        self.hosts = {name: Far(name, self.nodes / name, env) for name in NAMES}
        self.head = self.hosts[HEAD]
        self.said: list[str] = []

    def make(self) -> Cluster:
        """Nodes that ran a job each."""
        for folder in (self.ssh.parent, self.nodes / "down"):
            folder.mkdir(parents=True)
        self.ssh.write_text(SSH)
        self.ssh.chmod(0o755)
        plan = sample_plan(JOB, nodes=[{"name": name} for name in NAMES])
        self.write(HEAD, "job.json", json.dumps(plan).encode())
        self.write(HEAD, "state.json", json.dumps(sample_state(JOB, state="SUCCEEDED")).encode())
        self.write(HEAD, "events.jsonl", b"{}\n")
        for rank, name in enumerate(NAMES):
            (self.nodes / name / "tmp").mkdir(parents=True, exist_ok=True)
            (self.nodes / name / ".ranklift/remote").mkdir(parents=True)
            (self.nodes / name / ".ranklift/remote/hash").symlink_to(REMOTE)
            self.write(name, f"logs/rank-{rank}.log", f"rank {rank}\n".encode())
            self.write(name, "exits.jsonl", b'{"rank": %d}\n' % rank)
            self.write(name, "outputs/model.bin", noise(5000, rank))
        return self

    def unreachable_from_the_head(self, name: str) -> None:
        """From now on."""
        (self.nodes / "down" / name).touch()

    def at(self, node: str, path: str | bytes) -> Path:
        """A path in the job's folder on a node."""
        return self.nodes / node / ".ranklift/jobs" / JOB / os.fsdecode(path)

    def write(self, node: str, path: str | bytes, data: bytes, *, age: float = 60.0) -> Path:
        """A file that was last changed so many seconds ago."""
        made = self.at(node, path)
        made.parent.mkdir(parents=True, exist_ok=True)
        made.write_bytes(data)
        os.utime(made, (time.time() - age, time.time() - age))
        return made

    def collect(self, head: Host | None = None, *, others: bool = False) -> CollectReport:
        return collect(
            JOB,
            head or self.head,
            self.into,
            remote="hash",
            others=Others(NAMES, self.visit, self.said.append) if others else None,
        )

    def visit(self, work: Callable[[Host], None], names: Iterable[str]) -> Mapping[str, Exception | None]:
        found: dict[str, Exception | None] = {}
        for name in names:
            try:
                work(self.hosts[name])
                found[name] = None
            except RankliftError as error:
                found[name] = error
        return found

    def files(self) -> dict[str, bytes]:
        """What has come, without what collect adds."""
        return {
            str(path.relative_to(self.folder)): path.read_bytes()
            for path in self.folder.rglob("*")
            if path.is_file() and path.name != SUMS and not path.is_symlink()
        }

    def expected(self, *nodes: str) -> dict[str, bytes]:
        """What is on these nodes, as it has to lie in the results folder."""
        found = {}
        for node in nodes:
            top = self.at(node, "")
            for path in top.rglob("*"):
                name = str(path.relative_to(top))
                if path.is_symlink() or not path.is_file():
                    continue
                if name.startswith("outputs/"):
                    name = f"outputs/{node}/{name.removeprefix('outputs/')}"
                elif name == "exits.jsonl" and node != HEAD:
                    name = f"exits/{node}.jsonl"
                found[name] = path.read_bytes()
        return found

    def verified(self) -> None:
        """sha256sum agrees, and knows of every file."""
        subprocess.run(["sha256sum", "-c", "--strict", "--quiet", SUMS], cwd=self.folder, check=True)
        assert len((self.folder / SUMS).read_bytes().splitlines()) == len(self.files())


def of(report: CollectReport, node: str) -> NodeFiles:
    assert report.errors == {}
    return report.files[node]


def bytes_sent(report: CollectReport) -> int:
    return sum(files.bytes for files in report.files.values())


def main(folder: Path) -> None:
    cluster = Cluster(folder)
    result: dict[str, object]
    try:
        report = cluster.collect()
        result = {
            "sent": bytes_sent(report),
            "whole": report.is_complete and cluster.files() == cluster.expected(*NAMES),
        }
    except RetryError as error:
        result = {"error": str(error)}
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
