"""The reader at the borders: a value of the declared type, or an error that names the field."""

from __future__ import annotations

import ast
import json
import time
import tracemalloc
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, TypedDict, Union
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launch.remote.base.payloads import CancelAnswer, FileEnd, FileStart, JobListing, JobReport, Listed
from launch.remote.base.records import State, UploadEvent
from launch.remote.data.stage_request import DataListing, DataRemoval, StageAnswer
from launch.remote.debug.debug_records import DebugAnswer
from launch.remote.environment.request import EnvironmentAnswer, EnvironmentListing, EnvironmentRemoval
from launch.remote.metrics.metrics_records import HeadMetrics
from launch.remote.reading import (
    ContentId,
    Count,
    ExitStatus,
    JobId,
    Malformed,
    NodeName,
    UnixTime,
    parse,
    read,
)
from launch.remote.sample.sample_records import SampleReport
from launch.remote.sample.watch_samples import WatchAnswer
from launch.remote.store.push_messages import CheckAnswer, OfferAnswer, PushResult
from tests.launch.remote.sample_records import sample_state

ANSWERS: list[Any] = [
    *(CancelAnswer, CheckAnswer, DataListing, DataRemoval, DebugAnswer, EnvironmentAnswer),
    *(EnvironmentListing, EnvironmentRemoval, FileEnd, FileStart, HeadMetrics, JobListing, JobReport),
    *(OfferAnswer, PushResult, SampleReport, StageAnswer, State, UploadEvent, WatchAnswer, list[Listed]),
]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)


class Tagged(TypedDict):
    t: Literal["a"]
    x: int


class Other(TypedDict):
    t: Literal["b"]
    y: str


class Inner(TypedDict, total=False):
    name: NodeName
    at: UnixTime | None


class Outer(TypedDict):
    inner: list[Inner]
    counts: dict[str, int]
    either: Union[Tagged, Other]  # noqa: UP007  (as the records have it)


GOOD = {
    "inner": [{"name": "node000000", "at": 1.5}, {"at": None}],
    "counts": {"a": 1},
    "either": {"t": "b", "y": "z"},
}


def test_a_value_of_the_type_is_returned() -> None:
    assert read(Outer, GOOD) == GOOD


def test_fields_that_the_type_lacks_are_left_out() -> None:
    more = {**GOOD, "more": 1, "inner": [{"name": "node000000", "path": "/etc/passwd"}]}
    assert read(Outer, more) == {**GOOD, "inner": [{"name": "node000000"}]}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"inner": [{"at": 1}, {"name": "../x"}]}, 'inner[1].name: is "../x", not a node\'s name'),
        ({"inner": [{"at": 1e300}]}, "inner[0].at: is 1e+300, not a Unix time"),
        ({"inner": {}}, "inner: is an object, not a list"),
        ({"counts": {"a": True}}, 'counts["a"]: is true, not an integer of 64 bits'),
        ({"counts": {"a": 1 << 63}}, 'counts["a"]: is 9223372036854775808, not an integer of 64 bits'),
        ({"either": {"t": "a", "x": "1"}}, 'either.x: is "1", not an integer of 64 bits'),
        ({"either": {"t": "c"}}, 'either.t: is "c", not one of b'),
        ({"either": {"t": "b"}}, "either: has no y"),
        ({"either": {"t": ["b"]}}, "either.t: is a list, not one of b"),
    ],
)
def test_an_error_names_the_field_its_value_and_what_it_should_be(changes: Any, problem: str) -> None:
    with pytest.raises(Malformed) as error:
        read(Outer, {**GOOD, **changes})
    assert str(error.value) == problem


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (ContentId, ["0", "1e5f0409602567e6", "a" * 64], ["", "/etc/x", "..", "A", "a" * 65, "a\n", 1, None]),
        (
            JobId,
            ["t-1", "my-digits-20260301-0f3a"],
            ["", ".x", "a/b", "a\0", "-x", "é", "a" * 201, []],
        ),
        (NodeName, ["node000000", "login.x"], ["..", "a/b", "a b", "", "\x1b[2J", {}, False]),
        (
            UnixTime,
            [0, 1.5, 253402128000],
            [253402300799, -1, 1e300, float("nan"), float("inf"), 10**400, True, "1"],
        ),
        (Count, [0, (1 << 63) - 1], [-1, 1 << 63, 10**30, 1.0, True, None]),
        (ExitStatus, [0, 255], [-1, 256, 1.0, False]),
        (str, ["", "\udcff", "a" * (1 << 20)], ["a" * ((1 << 20) + 1), "\ud800", "\udfff", 1, None]),
        (float, [1, -1.5, 1e300], [1e301, float("inf"), float("nan"), "1", True]),
        (bool, [True, False], [0, 1, "true", None]),
    ],
)
def test_bounds_are_part_of_the_type(kind: Any, good: list[object], bad: list[object]) -> None:
    assert [read(kind, one) for one in good] == good
    for one in bad:
        with pytest.raises(Malformed):
            read(kind, one)


