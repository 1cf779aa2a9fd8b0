"""Values of a job's variables: every launch has them, and nothing on any node has them after the job."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch.job.spec import Kind
from tests.launch.standin import Nodes, lines, shell

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("nothing_runs_on")]

SECRET = "s3cret-value"
ONCE = "echo ${#KEY}; [ $NODE_RANK$RANKLIFT_RESTART_COUNT = 10 ] && exit 3; true"
"""Node 1 fails the first time."""


def files_with_the_secret(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]


@pytest.mark.parametrize("kind", ["mpi", "pytorch", "tensorflow"])
def test_a_restart_has_the_values_and_no_file_after_the_job(nodes: Nodes, kind: Kind) -> None:
    script = ONCE.replace("NODE_RANK", "RANK") if kind == "mpi" else ONCE
    state, events = nodes.run(shell(script, kind, max_restarts=1, env={"KEY": SECRET, "OMPI_MCA_a": SECRET}))
    assert (state.state, state.restarts) == ("SUCCEEDED", 1)
    assert {text for _, text in lines(events)} == {f"{len(SECRET)}"}
    assert len(lines(events)) == 6
    assert files_with_the_secret(nodes.folder) == []
