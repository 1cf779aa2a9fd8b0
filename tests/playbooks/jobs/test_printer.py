"""How a job's lines, states and end are printed."""

from __future__ import annotations

import json
import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from launch.client.events import JobState, LogLine, Quiet, StateChange
from launch.code.failure_hints import PushedCode
from launch.errors import JobFailed
from playbooks.jobs.printer import EventPrinter, end_as
from playbooks.start import OutputFailed
from tests.launch.remote.sample_records import sample_state


def ended(state: str, reason: str) -> JobState:
    return JobState.from_dict(sample_state("a-1", state=state, reason=reason, exit_status=130))


@pytest.mark.parametrize(
    ("state", "reason", "ran"),
    [
        ("CANCELLED", "", "job a-1 CANCELLED: cancel requested"),
        ("LOST", "", "job a-1 LOST: reason unknown"),
        ("FAILED", "rank 0 on node000000 ended with exit status 3", None),
    ],
)
def test_an_end_without_a_reason_leaves_no_colon_behind(state: str, reason: str, ran: str | None) -> None:
    with pytest.raises(JobFailed) as caught:
        end_as(ended(state, reason))
    assert str(caught.value) == (ran or f"job a-1 {state}: {reason}")
    assert caught.value.exit_status == 130


def failed(*last: str, reason: str = "rank 0 on node000000 ended with exit status 1") -> JobState:
    failure = {"rank": 0, "node": "node000000", "status": 1, "last_lines": list(last)}
    return JobState.from_dict(
        sample_state("a-1", state="FAILED", reason=reason, exit_status=1, failure=failure)
    )


NO_TORCH = "ModuleNotFoundError: No module named 'torch'"
CODE = PushedCode(Path("/none"), ["requirements.txt"], {"requirements.txt": "torch"}.get)
HINT = "no module torch: requirements.txt lists it; launch with --requirements requirements.txt\n"


@pytest.mark.parametrize(
    ("state", "error_line"),
    [
        (failed("Traceback", NO_TORCH), ""),
        (failed(reason="no rank was started: node000000: python3 has no module torch: name"), ""),
        (failed("ChildFailedError", "====="), f"[rank0]: {NO_TORCH}"),
    ],
)
def test_a_job_that_lacked_a_module_ends_with_what_helps(
    capsys: pytest.CaptureFixture[str], state: JobState, error_line: str
) -> None:
    with pytest.raises(JobFailed):
        end_as(state, error_line, CODE)
    assert capsys.readouterr().err.endswith(HINT)


def test_a_job_whose_code_is_not_known_here_ends_with_the_options(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(JobFailed):
        end_as(failed(NO_TORCH))
    assert "launch with --requirements FILE or --conda FILE\n" in capsys.readouterr().err


def test_the_module_that_a_job_printed_as_missing_is_no_hint_for_another_failure(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(JobFailed):
        end_as(ended("CANCELLED", "cancel requested"), NO_TORCH, CODE)
    end_as(ended("SUCCEEDED", ""), NO_TORCH, CODE)
    assert capsys.readouterr().err == ""


def test_the_printer_keeps_the_last_line_that_names_what_a_rank_lacked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown = EventPrinter()
    for text in ("[rank1]: ModuleNotFoundError: x", NO_TORCH, "a ModuleNotFoundError: was caught", "===="):
        shown(line(0, text))
    assert shown.error_line == NO_TORCH
    assert len(capsys.readouterr().out.splitlines()) == 4


def line(rank: int | None, text: str, at: float = 0.0, **changes: Any) -> LogLine:
    when = datetime(2026, 3, 1, tzinfo=UTC) + timedelta(seconds=at)
    return LogLine(
        when, rank, f"node{rank or 0:06}", changes.pop("stream", "stdout"), text.encode(), **changes
    )


def test_lines_go_to_stdout_and_states_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    shown = EventPrinter()
    for event in (StateChange(ended("RUNNING", "")), line(0, "hello"), line(None, "mpirun says"), Quiet()):
        shown(event)
    shown(StateChange(ended("FAILED", "the error will say it")))
    ran = capsys.readouterr()
    assert ran.out == "[0 node000000] hello\n[launcher node000000] mpirun says\n"
    assert ran.err == "job a-1 RUNNING\n"


def test_lines_alone(capsys: pytest.CaptureFixture[str]) -> None:
    shown = EventPrinter(lines_only=True, to_stderr=True)
    shown(StateChange(ended("RUNNING", "")))
    shown(line(0, "hello"))
    assert capsys.readouterr() == ("", "[0 node000000] hello\n")


def test_lines_as_records_with_every_state_of_a_bar(capsys: pytest.CaptureFixture[str]) -> None:
    shown = EventPrinter(json=True, pattern=re.compile("%"))
    for event in (line(3, "1%\x1b[2J", overwritten=True), line(3, "2%", overwritten=True), line(3, "end")):
        shown(event)
    records = [json.loads(text) for text in capsys.readouterr().out.splitlines()]
    assert records[0] == {
        **{"time": "2026-03-01T00:00:00+00:00", "rank": 3, "node": "node000003", "stream": "stdout"},
        **{"data": "1%\x1b[2J", "overwritten": True},
    }
    assert [record["data"] for record in records[1:]] == ["2%"]


def test_only_lines_that_match_and_what_was_not_searched(capsys: pytest.CaptureFixture[str]) -> None:
    shown = EventPrinter(pattern=re.compile("loss [0-9]"))
    for text in ("epoch 1", "loss 1", "loss x"):
        shown(line(0, text))
    shown(line(0, "left out 1.0 MB, 9 lines", stream="notice"))
    assert capsys.readouterr().out == "[0 node000000] loss 1\n[0 node000000] (left out 1.0 MB, 9 lines)\n"


def test_equal_lines_come_once_and_none_is_forgotten_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    shown = EventPrinter(merge=True)
    for rank in range(3):
        shown(line(rank, "epoch 1"))
    assert capsys.readouterr().out == ""
    shown(Quiet())
    assert capsys.readouterr().out == "[0-2 node[000000-000002]] epoch 1\n"
    shown(line(1, "last"))
    shown.finish()
    assert capsys.readouterr().out == "[1 node000001] last\n"


def test_merged_lines_come_before_the_state_that_follows_them(capfd: pytest.CaptureFixture[str]) -> None:
    shown = EventPrinter(merge=True, to_stderr=True)
    shown(line(0, "bye"))
    shown(StateChange(ended("SUCCEEDED", "")))
    assert capfd.readouterr().err == "[0 node000000] bye\njob a-1 SUCCEEDED\n"


def test_a_job_without_output_is_not_followed_for_a_reader_that_has_gone() -> None:
    reading, writing = os.pipe()
    stdout = os.dup(1)
    os.close(reading)
    os.dup2(writing, 1)
    os.close(writing)
    try:
        with pytest.raises(OutputFailed, match="Broken pipe"):
            EventPrinter()(Quiet())
    finally:
        os.dup2(stdout, 1)
        os.close(stdout)


def test_of_a_progress_bar_its_first_state_and_its_last(capsys: pytest.CaptureFixture[str]) -> None:
    shown = EventPrinter()
    for percent in range(5):
        shown(line(0, f"{percent}%", percent, overwritten=True))
    shown(line(0, "100%", 5))
    assert capsys.readouterr().out == "[0 node000000] 0%\n[0 node000000] 100%\n"
