"""What a launch costs beside mpirun alone, and a push beside rsync to every node.

Launch: ``fab launch.mpi hostname --health off``, whole, beside mpirun with a process on each node, timed
where it is typed: on the head. Push: 100 MB of random bytes in 10,000 files, new ones every round, to 64
nodes; then the same again. rsync runs to 64 nodes at a time through the load balancer, as a loop over nodes
would.
Working folders: a launch from 10 MB in 1,000 files beside one from a single file, both pushed before; every
file is copied on every node before the ranks, and cleared after them. The nodes' disks are in memory when
there is room.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

from bench.cluster import Bench, rehearsal, roomy
from bench.peers.with_mpirun import mpirun_line
from bench.report import Claim, bars, median, save, table

__all__ = ["main"]

COUNTS = (8, 64)
ROUNDS, PUSHES = 5, 3
FILES, FILE_BYTES, COPIED_FILES = 10_000, 10_000, 1_000
PAGES = 1.3
"""Memory a file takes beside its size, on the average."""
MORE_S, HALF, AGAIN_S = 0.8, 0.5, 2.0
OURS, MPIRUN = "fab launch.mpi", "mpirun on the head"
COPIED, ALONE = "from 10 MB in 1,000 files", "from one file"


def main() -> int:
    """Measures, prints and saves; exit status 1 when a figure is missed."""
    launches: dict[str, dict[str, list[float]]] = {}
    with rehearsal(roomy(COUNTS[-1] * FILES * FILE_BYTES * PAGES / 1e9)) as bench:
        for count in COUNTS:
            bench.nodes(count)
            launches[f"{count} nodes"] = measure_launch(bench, count)
        copies = measure_copies(bench)
        pushes = measure_push(bench)
    launch_medians = {group: _medians(runs) for group, runs in launches.items()}
    push_medians, copy_medians = _medians(pushes), _medians(copies)
    for group, runs in launch_medians.items():
        table(f"hostname on {group}", ("", "median, s"), list(runs.items()))
    table(f"100 MB in 10,000 files to {COUNTS[-1]} nodes", ("", "median, s"), list(push_medians.items()))
    table(f"fab launch.mpi hostname on {COUNTS[-1]} nodes", ("", "median, s"), list(copy_medians.items()))
    bars("launch", "hostname on every node", launch_medians, "seconds, median")
    bars("push", "10,000 files, 100 MB", {f"{COUNTS[-1]} nodes": push_medians}, "seconds, median")
    claims = [
        Claim(f"{group}: fab launch.mpi over mpirun", runs[OURS] - runs[MPIRUN], MORE_S)
        for group, runs in launch_medians.items()
    ]
    claims += [
        Claim("push beside parallel rsync", push_medians["fab push"] / push_medians["rsync"], HALF, "x"),
        Claim("push of unchanged code", push_medians["fab push, unchanged"], AGAIN_S),
    ]
    return save("launch", {"launch_s": launches, "push_s": pushes, "copy_s": copies}, claims)


def _medians(runs: dict[str, list[float]]) -> dict[str, float]:
    return {name: median(seconds) for name, seconds in runs.items()}


def measure_launch(bench: Bench, count: int) -> dict[str, list[float]]:
    """Seconds of both, in turn, after a round that does not count."""
    (bench.folder / "code").mkdir(exist_ok=True)
    (bench.folder / "code" / "README").write_text("pushed with every launch\n")
    names = bench.names()
    line = mpirun_line(bench, count, 1, "hostname")
    runs: dict[str, list[float]] = {OURS: [], MPIRUN: []}
    for attempt in range(ROUNDS + 1):
        ours = bench.fab("launch.mpi", "hostname", "--source", "code", "--health", "off")
        result = bench.ssh(names[0], f"TIMEFORMAT='took %R'; time {line} 2>&1")
        for name in names:
            if name not in ours.stdout or name not in result.stdout:
                raise RuntimeError(f"{name} did not run")
        if attempt:
            runs[OURS].append(ours.seconds)
            runs[MPIRUN].append(float(result.stdout.rpartition("took ")[2]))
    return runs


def measure_copies(bench: Bench) -> dict[str, list[float]]:
    """Seconds of a launch from much code and from little, in turn, after a round that pushes both."""
    plant(bench.folder / "copied", COPIED_FILES, seed=0)
    runs: dict[str, list[float]] = {COPIED: [], ALONE: []}
    for attempt in range(ROUNDS + 1):
        for name, source in ((COPIED, "copied"), (ALONE, "code")):
            ran = bench.fab("launch.mpi", "hostname", "--source", source, "--health", "off")
            if attempt:
                runs[name].append(ran.seconds)
    return runs


def measure_push(bench: Bench) -> dict[str, list[float]]:
    """Seconds of a push, of the same again, and of rsync to all nodes at once."""
    tree = bench.folder / "tree"
    nodes = bench.folder / "nodes"
    nodes.write_text("\n".join(bench.names()) + "\n")
    remote_shell = f"ssh -F {bench.ssh_config}"
    runs: dict[str, list[float]] = {"fab push": [], "fab push, unchanged": [], "rsync": []}
    for attempt in range(PUSHES):
        plant(tree, FILES, seed=attempt)

        def ours() -> None:
            for name in ("fab push", "fab push, unchanged"):
                runs[name].append(bench.fab("push", "--source", str(tree)).seconds)
            bench.fab("exec", "rm -rf .ranklift/snapshots")

        def rsync() -> None:
            each = f"rsync -a -e '{remote_shell}' {tree}/ {{}}:bench-tree/"
            loop = ["xargs", "-a", str(nodes), "-P", "64", "-I", "{}", "sh", "-c", each]
            runs["rsync"].append(bench.run(loop).seconds)
            bench.fab("exec", "rm -rf bench-tree")

        # Neither always comes second, and neither finds the other's files in its way.
        for measured in (ours, rsync) if attempt % 2 == 0 else (rsync, ours):
            measured()
    return runs


def plant(tree: Path, files: int, seed: int) -> None:
    """Files of random bytes in 100 folders; another seed changes every one of them."""
    source = random.Random(seed)  # noqa: S311  (no secret: the same files in every run)
    for number in range(files):
        folder = tree / f"part-{number % 100:02}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number:05}.bin").write_bytes(source.randbytes(FILE_BYTES))


if __name__ == "__main__":
    sys.exit(main())
