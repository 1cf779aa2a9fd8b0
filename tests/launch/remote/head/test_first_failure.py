"""Which rank is named when several fail within the same moment."""

from __future__ import annotations

import time

import pytest

from launch.remote.head.first_failure import Failures
from launch.remote.head.outcome import Outcome


def outcome(name: str, status: int = 1) -> Outcome:
    return Outcome("FAILED", status, name)


def test_the_earliest_end_counts_not_the_earliest_report(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    known = Failures()
    assert (known.first, known.settled) == (None, None)
    known.add(2_000, outcome("victim"), b"")
    now[0] += 0.1
    assert known.settled is None
    known.add(1_000, outcome("culprit"), b"")
    now[0] += 0.15
    assert known.settled is not None
    assert known.settled.reason == "culprit"


@pytest.mark.parametrize(
    ("status", "said"),
    [(14, b""), (16, b""), (143, b"Abort(15) on node 1: Fatal error in internal_Barrier: Other MPI error")],
)
def test_a_rank_whose_mpi_gave_up_is_no_culprit_while_there_is_another(status: int, said: bytes) -> None:
    known = Failures()
    known.add(1_000, outcome("victim", status), said)
    assert known.first is not None
    assert known.first.reason == "victim"
    known.add(2_000, outcome("culprit", 137), b"")
    assert known.first.reason == "culprit"
