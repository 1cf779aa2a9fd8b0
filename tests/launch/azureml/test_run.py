"""A run under Azure ML's words: its state, its lines, its end, its files."""

from __future__ import annotations

import json
import os
import traceback
from pathlib import Path
from typing import Any

import pytest

from launch.azureml import (
    ActivityFailedException,
    Experiment,
    ExperimentExecutionException,
    NotSupported,
    Run,
    ScriptRunConfig,
    UserErrorException,
    Workspace,
)
from launch.errors import JobFailed
from tests.launch.azureml.fake_fab import FAILED, JOB, NODES, FakeFab, record


@pytest.mark.parametrize(
    ("state", "status"),
    [
        ("QUEUED", "Queued"),
        ("STARTING", "Preparing"),
        ("RUNNING", "Running"),
        ("SUCCEEDED", "Completed"),
        ("INCOMPLETE", "Failed"),
        ("FAILED", "Failed"),
        ("CANCELLED", "Canceled"),
        ("LOST", "Failed"),
    ],
)
def test_a_state_has_azure_mls_word(fab: FakeFab, run: Run, state: str, status: str) -> None:
    fab.state(state)
    assert run.get_status() == run.status == status


def test_a_state_is_asked_of_the_jobs_head_alone_and_not_again_once_it_is_final(
    fab: FakeFab, run: Run
) -> None:
    fab.state("RUNNING", "SUCCEEDED")
    assert [run.get_status() for _ in range(3)] == ["Running", "Completed", "Completed"]
    words = ["jobs", "--all", "--nodes", "0", "--json", "--stack", "dev"]
    assert fab.words("jobs") == [words, words]


def test_an_incomplete_run_is_completed_once_its_outputs_are_in_storage(fab: FakeFab, run: Run) -> None:
    lacks = "not all of its outputs are in storage"
    fab.state(record("INCOMPLETE", exit_status=74, reason=lacks), "SUCCEEDED")
    details = run.get_details()
    error = {"error": {"code": "INCOMPLETE", "message": lacks}, "exitStatus": 74}
    assert (details["status"], details["error"]) == ("Failed", error)
    assert run.get_status() == "Completed"


