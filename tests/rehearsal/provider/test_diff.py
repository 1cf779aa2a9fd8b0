"""Differences, path by path."""

from __future__ import annotations

from typing import Any

import pytest

from rehearsal.arm.resource_types import RESOURCE_TYPES
from rehearsal.provider.diff import changes
from rehearsal.provider.values import UNKNOWN, Secret


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ({"a": 1}, {"a": 1.0}, []),
        ({"a": 1}, {"a": True}, [("a", "update")]),
        ({"a": Secret("x")}, {"a": "x"}, []),
        ({"a": "x"}, {"a": UNKNOWN}, [("a", "update")]),
        ({"a": None}, {}, []),
        ({"a": {"b": 1}}, {"a": {"b": 2}}, [("a.b", "update")]),
        ({"a": {"b": 1}}, {"a": {}}, [("a.b", "delete")]),
        ({"a": [1, {"b": 1}]}, {"a": [1, {"b": 2}, 3]}, [("a[1].b", "update"), ("a[2]", "add")]),
        ({"tags": {"x": "1"}}, {}, [("tags", "delete")]),
    ],
)
def test_changes(before: dict[str, Any], after: dict[str, Any], found: list[tuple[str, str]]) -> None:
    kind = RESOURCE_TYPES.by_token("azure-native:network:VirtualNetwork")
    assert kind is not None
    assert [(c.path, c.kind) for c in changes(kind, before, after)] == found


def test_a_placement_group_is_given_up_in_place_and_never_taken_back() -> None:
    kind = RESOURCE_TYPES.by_token("azure-native:compute:VirtualMachineScaleSet")
    assert kind is not None
    one, many = {"singlePlacementGroup": True}, {"singlePlacementGroup": False}
    assert [c.replace for c in changes(kind, one, many)] == [False]
    assert [c.replace for c in changes(kind, many, one)] == [True]
