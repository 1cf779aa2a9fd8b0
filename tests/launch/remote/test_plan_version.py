"""A plan that another version of the code made: refused by name, and nothing of the job is lost by it."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from launch.client.rpc import code_of
from launch.errors import GiveUpError
from launch.remote import cli
from launch.remote.base import job_dir, processes
from launch.remote.collect import send
from launch.remote.head import cancel, query
from tests.launch.remote.sample_records import sample_plan, sample_state

OTHERS = [2, 0, "1", None, "absent"]


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))


def made(version: object, **state: Any) -> job_dir.Folder:
    """A job whose plan has this version, ``absent`` for none."""
    folder = job_dir.Folder("t-1")
    plan = sample_plan(version=version, max_restarts=1, user_env={"KEY": "s3cret"})
    folder.create(plan)
    if version == "absent":
        Path(folder.file("job.json")).write_text(
            json.dumps({k: v for k, v in plan.items() if k != "version"})
        )
    folder.write_state(sample_state(**state))
    return folder


@pytest.mark.parametrize("version", OTHERS)
class TestOnTheHead:
    @pytest.mark.parametrize("command", [["show", "t-1"], ["follow", "t-1"], ["relay", "t-1", "files"]])
    def test_what_needs_the_plan_names_both_versions_and_what_to_do(
        self, version: object, command: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = made(version).file("job.json")
        its = "without a version" if version == "absent" else f"of version {version!r}"
        assert cli.main(command) == cli.OTHER_VERSION
        assert capsys.readouterr().err == (
            f"{path} is a plan {its}; this code reads version 1: repeat the command with the version of "
            "Ranklift that launched the job\n"
        )

    def test_the_job_is_listed_and_can_be_cancelled(self, version: object) -> None:
        made(version, supervisor=processes.identity(os.getpid()))
        assert query.list_jobs(None)["jobs"][0]["state"] == "RUNNING"
        Path(job_dir.Folder("t-1").file("state.json")).write_text(json.dumps(sample_state(state="CANCELLED")))
        assert cancel.cancel("t-1", None)["state"]["state"] == "CANCELLED"

    def test_it_is_lost_once_its_supervisor_is_gone(self, version: object) -> None:
        found = made(version, supervisor=None).state()
        assert (found["state"], found["exit_status"]) == ("LOST", 255)
        assert "exited without recording why" in found["reason"]

    def test_it_is_listed_although_its_state_is_torn(self, version: object) -> None:
        Path(made(version).file("state.json")).write_text("")
        assert query.list_jobs(None)["jobs"][0]["state"] == "LOST"

    def test_no_job_is_made_of_one(
        self, version: object, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        plan = {key: value for key, value in sample_plan(version=version).items() if value != "absent"}
        data = json.dumps(plan).encode()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"%010d" % len(data) + data)))
        assert cli.main(["submit"]) == cli.OTHER_VERSION
        assert capsys.readouterr().err.startswith("the request is a plan ")
        assert not Path(job_dir.Folder("t-1").path).exists()

    def test_it_is_not_sent_since_its_values_may_be_anywhere(self, version: object) -> None:
        folder = made(version)
        entries = [
            entry
            for entry in send._entries(os.fsencode(folder.path), with_work=False)
            if entry[1] == "job.json"
        ]
        assert [entry[0] for entry in entries] == ["x"]
        assert "this code reads version 1" in str(entries[0][-1])


class TestForTheOperator:
    def test_a_plan_of_the_known_version_names_the_code_that_runs_the_job(self) -> None:
        plan = json.dumps(sample_plan(remote=".ranklift/remote/0123456789ab")).encode()
        assert code_of(plan, "node000000") == "0123456789ab"

    @pytest.mark.parametrize("version", [2, None])
    def test_another_is_refused_with_its_node_both_versions_and_the_remedy(self, version: object) -> None:
        with pytest.raises(GiveUpError) as refused:
            code_of(json.dumps(sample_plan(version=version)).encode(), "node000000")
        assert str(refused.value) == (
            f"node000000: job.json is a plan of version {version}; this code reads version 1: repeat the "
            "command with the version of Ranklift that launched the job"
        )

    def test_a_torn_one_is_named(self) -> None:
        with pytest.raises(GiveUpError, match=r"node000000: job\.json is damaged: the head went down"):
            code_of(b'{"remo', "node000000")
