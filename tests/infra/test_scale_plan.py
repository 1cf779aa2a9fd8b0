"""Who goes when a cluster shrinks, who stays when Azure gave too few, and what counts as drift."""

from __future__ import annotations

import pytest

from infra.inventory import Node
from infra.scale_plan import Drift, Use, choose_leaving, in_the_way, reasons_to_leave, sort_out
from launch.errors import RetryError


def node(number: int, state: str = "running") -> Node:
    return Node(f"node{number:06x}", number, f"10.0.0.{4 + number}", "192.0.2.1", 50000 + number, 8, state)


def chosen(uses: dict[int, Use], count: int, size: int = 4) -> list[int]:
    nodes = [node(number) for number in range(size)]
    doing = {one.name: uses.get(one.instance_id, Use()) for one in nodes}
    return [one.instance_id for one in choose_leaving(nodes, doing, count)]


@pytest.mark.parametrize(
    ("uses", "count", "expected"),
    [
        ({}, 0, []),
        ({}, 2, [2, 3]),  # the newest
        ({}, 4, [0, 1, 2, 3]),
        ({3: Use(("job",))}, 2, [1, 2]),
        ({3: Use(records=2)}, 2, [1, 2]),
        ({3: Use(records=2), 0: Use(("job",))}, 3, [1, 2, 3]),  # records go when nothing else is left
        ({3: Use(uncollected=("a",)), 2: Use(uncollected=("a",))}, 1, [1]),
        ({3: Use(left=(("a", "1 file"),))}, 1, [2]),
        ({3: Use(uncollected=("a",)), 0: Use(records=1), 1: Use(records=1), 2: Use(records=1)}, 1, [2]),
        ({0: Use(drain="drained", uncollected=("a",))}, 1, [3]),
        ({n: Use(drain="d" * (n == 1), left=(("a", "1 file"),)) for n in range(4)}, 1, [1]),
        ({0: Use(drain="drained"), 1: Use(drain="drained", records=1)}, 2, [0, 1]),  # nobody misses these
        ({0: Use(drain="drained"), 1: Use(("job",), drain="drained")}, 2, [0, 3]),
        ({3: Use(unknown="no answer")}, 1, [2]),
        ({0: Use(dead=True)}, 1, [0]),  # whoever does not run is missed by nobody
        ({0: Use(("job",), dead=True)}, 2, [0, 3]),
        ({0: Use(records=1, dead=True)}, 1, [0]),
        ({0: Use(uncollected=("a",), dead=True)}, 1, [0]),  # nobody can collect these as they are
        ({0: Use(records=1), 1: Use(records=1)}, 3, [1, 2, 3]),
    ],
)
def test_idle_nodes_go_the_newest_first(uses: dict[int, Use], count: int, expected: list[int]) -> None:
    assert chosen(uses, count) == expected


def test_each_node_that_goes_has_a_reason() -> None:
    doing = {
        "node000000": Use(dead=True),
        "node000001": Use(drain="drained"),
        "node000002": Use(uncollected=("train-1",)),
        "node000003": Use(),
    }
    assert list(reasons_to_leave([node(number) for number in range(4)], doing).values()) == [
        "to be removed: it does not run",
        "to be removed: idle, drained, no uncollected files as far as the heads know",
        "to be removed: idle, has uncollected files, and no idle node without is left",
        "to be removed: idle, no uncollected files as far as the heads know",
    ]


def test_rather_nothing_is_changed_than_a_node_with_a_job_taken() -> None:
    busy = Use(("train-1", "train-2"))
    with pytest.raises(RetryError) as caught:
        chosen({0: busy, 1: busy, 2: Use(unknown="no route to host")}, 2)
    assert str(caught.value) == (
        "2 of 4 nodes must be removed, idle: 1; nothing was changed\n"
        "node[000000-000001]: it has train-1, train-2\n"
        "node000002: its use is unknown (no route to host)\n"
        "wait for them (`fab wait train-1 train-2`) or end them (`fab cancel train-1`), then repeat the "
        "command\n"
        "`fab replace NODE` replaces a node that does not answer"
    )


def test_what_is_in_the_way_names_every_job_once() -> None:
    result = in_the_way({"node000000": Use(("a", "b")), "node000001": Use(("b",))})
    assert "`fab wait a b`" in result


def test_of_a_try_that_brought_too_few_the_user_says_who_stays() -> None:
    nodes = [
        node(0, "succeeded"),
        node(1, "failed"),
        node(2, "succeeded"),
        node(3, "creating"),
        node(4, "failed"),
    ]
    before = frozenset({0, 1})
    kept = sort_out(nodes, before, 8, keep=True)
    assert [one.instance_id for one in kept.stay] == [0, 1, 2], "the failed one from before is not this try's"
    assert [one.instance_id for one in kept.go] == [3, 4]
    assert kept.in_words() == "1 of 6 further nodes are ready"
    removed = sort_out(nodes, before, 8, keep=False)
    assert [one.instance_id for one in removed.stay] == [0, 1]
    assert [one.instance_id for one in removed.go] == [2, 3, 4]
    assert sort_out(nodes, frozenset(), 5, keep=True).in_words() == "2 of 5 nodes are ready"


@pytest.mark.parametrize(
    ("drift", "lines", "surplus"),
    [
        (Drift(4, 4, 4), [], 0),
        (Drift(6, 4, 4), [], 0),  # a number that the user has changed is no drift
        (Drift(2, 4, 4), [], 2),
        (Drift(4, 4, 0), ["Pulumi created 4 nodes, Azure has 0"], 0),
        (Drift(4, 4, 6), ["Pulumi created 4 nodes, Azure has 6"], 2),
        (Drift(4, 4, None, ("X nodes",)), ["X nodes: Azure no longer has it"], 0),
        (Drift(4, None, None), [], 0),
    ],
)
def test_drift_is_where_azure_differs_from_what_was_made(
    drift: Drift, lines: list[str], surplus: int
) -> None:
    assert list(drift.lines()) == lines
    assert bool(drift) == bool(lines)
    assert drift.surplus == surplus
