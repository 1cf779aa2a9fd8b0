"""The search finds slow nodes and paths, and nothing else, in a bounded number of rounds."""

from __future__ import annotations

import random
from collections.abc import Sequence
from math import ceil, log2

import pytest

from launch.errors import InputError
from launch.health.measurement import Figure, Group, Measurement
from launch.health.search import PAIRS, SearchResult, search, search_all_pairs
from tests.launch.health.networks import Network, names

FIGURE = Figure(100.0, 88.0, 67.0, "a source")
COUNTS = (3, 4, 5, 7, 8, 9, 13, 16, 31, 64, 127, 300)
SEEDS = range(20)

# Pairs of 64 rehearsed nodes behind links of one rate, in % of the usual one, as `fab check --deep` measured:
# two processors carry all of the traffic, and a token bucket lets some through at twice its rate.
# fmt: off
MEASURED = (
    78, 85, 86, 86, 87, 87, 88, 88, 88, 88, 89, 89, 90, 90, 90, 91, 91, 93, 93, 94, 94, 94, 94, 95, 96,
    97, 97, 99, 100, 100, 100, 100, 100, 100, 100, 100, 101, 101, 101, 101, 101, 102, 102, 122, 122,
    131, 159, 191, 193, 196,
)
# fmt: on
SLOW = (48, 57, 64, 64, 64, 64, 68)
"""The same of the node whose link brings a third."""


def sick(found: SearchResult) -> set[str]:
    return {one.node for one in found.nodes if one.verdict == "sick"}


def flagged(found: SearchResult) -> set[str]:
    return {one.node for one in found.nodes if one.verdict in ("sick", "suspect")}


@pytest.mark.parametrize("figure", [FIGURE, None], ids=["figure", "peers alone"])
@pytest.mark.parametrize("count", COUNTS)
def test_one_slow_node_is_named_in_20_of_20_networks(count: int, figure: Figure | None) -> None:
    for seed in SEEDS:
        slow = random.Random(seed).choice(names(count))
        network = Network(nodes={slow: 41.0}, seed=seed)
        found = search(names(count), network.measure, figure)
        assert flagged(found) == sick(found) == {slow}, (seed, network.rounds)
        assert not found.is_healthy
        assert found.rest is not None or count == 2
        assert len(network.rounds) <= ceil(log2(count)) + PAIRS + 3


@pytest.mark.parametrize("figure", [FIGURE, None], ids=["figure", "peers alone"])
@pytest.mark.parametrize("count", [count for count in COUNTS if count >= 5])
def test_two_slow_nodes_are_named_in_20_of_20_networks(count: int, figure: Figure | None) -> None:
    for seed in SEEDS:
        slow = random.Random(seed).sample(names(count), 2)
        network = Network(nodes={slow[0]: 30.0, slow[1]: 55.0}, seed=seed)
        found = search(names(count), network.measure, figure)
        assert flagged(found) == sick(found) == set(slow), (seed, network.rounds)


