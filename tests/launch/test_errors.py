"""Errors carry what failed, and say it once."""

from __future__ import annotations

import ast
import inspect
import re

import launch.errors
from launch.errors import ManyNodesError, NodeUnreachable, RankliftError, StepTimeout


def test_the_drawn_tree_is_the_real_one() -> None:
    drawn = re.findall(r"── (\w+)|^ +(RankliftError)$", launch.errors.__doc__ or "", re.M)
    names = {a or b for a, b in drawn}
    real = {n for n, c in inspect.getmembers(launch.errors, inspect.isclass) if issubclass(c, RankliftError)}
    assert names == real == set(launch.errors.__all__)


def test_a_many_node_failure_folds_nodes_that_failed_alike() -> None:
    results = {
        "node000000": "fine",
        "node000001": NodeUnreachable("node000001", "connection refused"),
        "node000002": NodeUnreachable("node000002", "connection refused"),
        "node000003": StepTimeout("node000003", "uname", 5),
    }
    error = ManyNodesError("uname", results)
    assert error.results == results
    assert str(error).splitlines() == [
        "uname failed on 3 of 4 nodes",
        "node[000001-000002]: connection refused",
        "node000003: uname did not end within 5 s",
    ]


def test_the_module_stands_at_the_bottom() -> None:
    tree = ast.parse(inspect.getsource(launch.errors))
    imported = {n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    assert {m for m in imported if m and m.startswith(("infra", "playbooks", "images"))} == set()