def test_of_a_list_of_records_one_that_is_malformed_can_be_left_out() -> None:
    states = [dict(sample_state(f"t-{number}")) for number in range(3)]
    states[1]["created"] = 1e300
    dropped: list[tuple[object, str]] = []
    listing = {"jobs": states, "left_out": 0}
    found = read(JobListing, listing, lambda record, error: dropped.append((record, str(error))))
    assert [state["job"] for state in found["jobs"]] == ["t-0", "t-2"]
    assert dropped == [(states[1], "[1].created: is 1e+300, not a Unix time")]
    with pytest.raises(Malformed, match=r"^jobs\[1\]\.created"):
        read(JobListing, listing)


@pytest.mark.parametrize(
    "text",
    ["{]", "", "[1", "nan", "[" * 100_000, '{"a":' * 100_000, "\xff", "1" * 5000],
)
def test_what_is_not_json_is_malformed(text: str) -> None:
    with pytest.raises(Malformed):
        parse(text.encode("latin-1"))


@pytest.mark.parametrize("value", ["[]", '{"":1}', "[[[]]]"])
def test_a_text_of_more_than_four_million_values_is_refused_before_it_takes_memory(value: str) -> None:
    text = "[" + f"{value}," * (4 << 20) + "1]"
    tracemalloc.start()
    try:
        for data in (text, text.encode()):
            with pytest.raises(Malformed, match="holds more than 4194304 values"):
                parse(data)
        assert tracemalloc.get_traced_memory()[1] < 2 * len(text)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", ANSWERS, ids=lambda kind: getattr(kind, "__name__", str(kind))[:40])
@given(value=VALUES)
def test_any_value_is_of_the_type_or_malformed(kind: Any, value: object) -> None:
    try:
        found = read(kind, value)
    except Malformed as error:
        assert str(error)
    else:
        assert read(kind, json.loads(json.dumps(found))) == found


@given(data=st.binary(max_size=200) | VALUES.map(lambda value: json.dumps(value).encode()[:150]))
def test_any_bytes_are_a_value_or_malformed(data: bytes) -> None:
    try:
        json.dumps(parse(data))
    except Malformed as error:
        assert str(error)


@given(field=st.sampled_from(sorted(sample_state())), value=VALUES)
def test_a_state_with_any_value_in_a_field_is_a_state_or_malformed(field: str, value: object) -> None:
    try:
        found = read(State, {**sample_state(), field: value})
    except Malformed as error:
        assert str(error).startswith(field)
    else:
        assert found[field] == value  # type: ignore[literal-required]


def test_reading_takes_time_and_memory_in_proportion_to_the_size() -> None:
    def cost(count: int) -> tuple[float, int]:
        value = {"jobs": [dict(sample_state(f"t-{number}")) for number in range(count)], "left_out": 0}
        tracemalloc.start()
        began = time.process_time()
        read(JobListing, value)
        spent = time.process_time() - began
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return spent, peak

    cost(10)
    (some_s, some_bytes), (many_s, many_bytes) = cost(200), cost(2000)
    assert many_bytes < 20 * some_bytes
    assert many_s < 60 * some_s + 0.05


def test_a_type_that_cannot_be_read_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(TypeError, match="is not a type that JSON is read as"):
        read(set, [])


def calls_of_loads(path: Path) -> list[int]:
    tree = ast.parse(path.read_text())
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("json.loads", "json.load")
    ]


def test_answers_of_nodes_are_parsed_by_the_reader_alone() -> None:
    root = Path(__file__).resolve().parents[3] / "launch"
    looked_at = [*(root / "client").glob("*.py"), *(root / "results").glob("*.py"), root / "code/push.py"]
    assert len(looked_at) > 20
    assert {path.name: calls_of_loads(path) for path in looked_at if calls_of_loads(path)} == {}


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Pacific/Pago_Pago", "UTC"])
def test_each_time_that_is_read_can_be_shown_in_each_zone(zone: str) -> None:
    for seconds in (0, 253402128000):
        moment = datetime.fromtimestamp(read(UnixTime, seconds), ZoneInfo(zone))
        assert moment.year in (1969, 1970, 9999)
