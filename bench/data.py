"""Data on 1 to 64 nodes: what leaves storage and how long it takes, beside each node for itself, and beside a
download on one node that passes it on afterwards.

Nodes are processes on loopback, storage is a server of this machine, behind a link of a set rate: the rate
that storage has in all is what nodes share. Timed from the request to the head until every node holds all.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.report import Claim, save, table
from tests.launch.remote.data.staging_cluster import Cluster, Staging, processes_of
from tests.launch.remote.data.storage_server import Storage, serve

__all__ = ["main"]

SIZE, RATE = 64 << 20, 8e6
COUNTS, SHAPED = (1, 4, 16, 64), (4, 16)
OURS, ALONE, AFTERWARDS = "fab data.stage", "each node for itself", "one node, then the others"
LEAST_COPIES, NEAR, AGAIN_S = 1.01, 1.15, 1.0


class Bench:
    """Storage and nodes in a folder of their own."""

    def __init__(self, storage: Storage, folder: Path) -> None:
        self.storage, self._folder = storage, folder

    @contextmanager
    def nodes(self, count: int) -> Iterator[Cluster]:
        folder = self._folder / "nodes"
        folder.mkdir()
        cluster = Cluster(folder, count, self.storage)
        self.storage.sent = 0
        try:
            yield cluster
        finally:
            cluster.close()
            shutil.rmtree(folder)

    def copies(self) -> float:
        return self.storage.sent / self.storage.total()


def main() -> int:
    """Measures, prints and saves; exit status 1 when a figure is missed."""
    shared = Path("/dev/shm")  # noqa: S108  the disk would be measured otherwise
    with tempfile.TemporaryDirectory(dir=shared) as folder, serve(Path(folder)) as storage:
        storage.put("data/set/one.bin", os.urandom(SIZE * 3 // 4))
        for number in range(256):
            storage.put(f"data/set/small/{number}.bin", os.urandom(SIZE // 1024))
        bench = Bench(storage, Path(folder))
        copies, again = counted(bench)
        storage.rate = RATE
        with bench.nodes(1) as cluster:
            alone = timed(cluster)
        seconds = {count: shaped(bench, count) for count in SHAPED}
        lost = lose(bench)
    table("Bytes that leave storage, of the data's", ("nodes", "copies"), list(copies.items()))
    for count, found in seconds.items():
        rows = [(name, taken, taken / alone, sent) for name, (taken, sent) in found.items()]
        columns = ("", "seconds", "of one node's download", "copies from storage")
        table(
            f"{count} nodes, {SIZE >> 20} MiB at {RATE / 1e6:g} MB/s: one node takes {alone:.2f} s",
            columns,
            rows,
        )
    table("4 nodes, one lost half-way", ("seconds", "copies from storage"), [lost])
    claims = [
        Claim("copies that leave storage, most of all counts", max(copies.values()), LEAST_COPIES, "x"),
        Claim("second staging on 16 nodes", again, AGAIN_S, "s"),
        *(
            Claim(f"{count} nodes beside one node's download", found[OURS][0] / alone, NEAR, "x")
            for count, found in seconds.items()
        ),
    ]
    named = {str(count): found for count, found in seconds.items()}
    return save(
        "data",
        {"copies": {str(k): v for k, v in copies.items()}, "one": alone, "shaped": named, "lost": lost},
        claims,
    )


def timed(cluster: Cluster, nodes: list[int] | None = None) -> float:
    """Stages; returns the seconds it took."""
    started = time.monotonic()
    check(cluster.start(cluster.source("data/set"), nodes=nodes))
    return time.monotonic() - started


def check(staging: Staging) -> None:
    answer = staging.end(600)
    if answer["t"] != "staged" or any(answer["nodes"].values()):
        raise RuntimeError(f"a staging failed: {answer}")


def counted(bench: Bench) -> tuple[dict[int, float], float]:
    """Returns the copies that leave storage by number of nodes, and the seconds of a second staging on 16."""
    copies, again = {}, 0.0
    for count in COUNTS:
        with bench.nodes(count) as cluster:
            timed(cluster)
            copies[count] = bench.copies()
            if count == max(SHAPED):
                again = timed(cluster)
    return copies, again


def shaped(bench: Bench, count: int) -> dict[str, tuple[float, float]]:
    """Returns seconds and copies from storage of each way to ``count`` nodes."""
    ways: dict[str, Callable[[Cluster], float]] = {
        OURS: timed,
        ALONE: for_itself,
        AFTERWARDS: lambda cluster: timed(cluster, [0]) + timed(cluster),
    }
    found = {}
    for name, way in ways.items():
        with bench.nodes(count) as cluster:
            found[name] = (way(cluster), bench.copies())
    return found


def for_itself(cluster: Cluster) -> float:
    """Every node downloads everything, all at the same time."""
    started = time.monotonic()
    source = cluster.source("data/set")
    stagings = [cluster.start(source, nodes=[node]) for node in range(len(cluster.nodes))]
    for staging in stagings:
        check(staging)
    return time.monotonic() - started


def lose(bench: Bench) -> tuple[float, float]:
    """Returns seconds and copies from storage where one of 4 nodes is lost half-way."""
    with bench.nodes(4) as cluster:
        started = time.monotonic()
        staging = cluster.start(cluster.source("data/set"))
        while bench.copies() < 1 / 2:
            time.sleep(0.01)
        (cluster.folder / "down" / cluster.nodes[3][1]).touch()
        for process in processes_of(cluster, 3):
            os.kill(process, signal.SIGKILL)
        answer = staging.end(600)
        if [name for name, error in answer["nodes"].items() if error] != [cluster.nodes[3][0]]:
            raise RuntimeError(f"another node failed: {answer}")
        return time.monotonic() - started, bench.copies()


if __name__ == "__main__":
    sys.exit(main())
