"""A report is taken as it has to be, or not at all."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from launch.remote.debug.fact_shapes import NotFacts, read_facts
from tests.launch.remote.hangs.hanging_ranks import Job


def report() -> dict[str, Any]:
    job = Job(4)
    job.numbers(2, 5)
    job.repeats(1, "10.0.0.9")
    job.port("node000000", "ACTIVE")
    found: dict[str, Any] = json.loads(json.dumps(job.facts["nodes"]["node000000"][0]))
    found["gpus"] = [{"index": 0, "clock_events": 1, "memory_use": 0, "error": ""}]
    found["ras"] = [{"group": "a", "rank": 0, "host": "h", "pid": 1, "operations": 3, "state": "running"}]
    return found


def test_a_report_is_taken() -> None:
    assert read_facts(json.dumps(report())) == report()


def paths(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(path for key, item in inner for path in paths(item, (*at, key)))]


def with_value(path: tuple[Any, ...], value: object) -> Any:
    found: Any = {"top": report()}
    inside = found
    for key in ("top", *path)[:-1]:
        inside = inside[key]
    inside[("top", *path)[-1]] = value
    return found["top"]


@pytest.mark.parametrize("path", paths(report()), ids=str)
def test_each_part_has_to_be_of_its_kind(path: tuple[Any, ...]) -> None:
    for value in (None, 1.5, True, {"a": 1}, "x" * 5000, 1 << 80):
        with pytest.raises(NotFacts):
            read_facts(json.dumps(with_value(path, value)))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 100_000, '{"ranks": []}'])
def test_what_is_no_report_is_refused(text: str) -> None:
    with pytest.raises(NotFacts):
        read_facts(text)


@given(st.text(max_size=200))
@settings(max_examples=100, deadline=None)
def test_no_text_is_another_error(text: str) -> None:
    with pytest.raises(NotFacts):
        read_facts(text)
