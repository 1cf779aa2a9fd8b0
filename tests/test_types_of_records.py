"""What travels between operator, head and nodes has the types of ``records`` and ``payloads`` alone."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin, get_type_hints, is_typeddict

import pytest

from launch.remote.base import frames, health_records, job_dir, payloads, phase_records, records
from launch.remote.debug import debug_records
from launch.remote.head.runners import frame_fields
from launch.remote.sample import sample_records
from launch.remote.store import push_messages
from tests.test_architecture import PROJECT, Module, import_graph, is_module, modules, names

_OF_ANYTHING = re.compile(r"\b([Dd]ict|(Mutable)?Mapping)\[str, Any\]")
_OPERATOR = ("launch.client", "launch.code", "launch.job", "launch.results")
_ENTRIES = ("launch.remote.cli", "launch.remote.node.runner")


def reachable(entries: tuple[str, ...], graph: dict[str, set[str]]) -> set[str]:
    """The modules that these import, directly or by way of others, and these themselves."""
    found: set[str] = set()
    left = list(entries)
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += graph[name]
    return found


def where_it_travels() -> list[Module]:
    """The operator's side of jobs, and what the commands and the runners on nodes consist of."""
    on_nodes = reachable(_ENTRIES, import_graph(modules("launch/remote")))
    return [
        module for module in PROJECT if module.name in on_nodes or module.name.rpartition(".")[0] in _OPERATOR
    ]


def of_anything(source: str) -> list[str]:
    """The annotations and aliases that let a record hold anything."""
    found = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Subscript))
    return [text for text in map(ast.unparse, found) if _OF_ANYTHING.match(text)]


@pytest.mark.parametrize("module", where_it_travels(), ids=names)
def test_no_record_is_a_dict_of_anything(module: Module) -> None:
    assert of_anything(module.path.read_text()) == []


def test_a_dict_of_anything_is_found() -> None:
    source = "from typing import Any\ndef f(plan: dict[str, Any] | None) -> Mapping[str, Any]: ...\n"
    assert sorted(of_anything(source)) == ["Mapping[str, Any]", "dict[str, Any]"]
    assert of_anything("def f(env: dict[str, str]) -> dict[str, object]: ...") == []


def test_both_ends_are_looked_at() -> None:
    looked_at = {module.name.rpartition(".")[0] for module in where_it_travels()}
    assert {"launch.client", "launch.results", "launch.remote.base", "launch.remote.store"} <= looked_at
    assert {"launch.remote.head", "launch.remote.head.runners", "launch.remote.node"} <= looked_at


@pytest.fixture(scope="module")
def defined() -> dict[str, Any]:
    """The names of the modules of types."""
    return {
        **{**vars(records), **vars(health_records), **vars(phase_records), **vars(payloads)},
        **{**vars(sample_records), **vars(debug_records), **vars(push_messages)},
    }


_TYPES = (
    *(f"launch.remote.base.{name}" for name in ("records", "health_records", "payloads", "phase_records")),
    "launch.remote.sample.sample_records",
    "launch.remote.debug.debug_records",
    "launch.remote.store.push_messages",
)


def type_of_frame(name: str, defined: dict[str, Any]) -> Any:
    """The type whose docstring says that it is the payload of this frame from a runner."""
    found = [
        value
        for value in defined.values()
        if isinstance(value, type) and re.match(rf"Frame {name}\b", value.__doc__ or "")
    ]
    assert len(found) == 1, f"{len(found)} types for frame {name}"
    return found[0]


