"""The ring measures under a real mpirun: its own bytes, and nothing faster than its slowest rank."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import launch.remote
from launch.remote.probe.mpi_ring import MARK

MAIN = Path(launch.remote.__file__).with_name("__main__.py")


@pytest.mark.parametrize("ranks", [2, 3])
def test_one_rank_prints_the_bandwidth_of_a_ring(ranks: int, tmp_path: Path) -> None:
    done = subprocess.run(
        [
            *("mpirun", "--allow-run-as-root", "--oversubscribe", "-np", str(ranks)),
            *("python3", "-I", "-S", str(MAIN), "ring", "65536", "0.2"),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith(MARK)]
    assert len(lines) == 1
    assert float(lines[0].removeprefix(MARK)) > 0
