"""What launchers say of nodes that they have lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch.remote.head import outcome
from launch.remote.log.writer import LAUNCHER, StreamWriter

NODES = ("node000000", "node000001", "node000002")


@pytest.mark.parametrize(
    ("said", "blamed"),
    [
        (
            b"ORTE has lost communication with a remote daemon.\n"
            b"  HNP daemon   : [[18905,0],0] on node node000000\n"
            b"  Remote daemon: [[18905,0],2] on node node000001\n",
            "node000001",
        ),
        (b"[mpiexec@node000000] control_cb: connection to proxy 1 at host node000002 failed\n", "node000002"),
        (b"Connection to node000001 closed by remote host.\r\n", "node000001"),
        (b"Timeout, server node000002 not responding.\r\n", "node000002"),
        (b"Connection to elsewhere closed by remote host.\n", None),
        (b"Primary job terminated normally on node000001\n", None),
    ],
)
def test_the_node_is_one_of_the_jobs(tmp_path: Path, said: bytes, blamed: str | None) -> None:
    stream = StreamWriter(str(tmp_path))
    stream.write(0, 0, 1, b"Connection to node000002 closed by remote host.\n")  # no launcher's words
    stream.write(LAUNCHER, 0, 2, said)
    assert outcome.blamed_node(stream, NODES) == blamed
    stream.close()


def test_all_ranks_of_a_lost_node_are_named_and_none_is_said_to_have_failed() -> None:
    lost = outcome.lost_node([2, 3], "node000001", "no sign of life for 12 s")
    assert lost.reason == "node000001 (ranks 2, 3) is lost: no sign of life for 12 s"
    assert lost.failure == {
        "rank": None,
        "node": "node000001",
        "status": 255,
        "last_lines": ["no sign of life for 12 s"],
    }
