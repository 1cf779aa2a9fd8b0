"""What may be asked of a job's output."""

from __future__ import annotations

import json

import pytest

from launch.client.log_filter import ALL, Selection
from launch.errors import InputError

NODES = ("node000000", "node00000a")


def test_everything_wishes_for_nothing() -> None:
    assert json.loads(ALL.as_query(wait=True)) == {"wait": True, "since": None, "tail": None}
    ALL.check("t-1", NODES, 4)


def test_what_is_wished_for() -> None:
    chosen = Selection(frozenset({3, 1}), frozenset({"node000000"}), frozenset({10}), 600.0, 20)
    assert json.loads(chosen.as_query(wait=False)) == {
        "wait": False, "ranks": [1, 3], "nodes": ["node000000"], "ids": [10], "since": 600.0, "tail": 20,
    }  # fmt: skip
    chosen.check("t-1", NODES, 4)


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        (
            Selection(ranks=frozenset({3, 4, 9})),
            "--rank = '4,9': job t-1 has 4 ranks; give numbers from 0 to 3",
        ),
        (Selection(names=frozenset({"node000001"})), "--node = 'node000001': job t-1 does not run there"),
        (Selection(ids=frozenset({0, 3})), "--node = '3': job t-1 does not run there"),
    ],
)
def test_ranks_and_nodes_that_the_job_does_not_have(selection: Selection, message: str) -> None:
    with pytest.raises(InputError) as caught:
        selection.check("t-1", NODES, 4)
    assert str(caught.value).startswith(message)