def test_waiting_shows_the_ranks_lines(fab: FakeFab, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    fab.answer("logs", out="[0 node000000] epoch 1\n", err=f"job {JOB} RUNNING\n")
    details = run.wait_for_completion(show_output=True)
    assert details["status"] == "Completed"
    shown = capsys.readouterr()
    assert shown.out == (
        f"RunId: {JOB}\nTo follow it elsewhere: fab logs -f {JOB} --stack dev\n\n[0 node000000] epoch 1\n"
        f"\nExecution Summary\n=================\nRunId: {JOB}\nStatus: Completed\n"
    )
    assert shown.err == f"job {JOB} RUNNING\n"
    assert fab.words("logs") == [["logs", "-f", JOB, "--stack", "dev"]]


def test_waiting_is_silent_unless_asked(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run.wait_for_completion()["runId"] == JOB
    assert capsys.readouterr() == ("", "")


def test_a_failed_run_raises_with_the_failing_ranks_last_lines(fab: FakeFab, run: Run) -> None:
    fab.state(FAILED)
    fab.answer("logs", status=3, err="error: job failed\n")
    with pytest.raises(ActivityFailedException) as caught:
        run.wait_for_completion(show_output=True)
    assert str(caught.value) == (
        f"job {JOB} FAILED: rank 2 on node000001 ended with exit status 3\n  loss is nan\n  giving up"
    )
    assert isinstance(caught.value, JobFailed)
    assert caught.value.exit_status == 3
    assert caught.value.message == str(caught.value)


def test_a_failed_run_can_be_looked_at_instead(
    fab: FakeFab, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    fab.state(FAILED)
    details = run.wait_for_completion(show_output=True, raise_on_error=False)
    assert details["status"] == "Failed"
    text = "rank 2 on node000001 ended with exit status 3\n  loss is nan\n  giving up"
    assert details["error"] == {"error": {"code": "FAILED", "message": text}, "exitStatus": 3}
    assert f"Error:\n{text}\n" in capsys.readouterr().out


@pytest.mark.parametrize("state", ["LOST", "FAILED"])
def test_a_run_without_a_failing_rank_fails_with_its_reason(fab: FakeFab, run: Run, state: str) -> None:
    fab.state(record(state, reason="its head was restarted"))
    with pytest.raises(ActivityFailedException, match=f"job {JOB} {state}: its head was restarted$"):
        run.wait_for_completion()


def test_a_cancelled_run_raises_nothing(fab: FakeFab, run: Run) -> None:
    run.cancel()
    assert fab.words("cancel") == [["cancel", JOB, "--json", "--stack", "dev"]]
    fab.state("CANCELLED")
    fab.answer("logs", status=143, err=f"error: job {JOB} CANCELLED\n")
    assert run.wait_for_completion(show_output=True)["status"] == "Canceled"


def test_a_run_that_cannot_be_watched_any_more_is_not_taken_for_ended(fab: FakeFab, run: Run) -> None:
    fab.state("RUNNING")
    fab.answer("logs", status=1, err="error: node000000: stopped sending the job's output\n")
    with pytest.raises(ExperimentExecutionException) as caught:
        run.wait_for_completion()
    assert "may still run; wait again\nerror: node000000: stopped sending the job's output" in str(
        caught.value
    )


def test_a_user_without_a_name_has_a_number(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container that is run under any number, there is no name for it."""

    def nameless() -> str:
        raise KeyError("getpwuid(): uid not found: 1234")

    monkeypatch.setattr("getpass.getuser", nameless)
    assert run.get_details()["submittedBy"] == str(os.getuid())


def test_details_have_azure_mls_keys(run: Run) -> None:
    details = run.get_details()
    assert (details["runId"], details["target"], details["status"]) == (JOB, "dev", "Completed")
    assert details["startTimeUtc"] == "2026-03-01T09:05:08+00:00"
    assert details["endTimeUtc"] == "2026-03-01T09:06:00+00:00"
    assert details["properties"] == {"nodes": list(NODES), "processes": 4}
    assert details["runDefinition"]["tags"] == {"lr": "0.1"}


def test_a_running_run_has_no_end(fab: FakeFab, run: Run) -> None:
    fab.state("RUNNING")
    assert "endTimeUtc" not in run.get_details()


def test_tags_are_kept_by_the_runs_head(fab: FakeFab, run: Run) -> None:
    fab.answer("job", out="{}")
    fab.state(
        record("SUCCEEDED", tags={"lr": "0.1"}), record("SUCCEEDED", tags={"lr": "0.1", "a": "b=c\n-d"})
    )
    assert run.get_tags() == {"lr": "0.1"}
    run.set_tags({})
    run.tag("a", "b=c\n-d")
    assert fab.words("job") == [["job", JOB, "--tag=a=b=c\n-d", "--json", "--stack", "dev"]]
    assert run.tags == run.properties == {"lr": "0.1", "a": "b=c\n-d"}


def test_a_run_has_the_names_that_its_tags_give_it(fab: FakeFab, run: Run) -> None:
    assert (run.display_name, run.name, run.description) == (JOB, JOB, None)
    fab.state(record("RUNNING", tags={"display_name": "first", "description": "of many"}))
    run._last = None
    assert (run.display_name, run.description) == ("first", "of many")


def test_details_come_with_the_logs(fab: FakeFab, run: Run) -> None:
    fab.file("logs/rank-0.log", "hello\n")
    assert run.get_details_with_logs()["logFiles"] == {"user_logs/std_log_process_0.txt": "hello\n"}


def test_there_is_no_portal_and_the_run_says_so(run: Run) -> None:
    assert run.get_portal_url() == run.portal_url == f"fab logs -f {JOB} --stack dev"


# -- files --------------------------------------------------------------------------------------------------


NAMES = [
    "outputs/deep/er/x.txt",
    "outputs/model.pt",
    "outputs/node000001/model.pt",
    "outputs/only.txt",
    "outputs/same.txt",
    "system_logs/job.json",
    *(f"user_logs/std_log_process_{rank}.txt" for rank in range(4)),
]


def below(folder: str) -> dict[str, str]:
    top = Path(folder)
    return {path.relative_to(top).as_posix(): path.read_text() for path in top.rglob("*") if path.is_file()}


def test_files_have_the_names_that_azure_ml_gives_them(files: FakeFab, run: Run) -> None:
    assert run.get_file_names() == NAMES
    run.download_files()
    run.get_file_names()
    assert len(files.words("collect")) == 1


def test_a_log_that_is_no_ranks_has_its_own_name(files: FakeFab, run: Run) -> None:
    odd = ["rank-evil.log", "rank-01.log", "rank-².log", f"rank-{'9' * 200}.log", "rank--1.log", "rank-.log"]
    for name in odd:
        files.file(f"logs/{name}", "x")
    files.file("logs/rank-7.log/inner", "x")
    assert run.get_file_names() == sorted([*NAMES, *(f"user_logs/{name}" for name in odd)])


def test_files_of_a_running_run_are_brought_each_time(files: FakeFab, run: Run) -> None:
    files.state("RUNNING")
    run.get_file_names()
    run.get_file_names()
    assert len(files.words("collect")) == 2


def test_all_files_can_be_downloaded(files: FakeFab, run: Run) -> None:
    run.download_files(output_directory="got")
    assert sorted(below("got")) == sorted(NAMES)
    assert below("got")["outputs/model.pt"] == "of the head"


@pytest.mark.parametrize("prefix", ["outputs/deep", "outputs/deep/"])
def test_a_folder_can_be_downloaded_with_or_without_its_prefix(files: FakeFab, run: Run, prefix: str) -> None:
    run.download_files(prefix, "got")
    assert below("got") == {"outputs/deep/er/x.txt": "x"}
    run.download_files(prefix, "short", append_prefix=False)
    assert below("short") == {"er/x.txt": "x"}
    run.download_files(prefix, "named", output_paths=["y.txt"])
    assert below("named") == {"y.txt": "x"}


def test_one_file_can_be_downloaded(files: FakeFab, run: Run) -> None:
    run.download_file("outputs/model.pt")
    assert Path("model.pt").read_text() == "of the head"
    run.download_file("outputs/node000001/model.pt", "kept/other.pt")
    run.download_file("outputs/only.txt", output_file_path="kept")
    assert below("kept") == {"other.pt": "of the other", "only.txt": "there"}


def test_logs_can_be_had_at_once(files: FakeFab, run: Run) -> None:
    paths = run.get_all_logs("logs")
    assert [Path(path).read_text() for path in paths] == [f"rank {rank}\n" for rank in range(4)]


@pytest.mark.parametrize(
    ("how", "problem"),
    [
        (lambda run: run.download_file("outputs/nope"), "name = 'outputs/nope': the run has no such file"),
        (lambda run: run.download_files("nope"), "prefix = 'nope': the run has no files there"),
        (
            lambda run: run.download_files("outputs", output_paths=["a", "a"]),
            "output_paths: 2 paths for 5 files",
        ),
    ],
)
def test_a_file_that_is_not_there_is_an_error(files: FakeFab, run: Run, how: Any, problem: str) -> None:
    with pytest.raises(UserErrorException, match=f"^{problem}"):
        how(run)


def test_nodes_that_do_not_give_their_files_are_told(files: FakeFab, run: Run) -> None:
    files.answer("collect", status=1, err="error: collecting failed on 1 of 2 nodes\nnode000001: no answer\n")
    with pytest.raises(ExperimentExecutionException, match=r"^collecting failed on 1 of 2 nodes\nnode000001"):
        run.get_file_names()


# -- runs from elsewhere ------------------------------------------------------------------------------------


def test_runs_of_an_experiment_are_found_again_newest_first(fab: FakeFab) -> None:
    rows = [
        record("SUCCEEDED", job="a-1", tags={"lr": "0.1"}),
        record("FAILED", job="b-1", experiment="other"),
        record("RUNNING", job="a-2", tags={"lr": "0.2"}),
    ]
    fab.answer("jobs", out=json.dumps(rows))
    experiment = Experiment(Workspace.from_config(), "experiment_name")
    assert [run.id for run in experiment.get_runs()] == ["a-2", "a-1"]
    assert [run.id for run in experiment.get_runs(tags={"lr": "0.1"})] == ["a-1"]
    assert [run.id for run in experiment.get_runs(tags="lr")] == ["a-2", "a-1"]
    assert [run.id for run in experiment.get_runs(properties={"lr": "0.1"})] == ["a-1"]


def test_a_run_can_be_taken_up_by_its_id(fab: FakeFab) -> None:
    run = Run.get(Workspace.from_config(), JOB)
    assert (run.id, run.experiment.name, run.get_status()) == (JOB, "experiment_name", "Completed")
    with pytest.raises(UserErrorException, match=r"^run_id = 'nope': no node has this job"):
        Run.get(Workspace.from_config(), "nope")


DAMAGED = {"status": 1, "err": "node000000: a record is damaged\nerror: 1 job not shown: damaged records\n"}


def test_a_run_is_read_beside_a_record_that_another_job_has_spoilt(
    fab: FakeFab, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    fab.answer("jobs", out=json.dumps([record("SUCCEEDED")]), **DAMAGED)
    assert run.get_status() == "Completed"
    assert run.wait_for_completion()["status"] == "Completed"
    assert "a record is damaged" in capsys.readouterr().err
    assert Run.get(Workspace.from_config(), JOB).get_status() == "Completed"


def test_a_run_that_is_not_listed_beside_a_damaged_record_may_be_there(fab: FakeFab, run: Run) -> None:
    for printed in ("[]", ""):
        fab.answer("jobs", out=printed, **DAMAGED)
        with pytest.raises(ExperimentExecutionException, match=r"^1 job not shown: damaged records$"):
            run.get_status()


def test_runs_are_listed_beside_a_damaged_record_with_a_notice(
    fab: FakeFab, capsys: pytest.CaptureFixture[str]
) -> None:
    fab.answer("jobs", out=json.dumps([record("SUCCEEDED")]), **DAMAGED)
    assert [run.id for run in Experiment(Workspace.from_config(), "experiment_name").get_runs()] == [JOB]
    assert "notice: not all runs may be listed: 1 job not shown: damaged records\n" in capsys.readouterr().err


# -- submitting ---------------------------------------------------------------------------------------------


def test_what_the_cluster_refuses_is_raised_in_its_words(
    fab: FakeFab, capsys: pytest.CaptureFixture[str]
) -> None:
    fab.answer("launch", status=2, err="snapshot: 3 kB sent\nerror: --nodes: there are 2; take fewer\n")
    with pytest.raises(ExperimentExecutionException, match=r"^--nodes: there are 2; take fewer$"):
        Experiment(None, "x").submit(ScriptRunConfig("src", "train.py"))
    assert capsys.readouterr().err == "snapshot: 3 kB sent\n"


def test_a_compute_target_that_is_no_stack_is_explained(fab: FakeFab) -> None:
    fab.answer("launch", status=2, err="error: stack = 'gpu-cluster': has no saved inventory; x\n")
    with pytest.raises(ExperimentExecutionException) as caught:
        Experiment(None, "x").submit(ScriptRunConfig("src", "train.py", compute_target="gpu-cluster"))
    assert str(caught.value).endswith(
        "compute target gpu-cluster was read as a stack's name; RANKLIFT_STACK can name another"
    )


def test_only_script_runs_can_be_submitted(fab: FakeFab) -> None:
    experiment = Experiment(None, "x")
    with pytest.raises(NotSupported, match="submitting a dict is not offered"):
        experiment.submit({})  # type: ignore[arg-type]
    with pytest.raises(NotSupported, match="a run_id of one's own"):
        experiment.submit(ScriptRunConfig("src", "train.py"), run_id="mine")
    with pytest.raises(TypeError, match="unexpected keyword argument 'priority'"):
        experiment.submit(ScriptRunConfig("src", "train.py"), priority=1)
    assert fab.calls == []


def test_what_a_rank_wrote_commands_no_terminal_that_python_prints_its_end_on() -> None:
    error = ActivityFailedException(
        "a-1", "FAILED", 3, "r\x1b[2J", ("\x1b]52;c;aGk=\x07 \x9b2J \u202e \u200f",)
    )
    printed = "".join(traceback.format_exception(error))
    assert not set(printed) & set("\x1b\x07\x9b\u202e\u200f")
    assert error.message == str(error)
