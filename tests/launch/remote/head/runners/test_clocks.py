"""Times of nodes whose clocks are wrong are compared by the head's clock, and right ones as they are."""

from __future__ import annotations

import pytest

from launch.remote.head.runners.clocks import Clocks

GO = 1_767_225_600_000_000
CULPRIT, VICTIM = 0, 1


def ends(offsets: tuple[int, int]) -> tuple[int, int]:
    """When the head takes two ranks to have ended, the victim 5 ms later, and both reports late and at once;
    ``offsets`` are those of the clocks, in microseconds."""
    clocks = Clocks()
    clocks.on_go(GO)
    for node, offset in enumerate(offsets):
        clocks.on_time(node, GO + 40_000 + offset, GO + 41_000)
    ended = [GO + 1_000_000 + 5_000 * node + offset for node, offset in enumerate(offsets)]
    for node in (VICTIM, CULPRIT):
        clocks.on_time(node, ended[node], GO + 1_090_000)
    return clocks.by_head(CULPRIT, ended[CULPRIT]), clocks.by_head(VICTIM, ended[VICTIM])


@pytest.mark.parametrize(
    "offsets",
    [(2_000_000, 0), (0, -2_000_000), (3_600_000_000, -5_000_000), (2_000_000, 2_000_000), (300_000, 0)],
)
def test_the_first_to_end_is_found_whatever_the_clocks_show(offsets: tuple[int, int]) -> None:
    culprit, victim = ends(offsets)
    assert culprit < victim


def test_times_of_clocks_that_may_be_right_are_left_as_they_are() -> None:
    assert ends((0, 0)) == (GO + 1_000_000, GO + 1_005_000)
