"""Bringing a job's files home: past a head that is gone, and through interruptions of every kind."""

from __future__ import annotations

import hashlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.workplace import LIMIT_S, Ran, Workplace

pytestmark = pytest.mark.timeout(1200)

HEAD, SECOND = NODES = ("node000000", "node000001")
SIZE = 200_000_000
MAKE = f"""\
import hashlib, os
folder, digest = os.environ["RANKLIFT_OUTPUT_DIR"], hashlib.sha256()
with open(folder + "/weights.bin", "wb") as file:
    for _ in range({SIZE // 1_000_000}):
        data = os.urandom(1_000_000)
        digest.update(data)
        file.write(data)
with open(folder.encode() + b"/odd \\n\\xff", "wb") as file:
    file.write(b"odd")
print(digest.hexdigest())
"""


@dataclass(frozen=True)
class Job:
    """A job that has ended, with a large file on each of two nodes."""

    workplace: Workplace
    id: str
    digests: dict[str, str]

    def collect(self, into: Path, *more: str, status: int = 0) -> Ran:
        return self.workplace.fab("collect", self.id, "--into", str(into), *more, status=status)

    def weights(self, into: Path, node: str) -> Path:
        return into / self.id / "outputs" / node / "weights.bin"

    def part(self, into: Path, node: str) -> int:
        """How much of a node's large file is here, as long as it has not its name."""
        try:
            return (into / self.id / ".part/outputs" / node / "weights.bin").stat().st_size
        except FileNotFoundError:
            return 0

    def verify(self, into: Path, *nodes: str) -> None:
        """Everything of these nodes is here, and sha256sum agrees."""
        for node in nodes:
            with self.weights(into, node).open("rb") as file:
                assert hashlib.file_digest(file, "sha256").hexdigest() == self.digests[node]
            assert (into / self.id / "outputs" / node / os.fsdecode(b"odd \n\xff")).read_bytes() == b"odd"
            assert self.digests[node] in (into / self.id / f"logs/rank-{NODES.index(node)}.log").read_text()
        check = ["sha256sum", "-c", "--strict", "--quiet", "SHA256SUMS"]
        subprocess.run(check, cwd=into / self.id, check=True, timeout=LIMIT_S)

    @contextmanager
    def begun(self, into: Path) -> Iterator[subprocess.Popen[str]]:
        """A collect of which some megabytes have come."""
        with self.workplace.begin("collect", self.id, "--into", str(into)) as process:
            until(lambda: max(self.part(into, node) for node in NODES) > 5_000_000)
            assert process.poll() is None
            yield process


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not true():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.02)


def sent(ran: Ran) -> int:
    return sum(int(files["bytes"]) for files in ran.json()["results"].values())


@pytest.fixture(scope="module")
def job(cluster: Workplace) -> Job:
    (cluster.own / "weights.py").write_text(MAKE)
    ran = cluster.fab("launch.torch", "weights.py", "--nodes", "0-1", "--nproc-per-node", "1")
    (name,) = set(re.findall(r"^job (\S+) SUCCEEDED$", ran.err, re.MULTILINE))
    return Job(cluster, name, dict(re.findall(r"^\[\d (\S+)\] ([0-9a-f]{64})$", ran.out, re.MULTILINE)))


def test_without_its_head_the_other_nodes_are_asked_and_the_rest_comes_when_it_is_back(
    job: Job, tmp_path: Path
) -> None:
    job.workplace.fab("rehearsal.fault", "partition", "--nodes", "0")
    note = job.workplace.project / ".ranklift/rehearsal/jobs" / f"{job.id}.json"
    noted = note.read_text()
    try:
        # Also for somebody who did not launch it, and has to look for it.
        for into, known in ((tmp_path / "mine", True), (tmp_path / "theirs", False)):
            if not known:
                note.unlink()
            ran = job.collect(into, status=1)
            # Nodes that joined since then are queried too: only the head knows the job's nodes.
            assert re.search(r"querying node\S+ directly\n", ran.err) or not known
            assert "error: collecting failed on 1 of 2 nodes\n" in ran.err
            assert "\nnode000000: " in ran.err
            job.verify(into, SECOND)
            assert not job.weights(into, HEAD).exists()
    finally:
        note.write_text(noted)
        job.workplace.fab("rehearsal.fault", "heal", "--nodes", "0")
    job.workplace.fab("wait")
    again = job.collect(tmp_path / "mine", "--json")
    assert again.json()["results"][SECOND]["bytes"] == 0
    job.verify(tmp_path / "mine", *NODES)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=["kill -9", "Ctrl-C"])
def test_one_that_was_interrupted_goes_on_where_it_was(
    job: Job, tmp_path: Path, number: signal.Signals
) -> None:
    with job.begun(tmp_path) as process:
        os.killpg(process.pid, number)
        assert process.stdout is not None
        shown = process.stdout.read()
    assert "Traceback" not in shown
    if number == signal.SIGINT:
        assert process.returncode == 130
        assert f"what was copied is in {tmp_path / job.id}; the same command continues from there\n" in shown
    there = sum(job.part(tmp_path, node) for node in NODES)
    assert there > 5_000_000
    again = job.collect(tmp_path, "--json")
    assert sent(again) < 2 * SIZE - there + 1_000_000
    job.verify(tmp_path, *NODES)
    assert not (tmp_path / job.id / ".part").exists()
    third = job.collect(tmp_path)
    assert third.out.startswith(f"{tmp_path / job.id}: 0 files, 0 B from 2 nodes, ")


def test_a_node_that_is_lost_in_the_middle_is_named_and_goes_on_when_it_is_back(
    job: Job, tmp_path: Path
) -> None:
    with job.workplace.begin("collect", job.id, "--into", str(tmp_path)) as process:
        until(lambda: job.part(tmp_path, SECOND) > 5_000_000)
        os.killpg(process.pid, signal.SIGSTOP)  # on a busy machine the rest comes before the node is cut off
        job.workplace.fab("rehearsal.fault", "partition", "--nodes", "1")
        os.killpg(process.pid, signal.SIGCONT)
        assert process.stdout is not None
        shown = process.stdout.read()
    try:
        assert process.returncode == 1, shown
        assert "the head node000000 cannot send all files of node000001: querying directly\n" in shown
        assert "error: collecting failed on 1 of 2 nodes\nnode000001: " in shown
        job.verify(tmp_path, HEAD)
        there = job.part(tmp_path, SECOND)
        assert there > 5_000_000
    finally:
        job.workplace.fab("rehearsal.fault", "heal", "--nodes", "1")
    job.workplace.fab("wait")
    again = job.collect(tmp_path, "--json")
    assert sent(again) < SIZE - there + 1_000_000
    job.verify(tmp_path, *NODES)
