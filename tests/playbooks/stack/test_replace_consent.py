"""`fab replace` lists what would be lost with a node, asks, and deletes no more than was agreed to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from invoke.context import Context
from invoke.exceptions import Exit

from launch.errors import RetryError
from playbooks.cli import output
from playbooks.project import Stack
from playbooks.stack import replace as replacing
from playbooks.stack.replacement import replace_node
from tests.playbooks.stack.test_replace import Cluster, node

DONE = ["delete 1", "update", "make beside 2", "wait"]


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(tmp_path, monkeypatch)


@pytest.mark.parametrize("reimage", [False, True])
def test_results_that_were_not_collected_are_listed_and_asked_about(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], reimage: bool
) -> None:
    cluster.uncollected, cluster.answers = ("train-1", "train-2"), [True]
    cluster.replace("1", reimage=reimage)
    assert cluster.done == (["reimage", "wait"] if reimage else DONE)
    assert cluster.questions == ["Replace node000001 (results of 2 jobs were not collected)?"]
    listed = "not collected, as far as the heads know: train-1, train-2; `fab collect train-1` copies "
    assert capsys.readouterr().err.count(listed) == 1


@pytest.mark.parametrize("reimage", [False, True])
def test_without_a_terminal_it_is_refused_with_the_remedy(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], reimage: bool
) -> None:
    cluster.uncollected = ("train-1",)
    with pytest.raises(Exit) as caught:
        cluster.replace("1", reimage=reimage)
    assert (caught.value.code, cluster.done) == (1, [])
    assert capsys.readouterr().err.endswith(
        "error: node000001 is not replaced: results of 1 job were not collected; --yes replaces it anyway\n"
    )


@pytest.mark.parametrize(
    ("answer", "code", "words"),
    [
        (False, 1, "error: node000001 is not replaced: nothing was changed\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
    ],
)
def test_no_and_ctrl_c_at_the_question_change_nothing(
    cluster: Cluster,
    capsys: pytest.CaptureFixture[str],
    answer: bool | BaseException,
    code: int,
    words: str,
) -> None:
    cluster.uncollected, cluster.answers = ("train-1",), [answer]
    with pytest.raises(Exit) as caught:
        cluster.replace("1", report=True)
    assert (caught.value.code, cluster.done) == (code, []), "the host is not reported either"
    assert capsys.readouterr().err.endswith(words)


def test_nothing_is_asked_where_nothing_is_lost_or_yes_was_said(cluster: Cluster) -> None:
    cluster.replace("1")
    assert (cluster.done, cluster.questions) == (DONE, [])
    cluster.nodes, cluster.uncollected = [node(0), node(1), node(2)], ("train-1",)
    cluster.replace("1", yes=True)
    assert (cluster.done, cluster.questions) == (DONE * 2, [])


@pytest.mark.parametrize(
    ("state", "silent", "line"),
    [
        ("stopped", set(), "node000001: its jobs and results are unknown: it does not run\n"),
        ("running", {"node000001"}, "node000001: its jobs and results are unknown: no route to host\n"),
        (
            "running",
            {"node000000"},
            "node000000: its jobs and results are unknown: no route to host; its jobs may have results on "
            "node000001\n",
        ),
    ],
)
def test_what_a_node_that_does_not_answer_has_is_unknown_and_asked_about(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], state: str, silent: set[str], line: str
) -> None:
    cluster.nodes[1], cluster.silent = node(1, state), silent
    with pytest.raises(Exit):
        cluster.replace("1")
    ran = capsys.readouterr().err
    assert line in ran
    assert "node000001 is not replaced: 1 node did not answer; --yes replaces it anyway\n" in ran
    assert cluster.done == []
    cluster.answers = [True]
    cluster.replace("1")
    assert cluster.done == DONE


def test_jobs_in_the_way_are_named_before_anybody_is_asked(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.jobs, cluster.uncollected, cluster.answers = [("train-2",)], ("train-1",), [True]
    with pytest.raises(Exit):
        cluster.replace("1")
    assert (cluster.done, cluster.questions) == ([], [])
    assert "node000001: it has train-2" in capsys.readouterr().err


def test_jobs_that_are_to_be_ended_lose_their_results_too(cluster: Cluster) -> None:
    cluster.jobs, cluster.answers = [("train-1",), ()], [True]
    cluster.later = ("train-1",)
    cluster.replace("1", cancel_jobs=True)
    assert cluster.questions == ["Replace node000001 (results of 1 job were not collected)?"]
    assert cluster.done == ["end train-1", *DONE]


@pytest.mark.parametrize("cancel_jobs", [False, True])
@pytest.mark.parametrize("reimage", [False, True])
def test_what_a_job_wrote_since_the_question_is_not_deleted(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], reimage: bool, cancel_jobs: bool
) -> None:
    cluster.uncollected, cluster.later, cluster.answers = ("train-1",), ("train-2",), [True]
    with pytest.raises(Exit) as caught:
        cluster.replace("1", reimage=reimage, cancel_jobs=cancel_jobs)
    assert (caught.value.code, cluster.done) == (1, [])
    assert capsys.readouterr().err.endswith(
        "error: node000001 is not replaced: more would be lost than was agreed to; repeat the command\n"
        "not collected, as far as the heads know: train-2; `fab collect train-2` copies a job's results\n"
    )


def test_a_job_that_started_since_the_question_is_not_ended(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def agreed_once_a_job_has_started(_: str) -> bool:
        cluster.jobs = [("train-2",)]
        return True

    cluster.uncollected = ("train-1",)
    monkeypatch.setattr(output, "ask", agreed_once_a_job_has_started)
    with pytest.raises(Exit):
        cluster.replace("1", cancel_jobs=True)
    assert cluster.done == []


def test_what_came_meanwhile_is_named_to_whoever_has_said_yes(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.later = ("train-2",)
    cluster.replace("1", yes=True)
    assert cluster.done == DONE
    assert "not collected, as far as the heads know: train-2; " in capsys.readouterr().err


def test_a_node_is_not_replaced_for_a_launch_where_something_would_be_lost(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.uncollected, cluster.answers = ("train-1",), [True]
    with pytest.raises(RetryError, match="more would be lost than was agreed to"):
        replace_node(Stack("dev", tmp_path, {}), "node000001")
    assert (cluster.done, cluster.questions) == ([], [])


@pytest.mark.parametrize("yes", [False, True])
def test_a_dry_run_shows_what_would_be_lost_and_changes_nothing(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], yes: bool
) -> None:
    cluster.uncollected = ("train-1",)
    replacing.replace(Context(), ["1"], stack="dev", yes=yes, dry_run=True, json=True)
    shown = json.loads(capsys.readouterr().out)
    asks = [] if yes else ["ask first; without a terminal refuse, unless --yes is given"]
    assert shown == [
        "not collected, as far as the heads know: train-1; `fab collect train-1` copies a job's results",
        *asks,
        "node000001: remove it, pulumi up --yes --refresh --stack dev, wait until it answers",
    ]
    assert (cluster.done, cluster.questions) == ([], [])


def test_a_dry_run_names_the_jobs_that_would_be_in_the_way(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.jobs = [("train-2",)]
    with pytest.raises(Exit) as caught:
        cluster.replace("1", dry_run=True)
    assert caught.value.code == 1
    assert "node000001: it has train-2" in capsys.readouterr().err
