"""Asking one node to end what it has of a job."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from launch.client.cancel import Swept, sweep_node
from launch.errors import GiveUpError
from tests.launch.cluster import Cluster


@contextmanager
def rank_of(job: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"], env={**os.environ, "RANKLIFT_JOB_ID": job}) as rank:
        try:
            yield rank
        finally:
            rank.kill()


def test_a_node_without_code_has_nothing_of_a_job_only_if_no_process_says_so(tmp_path: Path) -> None:
    head = Cluster(tmp_path / "cluster", 1).head
    with rank_of("sweep-t-12") as rank:
        assert sweep_node("sweep-t-1", head, remote=None, grace_s=0) == Swept(0, ())
        with pytest.raises(GiveUpError, match=rf"^node000000: .* `kill -9 {rank.pid}` there$"):
            sweep_node("sweep-t-12", head, remote="abc", grace_s=0)
    assert sweep_node("sweep-t-12", head, remote="abc", grace_s=0) == Swept(0, ())
