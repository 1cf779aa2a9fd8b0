"""A job's facts from a folder that a collect has made."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from launch.errors import InputError
from launch.report.collected import collected_facts
from launch.report.facts import read_lines
from launch.report.summary import summary
from tests.launch.remote.sample_records import sample_plan, sample_state
from tests.launch.report.sample_job import EVENTS, START, facts, history

JOB = "train-20260301-120000-0f3a"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The records of an ended job."""
    lines = [{**event.fields, "event": event.event, "time": event.time.timestamp()} for event in EVENTS]
    times = {"created": START, "started": START + 4, "ended": START + 200}
    (tmp_path / "job.json").write_text(json.dumps(sample_plan(JOB)))
    (tmp_path / "state.json").write_text(json.dumps(sample_state(JOB, state="SUCCEEDED", **times)))
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "history.json").write_text(json.dumps(history()))
    return tmp_path


def test_they_are_those_that_the_head_had(folder: Path) -> None:
    found = collected_facts(folder)
    assert found.report.state.job == JOB
    assert summary(found) == summary(facts())


def test_a_job_that_ran_when_it_was_collected_is_as_at_its_last_event(folder: Path) -> None:
    state = sample_state(JOB, state="RUNNING", created=START, started=START + 4, restarts=1)
    (folder / "state.json").write_text(json.dumps(state))
    events = (folder / "events.jsonl").read_text().splitlines(keepends=True)
    (folder / "events.jsonl").write_text("".join(events[:-3]))
    *_, last = collected_facts(folder).spans
    assert (last.phase, last.is_open, last.seconds) == ("run", True, 0.0)


def test_without_samples_goodput_is_unknown(folder: Path) -> None:
    (folder / "history.json").unlink()
    assert "goodput   unknown: nothing was sampled\n" in summary(collected_facts(folder))


@pytest.mark.parametrize("name", ["job.json", "state.json"])
def test_another_folder_is_refused_by_what_it_lacks(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(
        InputError, match=f"has no {name}; give the folder of a job that `fab collect` has made"
    ):
        collected_facts(folder)


@pytest.mark.parametrize(("name", "text"), [("state.json", "{"), ("state.json", "[]"), ("job.json", "{")])
def test_damaged_records_are_refused(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text)
    with pytest.raises(InputError, match="damaged"):
        collected_facts(folder)


@pytest.mark.parametrize(
    "damaged",
    [
        {"nodes": []},
        {"nodes": {"node000000": {"cpu": ["0.5"]}}},
        {"nodes": {"node000000": {"cpu": 0.5}}},
        {"nodes": {"node000000": {"cpu": [10**400]}}},
        {"interval_s": 0},
        {"interval_s": "2"},
        {"start": float("nan")},
        {"attempts": [{}]},
        {"attempts": 1},
        {"lines": {}},
        {"lines": [{**history()["lines"][0], "line": 5}]},
        {"lines": [{**history()["lines"][0], "value": None}]},
        {"lines": [{**history()["lines"][0], "rank": 1.5}]},
    ],
    ids=str,
)
def test_a_damaged_course_is_refused_by_its_name_and_is_not_taken_for_none(
    folder: Path, damaged: dict[str, object]
) -> None:
    (folder / "history.json").write_text(json.dumps({**history(), **damaged}))
    with pytest.raises(InputError, match=r"has a damaged history\.json; remove that file"):
        collected_facts(folder)


def test_a_course_of_older_node_code_has_no_lines(folder: Path) -> None:
    older = history()
    del older["lines"]
    (folder / "history.json").write_text(json.dumps(older))
    assert read_lines(collected_facts(folder)) == ()


@pytest.mark.parametrize(
    ("name", "damaged"),
    [
        ("state.json", {"created": 1e300}),
        ("state.json", {"ended": 1e300}),
        ("state.json", {"started": "noon"}),
        ("job.json", {"nodes": 5}),
    ],
    ids=str,
)
def test_records_with_other_values_are_refused(folder: Path, name: str, damaged: dict[str, object]) -> None:
    record = json.loads((folder / name).read_text())
    (folder / name).write_text(json.dumps({**record, **damaged}))
    with pytest.raises(InputError, match="damaged"):
        collected_facts(folder)