@pytest.mark.parametrize("figure", [FIGURE, None], ids=["figure", "peers alone"])
@pytest.mark.parametrize("count", [16, 64, 300])
def test_one_node_in_eight_may_be_slow(count: int, figure: Figure | None) -> None:
    for seed in SEEDS:
        slow = random.Random(seed).sample(names(count), count // 8)
        network = Network(nodes=dict.fromkeys(slow, 50.0), seed=seed)
        assert sick(search(names(count), network.measure, figure)) == set(slow), seed


@pytest.mark.parametrize("count", [6, 7, 8, 12, 64])
def test_pairs_are_compared_with_pairs_and_not_with_larger_groups(count: int) -> None:
    for seed in SEEDS:
        slow = random.Random(seed).choice(names(count))
        network = Network(nodes={slow: 41.0}, of_pairs=0.65, seed=seed)
        assert flagged(search(names(count), network.measure, FIGURE)) == {slow}, seed


@pytest.mark.parametrize("count", [8, 9, 64, 300])
def test_one_slow_node_is_named_where_pairs_differ_as_measured_ones_do(count: int) -> None:
    for seed in range(100):
        chance = random.Random(seed)
        slow = chance.choice(names(count))

        def measure(
            groups: Sequence[Group], slow: str = slow, chance: random.Random = chance
        ) -> list[Measurement]:
            return [
                Measurement(group, float(chance.choice(SLOW if slow in group else MEASURED)))
                for group in groups
            ]

        assert flagged(search(names(count), measure)) == {slow}, seed


def test_half_of_few_nodes_may_be_slow() -> None:
    for seed in SEEDS:
        slow = random.Random(seed).sample(names(6), 3)
        network = Network(nodes=dict.fromkeys(slow, 50.0), seed=seed)
        assert sick(search(names(6), network.measure)) == set(slow), seed


@pytest.mark.parametrize("count", [3, 8, 21])
def test_a_node_that_fails_in_every_group_is_sick_for_its_reason(count: int) -> None:
    node = names(count)[1]
    found = search(names(count), Network(nodes={node: 0.0}).measure)
    assert sick(found) == {node}
    (one,) = [one for one in found.nodes if one.node == node]
    assert one.reason.endswith("pairs: rank 0 ended with 1")


@pytest.mark.parametrize("count", [2, 3, 8, 300])
def test_a_cluster_at_its_figure_takes_one_round(count: int) -> None:
    network = Network(seed=count)
    found = search(names(count), network.measure, FIGURE)
    assert found.is_healthy
    assert {one.verdict for one in found.nodes} == {"healthy"}
    assert network.rounds == [(names(count),)]


@pytest.mark.parametrize("count", [3, 8, 20, 300])
def test_without_a_figure_a_fast_cluster_is_unknown_and_not_healthy(count: int) -> None:
    for seed in SEEDS:
        found = search(names(count), Network(seed=seed).measure)
        assert {one.verdict for one in found.nodes} == {"unknown"}, seed
        assert "no figure" in found.nodes[0].reason
        assert not found.slow_pairs
        assert found.is_healthy  # nothing was found; each node's verdict says what that is worth


@pytest.mark.parametrize("count", [2, 3, 8, 9, 64])
def test_nodes_that_are_all_slow_are_told_from_one_by_the_figure(count: int) -> None:
    for seed in SEEDS:
        found = search(names(count), Network(usual=50.0, noise=0.01, seed=seed).measure, FIGURE)
        assert {one.verdict for one in found.nodes} == {"suspect"}, seed
        assert not sick(found)
        assert "as slow as its peers" in found.nodes[0].reason
        assert not found.is_healthy


@pytest.mark.parametrize("count", [2, 3, 8, 9, 64])
def test_where_nothing_can_be_measured_no_node_is_called_sick(count: int) -> None:
    network = Network(usual=0.0)
    found = search(names(count), network.measure, FIGURE)
    assert not sick(found)
    assert not found.is_healthy
    assert all("rank 0 ended with 1" in one.reason for one in found.nodes)
    assert len(network.rounds) <= 4


def test_of_two_nodes_alone_none_is_accused() -> None:
    found = search(names(2), Network().measure)
    assert [one.verdict for one in found.nodes] == ["unknown", "unknown"]
    with pytest.raises(InputError, match="at least two nodes"):
        search(names(1), Network().measure)


@pytest.mark.parametrize("count", [4, 7, 8, 12, 33])
def test_all_pairs_find_the_one_slow_path_in_20_of_20_networks(count: int) -> None:
    for seed in SEEDS:
        pair = tuple(sorted(random.Random(seed).sample(names(count), 2)))
        network = Network(paths={pair: 38.0}, seed=seed)
        found = search_all_pairs(names(count), network.measure, None)
        assert [one.group for one in found.slow_pairs] == [pair], seed
        assert not flagged(found)
        assert not found.is_healthy
        rounds = count - 1 + count % 2
        assert len(network.rounds) == 1 + rounds + 3
        measured = {group for done in network.rounds[1 : 1 + rounds] for group in done}
        assert len(measured) == count * (count - 1) // 2


@pytest.mark.parametrize("count", [8, 13, 40])
def test_all_pairs_find_a_slow_node_and_do_not_blame_its_paths(count: int) -> None:
    for seed in SEEDS:
        slow = random.Random(seed).choice(names(count))
        found = search_all_pairs(names(count), Network(nodes={slow: 41.0}, seed=seed).measure)
        assert sick(found) == flagged(found) == {slow}
        assert found.slow_pairs == ()
        (one,) = [one for one in found.nodes if one.node == slow]
        assert (one.pairs_below, one.pairs) == (count - 1, count - 1)


def test_halves_end_at_a_slow_path_between_neighbours() -> None:
    pair = names(16)[2:4]
    found = search(names(16), Network(paths={pair: 38.0}).measure, FIGURE)
    assert [one.group for one in found.slow_pairs] == [pair]
    assert not flagged(found)


def test_a_path_that_no_half_holds_leaves_nodes_healthy_and_the_cluster_not() -> None:
    ends = (names(16)[0], names(16)[15])
    found = search(names(16), Network(paths={ends: 38.0}).measure, FIGURE)
    assert {one.verdict for one in found.nodes} == {"healthy"}
    assert not found.is_healthy


def test_the_verdict_counts_pairs_and_the_rest_is_measured_without_the_node() -> None:
    slow = names(64)[17]
    network = Network(nodes={slow: 41.0}, noise=0.001)
    found = search(names(64), network.measure, FIGURE)
    (one,) = [one for one in found.nodes if one.verdict == "sick"]
    assert (one.node, one.reason) == (slow, "41 % of its peers' bandwidth in 6 of 6 pairs")
    partners = [
        node for done in network.rounds for pair in done if len(pair) == 2 and slow in pair for node in pair
    ]
    assert len(set(partners) - {slow}) >= PAIRS
    assert found.rest is not None
    assert found.rest.group == tuple(node for node in names(64) if node != slow)
    assert found.rest.gbs is not None and found.rest.gbs > 88


def test_noise_of_a_third_accuses_nobody() -> None:
    for seed in SEEDS:
        assert not flagged(search(names(32), Network(noise=0.3, seed=seed).measure)), seed


def test_measurements_are_kept_round_by_round() -> None:
    network = Network(nodes={names(9)[4]: 20.0})
    found = search(names(9), network.measure, FIGURE)
    assert [tuple(one.group for one in done) for done in found.rounds] == network.rounds
    assert found.whole == found.rounds[0][0]
    assert isinstance(found.whole, Measurement)


@pytest.mark.parametrize("count", [3, 8, 12])
def test_nodes_between_which_nothing_can_be_measured_do_not_pass(count: int) -> None:
    found = search(names(count), Network(usual=0.0).measure)
    assert {one.verdict for one in found.nodes} == {"unknown"}
    assert not found.is_healthy
