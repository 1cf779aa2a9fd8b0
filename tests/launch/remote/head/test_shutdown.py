"""Ending a launch: the first outcome counts, the shortest grace, and nothing is waited for forever."""

from __future__ import annotations

import pytest

from launch.remote.head.outcome import Outcome
from launch.remote.head.shutdown import CUT_OFF, DROP_RUNNERS, END_MPIRUN, WAIT, Shutdown, Stop

GRACE_S = 60.0
FIRST, SECOND = Outcome("FAILED", 3, "rank 2 ended with exit status 3"), Outcome("FAILED", 1, "its peer")


@pytest.fixture
def shutdown() -> Shutdown:
    return Shutdown(GRACE_S)


def test_the_first_outcome_is_the_launchs(shutdown: Shutdown) -> None:
    assert shutdown.begin(Stop(FIRST), now=1.0) == GRACE_S
    assert shutdown.begin(Stop(SECOND), now=2.0) is None, "runners are ordered once"
    assert shutdown.outcome is FIRST


def test_unless_a_rank_failed_before_it(shutdown: Shutdown) -> None:
    shutdown.failures.add(1_000, FIRST, b"", now=0.9)
    shutdown.begin(Stop(SECOND), now=1.0)
    assert shutdown.outcome is FIRST


def test_an_end_without_an_outcome_leaves_it_open(shutdown: Shutdown) -> None:
    shutdown.begin(Stop(), now=1.0)
    assert (shutdown.has_begun, shutdown.outcome) == (True, None)
    shutdown.begin(Stop(SECOND), now=2.0)
    assert shutdown.outcome is SECOND


def test_a_shorter_grace_counts_a_longer_one_does_not(shutdown: Shutdown) -> None:
    stops = (Stop(), Stop(grace=10.0), Stop(grace=30.0), Stop())
    assert [shutdown.begin(stop, now=1.0) for stop in stops] == [GRACE_S, 10.0, None, None]


def test_the_first_grace_may_be_longer_than_the_jobs(shutdown: Shutdown) -> None:
    assert shutdown.begin(Stop(grace=100.0), now=1.0) == 100.0


def test_nothing_is_given_up_before_the_ranks_were_ordered_to_end(shutdown: Shutdown) -> None:
    assert (shutdown.has_begun, shutdown.escalation(now=1e9)) == (False, WAIT)


def test_after_the_grace_runners_mpirun_and_the_wait_are_given_up_in_turn(shutdown: Shutdown) -> None:
    shutdown.begin(Stop(), now=100.0)
    over = 100.0 + GRACE_S
    assert shutdown.escalation(over + 4.0) == WAIT
    assert shutdown.escalation(over + 4.1) == DROP_RUNNERS
    assert shutdown.escalation(over + 8.0) == DROP_RUNNERS
    assert shutdown.escalation(over + 8.1) == END_MPIRUN
    assert shutdown.escalation(over + 12.0) == END_MPIRUN
    assert shutdown.escalation(over + 12.1) == CUT_OFF


def test_a_shorter_grace_brings_the_steps_forward(shutdown: Shutdown) -> None:
    shutdown.begin(Stop(), now=100.0)
    shutdown.begin(Stop(grace=1.0), now=102.0)
    assert shutdown.escalation(now=105.1) == DROP_RUNNERS
