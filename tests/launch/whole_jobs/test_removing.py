"""A job that is launched on a node while a command removes it is refused by that command's name."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from launch.job.spec import Kind
from launch.remote.node import slots
from tests.launch.standin import Nodes, shell, states

REMOVAL = "`fab scale 1` of ann on desk (process 7)"


@pytest.mark.parametrize("kind", ["pytorch", "mpi"])
def test_no_rank_starts_on_a_node_that_is_being_removed(nodes: Nodes, kind: Kind) -> None:
    sick = nodes.nodes[1]
    program = ["-c", Path(slots.__file__).read_text(), str(sick.slots), REMOVAL, "60"]
    with subprocess.Popen(
        [sys.executable, "-I", "-S", *program],
        env={"HOME": str(nodes.folder / sick.name)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"held\n"
            began = time.monotonic()
            state, events = nodes.run(shell("touch $HOME/ran", kind))
            assert time.monotonic() - began < 60, "it waited"
            assert holder.poll() is None
        finally:
            holder.kill()
    assert state.state == "FAILED"
    assert state.reason == f"no rank was started: {sick.name} is being removed by {REMOVAL}"
    assert "RUNNING" not in states(events)
    assert not list(nodes.folder.glob("*/ran"))
