"""Which runs there are, and what the options may be."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from launch.errors import InputError
from launch.scaling.scaling_plan import Run, read_basis, read_metric, read_node_counts
from tests.launch.scaling.studies import PLAN


def test_repeats_are_interleaved_and_turn_round_so_that_a_drift_raises_no_point() -> None:
    order = PLAN.runs()
    assert [run.nodes for run in order] == [1, 2, 4, 4, 2, 1, 1, 2, 4]
    assert set(Counter(order).values()) == {1}
    two = replace(PLAN, repeats=2).runs()
    middle = {nodes: sum(n for n, run in enumerate(two) if run.nodes == nodes) for nodes in PLAN.counts}
    assert len(set(middle.values())) == 1  # a steady drift is the same for each


def test_runs_that_are_done_are_left_out() -> None:
    assert PLAN.runs({Run(0, 1), Run(1, 4)}) == [r for r in PLAN.runs() if r not in (Run(0, 1), Run(1, 4))]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("1,x", "is not a number of nodes; write numbers of nodes, like 1,2,4,8"),
        ("0,1", "0"),
        ("1,,2", "is not a number of nodes"),
        ("2", "there is nothing to compare"),
        ("1,2,2", "has a number twice"),
        ("1,5", "the stack has 4 nodes; ask for fewer"),
    ],
)
def test_wrong_numbers_of_nodes_are_refused(text: str, says: str) -> None:
    with pytest.raises(InputError, match=r"^--nodes") as caught:
        read_node_counts(text, 4)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "rate",
            "has no group for the figure; give one of samples_per_s, speed, or a pattern",
        ),
        ("(a)(b)", "has 2 groups"),
        ("loss", "is not a throughput: a higher one is not faster; give one of samples_per_s, speed"),
        ("(", "is not a regular expression"),
    ],
)
def test_a_metric_is_a_known_name_or_a_pattern_with_one_group(text: str, says: str) -> None:
    with pytest.raises(InputError, match=r"^--metric") as caught:
        read_metric(text, {"speed": "speed ([0-9]+)"})
    assert says in str(caught.value)


def test_whose_figure_it_is_has_two_answers() -> None:
    assert (read_basis("rank"), read_basis("job"), read_basis(None)) == ("rank", "job", None)
    with pytest.raises(InputError, match=r"--of = 'node'.* give rank or job"):
        read_basis("node")
