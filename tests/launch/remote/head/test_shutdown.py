"""Ending a launch: the first outcome counts, everything is told to end, and nothing is waited for forever."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from launch.remote.base import frames
from launch.remote.base.processes import SIGTERM
from launch.remote.head import shutdown
from launch.remote.head.outcome import Outcome
from launch.remote.head.runners.runner_pool import Crew
from launch.remote.head.shutdown import Stopping

GRACE_S = 60.0
FIRST, SECOND = Outcome("FAILED", 3, "rank 2 ended with exit status 3"), Outcome("FAILED", 1, "its peer")


class Runners:
    """What a crew is to the end of a launch: it keeps what it was told."""

    def __init__(self, links: int = 2) -> None:
        self.to_start = ["a rank that has not been started"]
        self.mpirun: Any = None
        self.told: list[tuple[bytes, int]] = []
        self.hear = True
        self.open_links = [SimpleNamespace(node=number, done=False) for number in range(links)]

    def tell(self, kind: bytes, body: dict[str, int]) -> bool:
        self.told.append((kind, body["grace_ms"]))
        return self.hear


class Mpirun:
    def __init__(self) -> None:
        self.signals: list[int] = []

    def signal(self, number: int) -> None:
        self.signals.append(number)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    made = SimpleNamespace(now=100.0)
    monkeypatch.setattr(shutdown, "time", SimpleNamespace(monotonic=lambda: made.now))
    return made


@pytest.fixture
def crew(clock: SimpleNamespace) -> Runners:
    return Runners()


@pytest.fixture
def ending(crew: Runners) -> Stopping:
    return Stopping(cast(Crew, crew), GRACE_S)


def test_the_first_outcome_is_the_launchs(ending: Stopping, crew: Runners) -> None:
    ending.fail(FIRST)
    ending.fail(SECOND)
    assert ending.verdict is FIRST
    assert crew.told == [(frames.STOP, 60_000)], "told once"
    assert crew.to_start == [], "no further rank begins"


def test_unless_a_rank_failed_before_it(ending: Stopping) -> None:
    ending.failures.add(1_000, FIRST, b"")
    ending.fail(SECOND)
    assert ending.verdict is FIRST


def test_asked_again_with_less_less_counts(ending: Stopping, crew: Runners) -> None:
    ending.stop()
    ending.stop(10.0)
    ending.stop(30.0)
    ending.stop()
    assert [grace for _, grace in crew.told] == [60_000, 10_000]


def test_mpirun_is_told_itself_where_no_runner_hears(ending: Stopping, crew: Runners) -> None:
    crew.mpirun, crew.hear = Mpirun(), False
    ending.stop()
    assert crew.mpirun.signals == [SIGTERM]


def test_where_one_hears_mpirun_ends_with_its_ranks(ending: Stopping, crew: Runners) -> None:
    crew.mpirun = Mpirun()
    ending.stop()
    assert crew.mpirun.signals == []


def test_nothing_is_pressed_that_was_not_told_to_end(ending: Stopping) -> None:
    ending.press(1e9, lambda link, why: pytest.fail(f"{link}: {why}"))
    assert (ending.has_begun, ending.cut_off) == (False, False)


def test_runners_that_do_not_report_their_end_are_lost_soon_after_the_grace(
    ending: Stopping, crew: Runners, clock: SimpleNamespace
) -> None:
    lost: list[tuple[int | None, str]] = []

    def press(seconds: float) -> None:
        ending.press(clock.now + seconds, lambda link, why: lost.append((link.node, why)))

    crew.open_links[0].done = True
    ending.stop()
    press(GRACE_S + 4.0)
    assert lost == []
    press(GRACE_S + 4.1)
    assert lost == [(1, "its processes did not end")]


def test_then_mpirun_is_told_and_then_nothing_is_waited_for_any_more(
    ending: Stopping, crew: Runners, clock: SimpleNamespace
) -> None:
    crew.mpirun, crew.open_links = Mpirun(), []
    ending.stop(1.0)
    seen = []
    for seconds in (9.0, 9.1, 13.0, 13.1):
        ending.press(clock.now + seconds, lambda link, why: None)
        seen.append((len(crew.mpirun.signals), ending.cut_off))
    assert seen == [(0, False), (1, False), (2, False), (3, True)]