def samples(kind: Any) -> tuple[object, list[object]]:
    """A value of the type, and some that are not."""
    if kind in (int, str):
        return (1, ["1", [1], None]) if kind is int else ("a", [1, ["a"], None])
    if is_typeddict(kind):
        fields = {name: samples(one) for name, one in get_type_hints(kind).items()}
        whole = {name: good for name, (good, _) in fields.items()}
        return whole, [{}, *({**whole, name: bad[0]} for name, (_, bad) in fields.items())]
    if get_origin(kind) is dict:
        good_value, bad_values = samples(get_args(kind)[1])
        return {"a": good_value}, [["a"], *({"a": one} for one in bad_values)]
    first = get_args(kind)[0]
    if get_origin(kind) is Literal:
        return first, ["another", 1]
    if get_origin(kind) is tuple:
        good = [samples(part)[0] for part in get_args(kind)]
        return good, [good[:1], [*reversed(good)], 1]
    good_one, bad = samples(first)
    return [good_one], [good_one, *([one] for one in bad)]


_SHAPES = {
    name: frame_fields._SHAPES[kind]
    for name, kind in vars(frames).items()
    if isinstance(kind, bytes) and name.isupper() and kind in frame_fields._SHAPES
}


def plain_texts(kind: Any, name: str) -> Iterator[str]:
    """The fields of a record for the operator that hold a node's name, an id or a digest in a text of any
    kind."""
    if is_typeddict(kind):
        for field, hint in get_type_hints(kind).items():
            yield from plain_texts(hint, field)
    elif kind is str and name in ("job", "node", "nodes", "id", "sha256", "snapshot", "errors"):
        yield name
    else:
        inner = get_args(kind)[:1] if get_origin(kind) is dict else get_args(kind)
        for one in () if get_origin(kind) is Literal else inner:
            yield from plain_texts(one, name)


_FOR_THE_OPERATOR = (
    *("Handover", "JobListing", "JobReport", "CancelAnswer", "ReleaseAnswer", "FileEnd", "Live", "Flag"),
    *("UploadEvent", "DebugFacts", "Verdict"),
)


@pytest.mark.parametrize("record", _FOR_THE_OPERATOR)
def test_what_names_a_node_or_becomes_a_path_has_bounds(record: str, defined: dict[str, Any]) -> None:
    assert list(plain_texts(defined[record], "")) == []


def test_a_name_without_bounds_is_found(defined: dict[str, Any]) -> None:
    assert list(plain_texts(defined["SlotRequest"], "")) == ["job"]


def test_every_checked_frame_has_a_name() -> None:
    assert len(_SHAPES) == len(frame_fields._SHAPES)


@pytest.mark.parametrize("name", _SHAPES)
def test_what_a_runners_frame_is_checked_for_is_its_type(name: str, defined: dict[str, Any]) -> None:
    hints = get_type_hints(type_of_frame(name, defined), globalns=defined)
    assert _SHAPES[name].keys() == hints.keys()
    for field, fits in _SHAPES[name].items():
        good, bad = samples(hints[field])
        assert fits(good), f"{field}: {good}"
        assert [one for one in bad if fits(one)] == [], field


def test_the_version_of_the_plan_is_that_of_its_type(defined: dict[str, Any]) -> None:
    assert get_args(defined["Version"]) == (job_dir.PLAN_VERSION,)


def test_no_runner_imports_the_types_before_its_ranks_have_ended() -> None:
    runs = {module.name: imports_that_run(module) for module in modules("launch/remote")}
    assert reachable(("launch.remote.head.queue",), runs).issuperset(_TYPES[:1]), "nothing was found"
    runs["launch.remote.node.runner"].remove("launch.remote.base.job_dir")  # on the head, after the ranks
    assert reachable(("launch.remote.node.runner",), runs).isdisjoint(_TYPES)


def imports_that_run(module: Module) -> set[str]:
    """The modules of the node code that this one imports, at its start or later."""
    found = set()
    for node in outside_type_checking(module.tree()):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("launch.remote"):
            found |= {
                f"{node.module}.{alias.name}"
                if is_module(f"{node.module}.{alias.name}")
                else str(node.module)
                for alias in node.names
            }
    return found


def outside_type_checking(node: ast.AST) -> Iterator[ast.AST]:
    """Every statement that runs."""
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"):
            yield child
            yield from outside_type_checking(child)
