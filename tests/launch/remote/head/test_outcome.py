"""How a launch ended: which node mpirun lost, and which rank failed first."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch.remote.head import outcome
from launch.remote.head.outcome import Failures, Outcome
from launch.remote.log.writer import LAUNCHER, StreamWriter

NODES = ("node000000", "node000001", "node000002")


@pytest.mark.parametrize(
    ("output", "blamed"),
    [
        (
            b"ORTE has lost communication with a remote daemon.\n"
            b"  HNP daemon   : [[18905,0],0] on node node000000\n"
            b"  Remote daemon: [[18905,0],2] on node node000001\n",
            "node000001",
        ),
        (
            b"PRTE has lost communication with a remote daemon.\n"
            b"  HNP daemon   : [prterun-node000000-18305@0,0] on node node000000\n"
            b"  Remote daemon: [prterun-node000000-18305@0,1] on node node000001\n",
            "node000001",
        ),
        (b"[mpiexec@node000000] control_cb: connection to proxy 1 at host node000002 failed\n", "node000002"),
        (b"Connection to node000001 closed by remote host.\r\n", "node000001"),
        (b"Timeout, server node000002 not responding.\r\n", "node000002"),
        (b"Connection to elsewhere closed by remote host.\n", None),
        (b"Primary job terminated normally on node000001\n", None),
    ],
)
def test_the_node_is_one_of_the_jobs(tmp_path: Path, output: bytes, blamed: str | None) -> None:
    stream = StreamWriter(str(tmp_path))
    stream.write(0, 0, 1, b"Connection to node000002 closed by remote host.\n")  # a rank's output
    stream.write(LAUNCHER, 0, 2, output)
    assert outcome.blamed_node(stream, NODES) == blamed
    stream.close()


def test_all_ranks_of_a_lost_node_are_named_and_none_has_failed() -> None:
    lost = outcome.lost_node([2, 3], "node000001", "no sign of life for 12 s")
    assert lost.reason == "node000001 (ranks 2, 3) is lost: no sign of life for 12 s"
    assert lost.failure == {
        "rank": None,
        "node": "node000001",
        "status": 255,
        "last_lines": ["no sign of life for 12 s"],
    }


def failed(name: str, status: int = 1) -> Outcome:
    return Outcome("FAILED", status, name)


def test_the_earliest_end_counts_not_the_earliest_report() -> None:
    failures = Failures()
    assert (failures.first, failures.settled(now=100.0)) == (None, None)
    failures.add(2_000, failed("victim"), b"", now=100.0)
    assert failures.settled(now=100.1) is None, "an earlier one may be reported yet"
    failures.add(1_000, failed("culprit"), b"", now=100.1)
    settled = failures.settled(now=100.25)
    assert settled is not None
    assert settled.reason == "culprit"


@pytest.mark.parametrize(
    ("status", "output"),
    [(14, b""), (16, b""), (143, b"Abort(15) on node 1: Fatal error in internal_Barrier: Other MPI error")],
)
def test_a_rank_whose_mpi_gave_up_is_no_culprit_while_there_is_another(status: int, output: bytes) -> None:
    failures = Failures()
    failures.add(1_000, failed("victim", status), output, now=0.0)
    assert failures.first is not None
    assert failures.first.reason == "victim"
    failures.add(2_000, failed("culprit", 137), b"", now=0.0)
    assert failures.first.reason == "culprit"
