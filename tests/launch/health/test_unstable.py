"""A node is called slow only if it stays so while its peers are not: series of a busy machine."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence

import pytest

from launch.health.measurement import Figure, Group, Measurement, NodeBandwidth
from launch.health.pairs import MOST, STEADY, judge_again, settled
from launch.health.search import SearchResult, search, search_all_pairs
from tests.launch.health.networks import names

FIGURE = Figure(100.0, 88.0, 67.0, "a source")
A, B, C, D = names(4)
SEEDS = range(40)


def sick(found: SearchResult) -> set[str]:
    return {one.node for one in found.nodes if one.verdict == "sick"}


class Busy:
    """A machine whose nodes are all slowed down by what else runs there, by the round; ``slow`` nodes bring a
    part of what they could. Pairs in ``burst`` are faster once: a token bucket was full."""

    def __init__(
        self, loads: Sequence[float], slow: Mapping[str, float] | None = None, burst: Sequence[Group] = ()
    ) -> None:
        self.loads, self.slow, self.burst = loads, slow or {}, list(burst)
        self.rounds: list[list[Group]] = []

    def measure(self, groups: Sequence[Group]) -> list[Measurement]:
        load = self.loads[len(self.rounds) % len(self.loads)]
        self.rounds.append(list(groups))
        return [self._one(group, load) for group in groups]

    def _one(self, group: Group, load: float) -> Measurement:
        if group in self.burst:
            self.burst.remove(group)
            return Measurement(group, 100.0)
        return Measurement(group, load * min(self.slow.get(node, 1.0) for node in group))


@pytest.mark.parametrize("find", [search, search_all_pairs])
@pytest.mark.parametrize("loads", [(62.0, 67.0, 64.0), (65.0,), (62.0, 66.0, 80.0, 61.0)])
def test_good_nodes_of_a_busy_machine_are_not_called_slow(find, loads: tuple[float, ...]) -> None:  # type: ignore[no-untyped-def]
    machine = Busy(loads, burst=[(A, B)])
    found = find((A, B, C, D), machine.measure)
    assert {one.verdict for one in found.nodes} == {"unknown"}, machine.rounds  # without a figure
    assert not any(one.is_unstable for one in found.nodes)
    assert found.is_healthy


@pytest.mark.parametrize("count", [3, 4, 5, 8])
def test_a_slow_node_is_found_on_a_busy_machine(count: int) -> None:
    for seed in SEEDS:
        chance = random.Random(seed)
        slow = chance.choice(names(count))
        machine = Busy([chance.uniform(60, 100) for _ in range(50)], {slow: 0.41})
        found = search(names(count), machine.measure)
        assert sick(found) == {slow}, (seed, machine.rounds)
        (one,) = [one for one in found.nodes if one.node == slow]
        assert settled(one.again) == "slow"
        assert "measured again: " in one.reason


def test_two_slow_nodes_of_four_are_found_beside_the_others() -> None:
    for seed in SEEDS:
        chance = random.Random(seed)
        slow = chance.sample(names(4), 2)
        machine = Busy([chance.uniform(80, 100) for _ in range(50)], dict.fromkeys(slow, 0.41))
        assert sick(search(names(4), machine.measure)) == {*slow}, seed


class Alternating(Busy):
    """Node ``D`` is slow until it has been measured with each other node, and then every second time."""

    def __init__(self) -> None:
        super().__init__([100.0])
        self.parts = self._parts()

    @staticmethod
    def _parts() -> Iterator[float]:
        yield from (0.5,) * 4  # all together, and three pairs
        while True:
            yield from (1.0, 0.5)

    def _one(self, group: Group, load: float) -> Measurement:
        return Measurement(group, load * (next(self.parts) if D in group else 1.0))


def test_a_node_that_alternates_is_unstable_and_not_sick() -> None:
    found = search((A, B, C, D), Alternating().measure)
    (one,) = [one for one in found.nodes if one.node == D]
    assert (one.verdict, one.is_unstable, len(one.again)) == ("unknown", True, MOST)
    assert one.reason == (
        "unstable: seemed slow (50 % of its peers' bandwidth in 3 of 3 pairs), and measured again reached "
        "100 %, 50 %, 100 %, 50 %, 100 %, 50 %, 100 % of its peers' bandwidth"
    )
    assert not found.is_healthy
    assert found.rest is None


def test_below_a_figure_an_unstable_node_stays_unstable() -> None:
    found = search_all_pairs((A, B, C, D), Alternating().measure, FIGURE)
    assert [one.node for one in found.nodes if one.is_unstable] == [D]


SERIES: list[tuple[list[float | None], str | None]] = [
    ([0.41, 0.4, 0.42], "slow"),
    ([None, None, None], "slow"),
    ([0.62, 0.97, 1.02, 0.95], "fast"),
    ([1.0, 0.6, 0.62, 0.61], "slow"),
    ([0.62, 0.9], None),
    ([0.62, 1.0, 0.6, 1.0, 0.6, 1.0], None),
    ([0.62, 1.0, 0.6, 1.0, 0.6, 1.0, 0.6], "unstable"),
]


@pytest.mark.parametrize(("again", "outcome"), SERIES)
def test_measurements_settle_once_they_agree(again: list[float | None], outcome: str | None) -> None:
    assert settled(again) == outcome
    assert len(again) >= STEADY or outcome is None


def test_a_node_that_fails_each_time_keeps_its_reason() -> None:
    found = NodeBandwidth(D, "sick", "fails in 3 of 3 pairs: rank 0 ended with 1", None, 3, 3)
    assert judge_again(found, [None] * 3).reason == found.reason
