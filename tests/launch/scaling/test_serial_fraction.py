"""The serial fraction that made-up measurements have by construction, and its stated error."""

from __future__ import annotations

import random

import pytest

from launch.scaling.scaling_points import make_points
from launch.scaling.serial_fraction import fit_serial_fraction, karp_flatt
from tests.launch.scaling.studies import amdahl

COUNTS = (1, 2, 4, 8)


def measured(
    fraction: float, noise: float, repeats: int, chance: random.Random, of_nodes: float = 0.0
) -> dict[int, list[float]]:
    """Repeats at each number of nodes; ``of_nodes`` is time that each further node adds."""
    return {
        nodes: [
            chance.gauss(1, noise) / (1 / amdahl(fraction, nodes) + of_nodes * (nodes - 1))
            for _ in range(repeats)
        ]
        for nodes in COUNTS
    }


@pytest.mark.parametrize("fraction", [0.0, 0.05, 0.2, 0.5])
@pytest.mark.parametrize("noise", [0.002, 0.01, 0.03])
@pytest.mark.parametrize("repeats", [2, 3, 5])
def test_the_true_fraction_is_within_the_stated_error_in_19_of_20(
    fraction: float, noise: float, repeats: int
) -> None:
    chance = random.Random(20)
    hits, widths = 0, []
    for _ in range(400):
        found = fit_serial_fraction(make_points(measured(fraction, noise, repeats, chance)))
        assert found is not None
        hits += abs(found.value - fraction) <= found.error
        widths.append(found.error)
    assert hits >= 0.95 * 400
    assert max(widths) < 8 * (noise + 0.005)  # an error so wide that nothing is outside would not do


def test_it_is_against_the_fewest_nodes_whatever_these_are() -> None:
    exact = {nodes: [amdahl(0.2, nodes)] * 2 for nodes in (2, 4, 8)}
    found = fit_serial_fraction(make_points(exact))
    assert found is not None
    assert found.value == pytest.approx(0.2 / (0.2 + 0.8 / 2))


def test_what_grows_with_the_nodes_is_told_from_work_that_one_node_does_alone() -> None:
    chance = random.Random(20)
    steady = fit_serial_fraction(make_points(measured(0.1, 0.002, 3, chance)))
    growing = fit_serial_fraction(make_points(measured(0.02, 0.002, 3, chance, of_nodes=0.02)))
    assert steady is not None
    assert growing is not None
    assert (steady.rises, growing.rises) == (False, True)


def test_points_far_from_the_line_have_a_wider_error() -> None:
    chance = random.Random(20)
    straight = fit_serial_fraction(make_points(measured(0.1, 0.002, 3, chance)))
    bent = fit_serial_fraction(make_points(measured(0.02, 0.002, 3, chance, of_nodes=0.05)))
    assert straight is not None
    assert bent is not None
    assert bent.error > 3 * straight.error


def test_without_repeats_or_with_one_point_it_has_no_error_and_is_not_stated() -> None:
    assert fit_serial_fraction(make_points({1: [1.0], 4: [2.5]})) is None
    assert fit_serial_fraction(make_points({4: [2.5, 2.5]})) is None


def test_karp_and_flatt_give_each_point_its_own() -> None:
    base, two, four = make_points({1: [1.0], 2: [amdahl(0.1, 2)], 4: [amdahl(0.3, 4)]})
    assert karp_flatt(base, base) is None
    assert karp_flatt(two, base) == pytest.approx(0.1)
    assert karp_flatt(four, base) == pytest.approx(0.3)
