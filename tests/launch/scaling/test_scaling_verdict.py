"""What measurements say in words, and when they say nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest

from launch.remote.base.health_records import ProbeResult, ProbeVerdict
from launch.scaling.metric_numbers import Basis, Figures
from launch.scaling.point_transport import transport_of
from launch.scaling.scaling_plan import Run
from launch.scaling.scaling_points import make_points, relative_error
from launch.scaling.scaling_study import FailedRun
from launch.scaling.scaling_table import columns, rows
from launch.scaling.scaling_verdict import NOT_AZURE, analyse
from tests.launch.scaling.studies import INFINIBAND, SUBJECT, TCP, amdahl, study


def test_weak_scaling_states_what_of_linear_is_reached_and_what_is_lost() -> None:
    found = analyse(study({1: [100.0, 101.0, 99.0], 4: [340.0, 342.0, 338.0]}))
    assert found.sentences == (
        "4 nodes: 85.0 % of linear from 1 node (83.7 % to 86.4 %): 15.0 % of the ranks' time is lost to "
        "communication and waiting",
    )


def test_a_spread_wider_than_the_difference_gives_no_verdict() -> None:
    found = analyse(study({1: [100.0, 104.0, 96.0], 2: [196.0, 204.0, 190.0]}))
    assert found.sentences == (
        "2 nodes: no verdict on 98.0 % of linear from 1 node: the repeats spread over 14.9 % (91.3 % to "
        "106.2 %), no less than the 2.0 % to linear; give a higher --repeat",
    )


def test_a_point_on_the_line_without_any_spread_is_described_as_it_is() -> None:
    found = analyse(study({1: [100.0, 100.0], 2: [200.0, 200.0]})).sentences
    assert found == (
        "2 nodes: 100.0 % of linear from 1 node (100.0 % to 100.0 %): cannot be distinguished from linear",
    )


def test_a_single_run_gives_no_verdict() -> None:
    weak = analyse(study({1: [100.0], 2: [120.0]}))
    assert "one run has no spread; give --repeat 3" in weak.sentences[0]
    strong = analyse(study({1: [100.0], 2: [120.0]}, "strong"))
    assert strong.serial is None
    assert strong.sentences[-1].startswith("serial fraction: no verdict")


def test_strong_scaling_states_the_serial_fraction_and_its_limit() -> None:
    values = {n: [amdahl(0.2, n) * part for part in (1, 1.001, 0.999)] for n in (1, 2, 4)}
    found = analyse(study(values, "strong"))
    assert found.sentences[-1].startswith("serial fraction: 20.0 % ± ")
    assert found.sentences[-1].endswith("(95 %): at most 5 times as fast as 1 node, with however many nodes")


def test_a_serial_fraction_within_its_error_is_not_stated_as_one() -> None:
    values = {n: [n * part for part in (1, 1.01, 0.99)] for n in (1.0, 2.0, 4.0)}
    found = analyse(study({int(n): of for n, of in values.items()}, "strong"))
    assert found.sentences[-1].endswith("(95 %): cannot be distinguished from 0")


def test_a_rising_serial_fraction_is_called_what_it_is() -> None:
    values = {n: [1 / (1 / n + 0.02 * (n - 1))] * 3 for n in (1, 2, 4, 8)}
    assert (
        "rises from 4.0 % at 2 nodes to 16.0 % at 8 nodes" in analyse(study(values, "strong")).sentences[-1]
    )


def test_nodes_that_make_it_no_faster_are_named() -> None:
    found = analyse(study({1: [100.0, 100.0], 2: [100.0, 99.0]})).sentences
    assert found[-1] == "2 nodes are no faster than 1 node: 99.5 after 100"


def test_faster_than_linear_is_a_question() -> None:
    found = analyse(study({1: [100.0, 100.0], 2: [210.0, 210.0]})).sentences
    assert found[0].endswith("faster than linear; what slows 1 node?")


@pytest.mark.parametrize(
    ("basis", "of_one", "doubted"), [(None, 0, True), (None, 8, False), ("rank", 0, False), ("job", 0, False)]
)
def test_figures_that_are_too_good_for_those_of_ranks_give_no_verdict(
    basis: Basis | None, of_one: int, doubted: bool
) -> None:
    made = study({1: [100.0, 100.0], 2: [400.0, 400.0]})
    runs = []
    for one in made.runs:  # every rank prints what the job reaches
        each = dict.fromkeys(range(one.figures.ranks), (one.figures.by_rank[0][0] / one.figures.ranks,))
        runs.append(replace(one, figures=Figures(one.figures.ranks, each, of_one and one.figures.ranks)))
    found = analyse(replace(made, plan=replace(made.plan, basis=basis), runs=tuple(runs)))
    assert any("does it print the job's?" in one for one in found.sentences) == doubted
    assert (len(found.sentences) == 1) or not doubted


def test_a_point_whose_first_run_was_probed_has_what_that_found() -> None:
    whole = study({1: [1.0, 1.0], 2: [2.0, 2.0]})
    without = transport_of(2, [])
    later = [replace(run, transport=without) if run.run.repeat else run for run in whole.runs]
    assert analyse(replace(whole, runs=tuple(later))).transports[1] == INFINIBAND.words
    never = [replace(run, transport=without) for run in whole.runs]
    assert analyse(replace(whole, runs=tuple(never))).transports[1] == "not probed"


def test_points_over_different_transports_are_not_compared() -> None:
    found = analyse(study({1: [1.0, 1.0], 2: [2.0, 2.0], 4: [2.1, 2.1]}, transports={4: TCP})).sentences
    assert found == ("no verdict: the points differ in transport: InfiniBand, 1 HCA a node, TCP",)


def test_what_is_missing_and_what_failed_come_first() -> None:
    made = study({1: [100.0, 100.0], 2: [150.0]})
    made = made.with_failure(FailedRun(Run(1, 2), "train-9", "job train-9 FAILED: exit status 3"))
    assert analyse(made).sentences[:2] == (
        "3 of 4 runs are measured; --resume continues",
        "repeat 2 on 2 nodes failed (train-9): job train-9 FAILED: exit status 3",
    )


def test_nothing_measured_and_one_point_say_so() -> None:
    assert analyse(study({1: [], 2: [], 4: [1.0]})).sentences[-1].startswith("no verdict: only 4 nodes")


def test_a_rehearsal_says_nothing_of_azure() -> None:
    rehearsed = replace(SUBJECT, rehearsed=True)
    assert analyse(study({1: [1.0], 2: [2.0]}, subject=rehearsed)).sentences[-1] == NOT_AZURE
    assert NOT_AZURE not in analyse(study({1: [1.0], 2: [2.0]})).sentences


def test_a_table_has_the_metric_and_leaves_undecided_losses_out() -> None:
    made = study({1: [100.0, 104.0, 96.0], 2: [160.0, 162.0, 158.0], 4: [396.0, 404.0, 390.0]})
    assert columns(made)[3] == "samples_per_s"
    assert [row[:7] for row in rows(made, analyse(made))] == [
        ("1", "8", "3", "100", "8.0 %", "100.0 %", "-"),
        ("2", "16", "3", "160", "2.5 %", "80.0 %", "20.0 %"),
        ("4", "32", "3", "396", "3.5 %", "99.0 %", "-"),
    ]


@pytest.mark.parametrize("values", [{1: [100.0], 2: [150.0]}, {1: [100.0], 2: [150.0, 150.0]}])
def test_a_table_states_no_loss_against_or_of_a_single_run(values: dict[int, list[float]]) -> None:
    made = study(values)
    assert rows(made, analyse(made))[1][6] == "-"


def test_errors_of_all_points_are_pooled_and_have_a_floor() -> None:
    assert relative_error(make_points({1: [1.0], 2: [2.0]})) is None
    found = relative_error(make_points({1: [1.0, 1.0, 1.0], 2: [2.0, 2.0, 2.0]}))
    assert found is not None
    assert found[0] == {1: 0.005, 2: 0.005}
    assert found[1] == pytest.approx(2.776)  # of 4 degrees of freedom


def probe(
    source: Literal["probe", "ranks"], verdict: ProbeVerdict, transport: str = "", reason: str = ""
) -> ProbeResult:
    return {
        "source": source,
        "verdict": verdict,
        "transport": transport,
        "reason": reason,
        "seconds": 0.0,
        "lines": [],
    }


def test_what_ranks_print_outweighs_a_probe_and_a_refusal_outweighs_all() -> None:
    proven = probe("probe", "proven", "InfiniBand, 8 HCAs a node", "by job train-1")
    ranks = probe("ranks", "proven", "InfiniBand, 1 HCA a node")
    refused = probe("ranks", "refused", "TCP", "NCCL uses eth0")
    assert transport_of(2, [proven]).words == "InfiniBand, 8 HCAs a node: proven by job train-1"
    assert transport_of(2, [proven, ranks]) == INFINIBAND
    assert transport_of(2, [refused, ranks]) == TCP
    assert transport_of(2, [probe("probe", "unproven", "", "no program")]).words == "no program"
    assert transport_of(1, []).words == "one node"
    assert transport_of(2, []).words == "not probed"
