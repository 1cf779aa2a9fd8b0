"""Queries about the head's jobs, answered from their folders alone."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from launch.remote import cli
from launch.remote.base import frames, job_dir, processes
from launch.remote.head import query
from tests.launch.remote.sample_records import sample_plan, sample_state

NOBODY = {"pid": 1 << 22, "started": 1, "boot": "none"}


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))


def made(job: str, state: str, created: float, **fields: Any) -> job_dir.Folder:
    folder = job_dir.Folder(job)
    nodes = [{"name": "node000000", "ranks": [{"rank": 0}, {"rank": 1}]}]
    folder.create(sample_plan(job, nodes=nodes, user_env={"KEY": "secret"}))
    given = {"state": state, "created": created, "supervisor": NOBODY, **fields}
    folder.write_state(sample_state(job, **given))
    return folder


class TestListing:
    def test_what_has_not_ended_is_always_there_and_of_the_rest_the_newest(self) -> None:
        alive = processes.identity(os.getpid())
        made("b", "RUNNING", 1.0, supervisor=alive)
        for number in range(5):
            made(f"a{4 - number}", "SUCCEEDED", 10.0 + number)
        made("c", "QUEUED", 2.0, supervisor=alive)
        found = query.list_jobs(2)
        assert [state["job"] for state in found["jobs"]] == ["b", "c", "a1", "a0"]
        assert found["left_out"] == 3
        assert len(query.list_jobs(None)["jobs"]) == 7
        assert [state["job"] for state in query.list_jobs(0)["jobs"]] == ["b", "c"]

    def test_one_whose_supervisor_is_gone_counts_as_ended(self) -> None:
        made("a", "RUNNING", 1.0)
        found = query.list_jobs(1)
        assert [state["state"] for state in found["jobs"]] == ["LOST"]

    def test_a_cancelled_job_uploads_as_long_as_its_supervisor_runs(self) -> None:
        urls = ["https://h/results/a", "https://h/model"]
        alive = processes.identity(os.getpid())
        made("a", "CANCELLED", 1.0, supervisor=alive, uploading=urls, reason="cancelled by me")
        made("b", "CANCELLED", 2.0, supervisor=NOBODY, uploading=urls, reason="")
        made("c", "CANCELLED", 3.0, supervisor=alive, reason="")
        found = {
            state["job"]: (state["reason"], state.get("uploading")) for state in query.list_jobs(None)["jobs"]
        }
        words = "cancelled by me; uploading to https://h/results/a, https://h/model"
        assert found == {"a": (words, urls), "b": ("", None), "c": ("", None)}
        assert query.job_report("a")["state"]["reason"] == words

    def test_a_job_with_a_cancel_request_is_cancelling_until_it_has_ended(self) -> None:
        alive = processes.identity(os.getpid())
        for name, state in (("a", "RUNNING"), ("b", "RUNNING"), ("c", "CANCELLED")):
            made(name, state, 1.0, supervisor=alive)
        for name in ("b", "c"):
            Path(job_dir.Folder(name).file("cancel")).touch()
        found = {state["job"]: state["cancelling"] for state in query.list_jobs(None)["jobs"]}
        assert found == {"a": False, "b": True, "c": False}
        assert [query.job_report(name)["state"]["cancelling"] for name in "abc"] == [False, True, False]

    def test_tags_can_be_added_after_the_launch(self) -> None:
        made("a", "SUCCEEDED", 1.0, tags={"lr": "0.1", "seed": "7"})
        assert query.add_tags("a", {"lr": "0.2", "stage": "x\ny"})
        assert query.add_tags("a", {"stage": ""})
        tags = {"lr": "0.2", "seed": "7", "stage": ""}
        assert query.list_jobs(None)["jobs"][0]["tags"] == query.job_report("a")["state"]["tags"] == tags
        with pytest.raises(FileNotFoundError):
            query.add_tags("nope", {"a": "b"})

    @pytest.mark.parametrize("spoilt", [b'{"a": 3}\n["b"]\n{"cut', b"\xff" * 9, b"[" * 9999])
    def test_lines_that_are_no_tags_are_passed_over(self, spoilt: bytes) -> None:
        path = Path(made("a", "SUCCEEDED", 1.0).file("tags.jsonl"))
        path.write_bytes(spoilt)
        assert query.add_tags("a", {"kept": "yes"})
        assert query.job_report("a")["state"]["tags"] == {"kept": "yes"}

    def test_a_request_to_add_tags_is_answered_with_the_jobs_report(
        self, capfdbinary: pytest.CaptureFixture[bytes]
    ) -> None:
        made("a", "SUCCEEDED", 1.0)
        assert cli.main(["tag", "a", '{"stage": "x"}']) == 0
        ((_, payload),) = frames.Decoder().feed(capfdbinary.readouterr().out)
        assert json.loads(payload)["state"]["tags"] == {"stage": "x"}
        assert cli.main(["tag", "a", json.dumps({"long": "x" * (256 << 10)})]) == 1
        assert cli.main(["tag", "nope", '{"stage": "x"}']) == cli.NO_RECORDS
        assert b"the tags were not kept" in capfdbinary.readouterr().err

    def test_tags_without_room_are_refused_and_those_before_stay(self) -> None:
        folder = made("a", "SUCCEEDED", 1.0)
        assert query.add_tags("a", {"kept": "yes"})
        assert not query.add_tags("a", {"long": "x" * (256 << 10)})
        assert query.job_report("a")["state"]["tags"] == {"kept": "yes"}
        Path(folder.file("tags.jsonl")).unlink()
        Path(folder.file("tags.jsonl")).symlink_to("/dev/full")
        assert not query.add_tags("a", {"lost": "yes"})

    def test_half_made_jobs_are_passed_over(self) -> None:
        job_dir.Folder("half").create(sample_plan("half"))
        assert query.list_jobs(None) == {"jobs": [], "left_out": 0, "aside": []}

    def test_the_newest_20_of_500_jobs_are_listed_and_the_others_counted(self) -> None:
        for number in range(500):
            made(f"a{number:03}", "SUCCEEDED", float(number), nodes=["node000000"] * 64, failure=None)
        listed = query.list_jobs(20)
        assert [state["job"] for state in listed["jobs"]] == [f"a{number:03}" for number in range(480, 500)]
        assert listed["left_out"] == 480

    def test_no_job_at_all(self) -> None:
        assert query.list_jobs(5) == {"jobs": [], "left_out": 0, "aside": []}


class TestReport:
    def test_each_ranks_newest_end_and_what_else_happened_and_no_variable(self) -> None:
        folder = made("a", "SUCCEEDED", 1.0)
        for attempt, status in ((0, 3), (1, 0)):
            how = {"status": status, "signal": None, "stopped": False, "attempt": attempt}
            folder.event("exit", rank=1, node="node000000", **how)
        folder.event("restart", count=1, reason="rank 1")
        with Path(folder.file("events.jsonl")).open("a", encoding="utf-8") as file:
            file.write('{"event": "exit", "ra')
        report = query.job_report("a")
        assert [(end["rank"], end["status"]) for end in report["ends"]] == [(1, 0)]
        assert [event["event"] for event in report["events"]] == ["state", "restart"]
        assert report["ranks"] == {"node000000": [0, 1]}
        assert "secret" not in json.dumps(report)

    def test_there_is_none_of_a_job_that_is_not_there(self) -> None:
        with pytest.raises(FileNotFoundError):
            query.job_report("nope")


class TestWaiting:
    def test_every_state_comes_once_and_the_last_ends_it(self) -> None:
        alive = processes.identity(os.getpid())
        folder = made("a", "QUEUED", 1.0, supervisor=alive)
        seen: list[str] = []

        def wait() -> None:
            seen.extend(state["state"] for state in query.state_changes("a") if state)

        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        for state in ("RUNNING", "SUCCEEDED"):
            until = time.monotonic() + 10
            while len(seen) < len(("QUEUED", "RUNNING")[: 1 + (state != "RUNNING")]):
                assert time.monotonic() < until
                time.sleep(0.01)
            folder.write_state(sample_state("a", supervisor=alive, state=state))
        thread.join(10)
        assert seen == ["QUEUED", "RUNNING", "SUCCEEDED"]

    def test_a_supervisor_that_dies_is_noticed_although_nothing_is_written(self) -> None:
        made("a", "RUNNING", 1.0)
        assert [state["state"] for state in query.state_changes("a") if state] == ["LOST"]
