"""What goes with a cluster is named before it is removed, and only what is agreed to goes."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any
from unittest.mock import Mock

import pytest

from infra.inventory import Inventory, Node
from launch.client.events import JobState
from launch.client.left_files import LeftFiles
from launch.errors import NodeUnreachable, RankliftError, RetryError
from launch.host import Host
from launch.results.download import CollectReport, NodeFiles
from playbooks.jobs.collect import noted
from playbooks.project import Stack
from playbooks.ssh import connection
from playbooks.stack import teardown
from playbooks.stack.losses import (
    Losses,
    agree_to_lose,
    agree_to_replace,
    find_losses,
)
from playbooks.stack.teardown import prepared_replacement, prepared_teardown, teardown_steps
from tests.launch.standin import Nodes, end_everything, shell, start, until

DEV = Stack("dev", Path(), {})


@dataclass
class Opened:
    """A stand-in's head as a connection gives it."""

    host: Host

    def __enter__(self) -> Host:
        return self.host

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        pass


@pytest.fixture
def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Nodes]:
    """Two nodes, of which the first is the head of every job, and the second does not answer."""
    made = Nodes(tmp_path, [2, 2])

    class Cluster:
        def __init__(self, *_: Any) -> None:
            pass

        def __enter__(self) -> Cluster:
            return self

        def __exit__(self, *_: Any) -> None:
            pass

        def host(self, node: Node) -> Opened:
            if node.instance_id != 0:
                raise NodeUnreachable(node.name, "no route to host")
            return Opened(made.head)

    monkeypatch.setattr(connection, "Cluster", Cluster)
    yield made
    end_everything()


def inventory(count: int = 1, state: str = "running") -> Inventory:
    nodes = tuple(Node(f"node{i:06}", i, "", "", 0, 2, state) for i in range(count))
    return Inventory("dev", "size", "place", "me", nodes)


def collected(
    nodes: Nodes, job: str, *, whole: bool = True, meanwhile: str = "true", with_work: bool = False
) -> None:
    """A collect of the job that brings all of it, or not; ``meanwhile`` is done on the head."""

    def work() -> CollectReport:
        nodes.head.run(["sh", "-c", meanwhile])
        files = NodeFiles(1, 0, 1)
        gone = NodeUnreachable("node000001", "no answer")
        return CollectReport(Path(job), {"node000000": files if whole else gone})

    noted(job, nodes.head, work, with_work=with_work)


def test_a_cluster_without_jobs_has_nothing_to_lose(nodes: Nodes) -> None:
    assert not find_losses(DEV, inventory())


def test_what_was_never_collected_is_named_until_all_of_it_was(nodes: Nodes) -> None:
    job = nodes.run(shell("true"))[0].job
    assert find_losses(DEV, inventory()) == Losses(uncollected=(job,))
    collected(nodes, job, whole=False)
    assert find_losses(DEV, inventory()).uncollected == (job,)
    collected(nodes, job)
    assert not find_losses(DEV, inventory())
    left = os.listdir(nodes.folder / "node000000/.ranklift/collected")  # noqa: PTH208
    assert left == [job]


def test_a_collect_that_began_before_the_jobs_end_has_not_all_of_it(nodes: Nodes) -> None:
    job = nodes.run(shell("true"))[0].job
    collected(nodes, job, meanwhile=f"sleep 0.05; touch .ranklift/jobs/{job}/state.json")
    assert find_losses(DEV, inventory()).uncollected == (job,)


def test_files_in_working_folders_are_named_until_a_collect_has_copied_them(nodes: Nodes) -> None:
    job = nodes.run(shell("mkdir checkpoints; echo weights > checkpoints/last.ckpt"))[0].job
    collected(nodes, job)
    found = find_losses(DEV, inventory())
    assert list(found.lines()) == [
        f"job {job} left in its working folders 1 file, 8 B, on node000000: checkpoints/last.ckpt (8 B); "
        f"`fab collect {job} --work` copies them"
    ]
    assert found.summary() == "files of 1 job were left in working folders"
    with pytest.raises(RankliftError, match="stack dev is not removed: files of 1 job were left in working"):
        agree_to_lose(DEV, found, yes=False)
    collected(nodes, job, whole=False, with_work=True)
    assert find_losses(DEV, inventory()).left.keys() == {job}
    collected(nodes, job, with_work=True)
    assert not find_losses(DEV, inventory())


def test_of_many_jobs_with_files_in_working_folders_some_are_named() -> None:
    left = {f"t-{n}": LeftFiles(1, 1, (("a", 1),), ("node000000",)) for n in range(20)}
    lines = list(Losses(left=left).lines())
    assert (len(lines), lines[-1]) == (9, "12 more left files there (`fab job JOB`)")


def test_jobs_that_run_or_wait_are_named(nodes: Nodes) -> None:
    running = start(nodes, shell("sleep 60"))
    until(lambda: any(one.state == "RUNNING" for one in nodes.jobs()))
    found = find_losses(DEV, inventory())
    assert [job.job for job in found.unended] == [running.job]
    (line,) = found.lines()
    assert line == f"job {running.job} is RUNNING on node[000000-000001] and ends with its nodes"
    nodes.cancel(running.job)


def test_a_damaged_record_of_a_job_that_has_ended_leaves_its_heads_other_jobs_known(nodes: Nodes) -> None:
    job = nodes.run(shell("true"))[0].job
    path = nodes.folder / "node000000/.ranklift/jobs" / job / "state.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "ranks": -1}))
    found = find_losses(DEV, inventory())
    assert (found.unknown, found.unended) == ({}, ())
    assert {one.job: one.state for one in nodes.jobs()}[job] == "LOST"


def test_a_job_whose_record_is_damaged_while_it_runs_counts_as_running(nodes: Nodes) -> None:
    running = start(nodes, shell("sleep 60"))
    until(lambda: any(one.state == "RUNNING" for one in nodes.jobs()))
    path = nodes.folder / "node000000/.ranklift/jobs" / running.job / "state.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "ranks": -1}))
    assert [job.job for job in find_losses(DEV, inventory()).unended] == [running.job]
    nodes.cancel(running.job)


def test_nodes_that_cannot_be_asked_are_named_with_the_reason(nodes: Nodes) -> None:
    found = find_losses(DEV, inventory(2))
    assert found == Losses(unknown={"node000001": "no route to host"})
    assert list(found.lines()) == ["node000001: its jobs and results are unknown: no route to host"]
    assert find_losses(DEV, inventory(1, "stopped")).unknown == {"node000000": "it is stopped"}


LOST = Losses(uncollected=("train-1", "train-2"), unknown={"node000001": "no route"})


def test_without_a_terminal_one_line_says_why_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False)
    with pytest.raises(RankliftError) as caught:
        agree_to_lose(DEV, LOST, yes=False)
    assert str(caught.value) == (
        "stack dev is not removed: results of 2 jobs were not collected, 1 node did not answer; --yes "
        "removes it anyway"
    )


@pytest.mark.parametrize(("answer", "goes"), [("y", True), ("", False), ("no", False)])
def test_at_a_terminal_it_is_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], answer: str, goes: bool
) -> None:
    shown: list[str] = []

    def answered(question: str) -> str:
        shown.append(question)
        return answer

    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr("builtins.input", answered)
    if goes:
        agree_to_lose(DEV, LOST, yes=False)
    else:
        with pytest.raises(RankliftError, match="stack dev is not removed: nothing was changed"):
            agree_to_lose(DEV, LOST, yes=False)
    assert shown == ["Remove stack dev anyway? [y/N] "]
    assert "`fab collect train-1` copies a job's results" in capsys.readouterr().err


def test_nothing_is_asked_where_nothing_is_lost_or_it_was_agreed_to_beforehand() -> None:
    agree_to_lose(DEV, Losses(), yes=False)
    agree_to_lose(DEV, LOST, yes=True)


CAUSE = "ranklift:image = 'new', was 'old'"
NODES = inventory(2).nodes


def test_nodes_are_not_replaced_unasked_even_without_jobs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False)
    with pytest.raises(RankliftError) as caught:
        agree_to_replace(DEV, NODES, CAUSE, Losses(), yes=False)
    assert str(caught.value) == (
        "the nodes of stack dev are not replaced: ranklift:image = 'new', was 'old' replaces all nodes; "
        "set it back, or give --yes to replace them"
    )
    with pytest.raises(RankliftError, match="replaces all nodes; results of 2 jobs were not collected"):
        agree_to_replace(DEV, NODES, CAUSE, LOST, yes=False)
    capsys.readouterr()
    agree_to_replace(DEV, NODES, CAUSE, LOST, yes=True)
    first, second, *_ = capsys.readouterr().err.splitlines()
    assert first == f"{CAUSE} replaces all nodes: node[000000-000001] are deleted with what is on them"
    assert second.startswith("not collected, as far as the heads know: train-1, train-2")


@pytest.mark.parametrize("answer", ["y", ""])
def test_at_a_terminal_their_replacement_is_asked(monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    shown = Mock(return_value=answer)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr("builtins.input", shown)
    if answer:
        agree_to_replace(DEV, NODES, CAUSE, Losses(), yes=False)
    else:
        with pytest.raises(RankliftError, match="stack dev are not replaced: nothing was changed"):
            agree_to_replace(DEV, NODES, CAUSE, Losses(), yes=False)
    shown.assert_called_once_with("Replace all nodes of stack dev? [y/N] ")


class TestGivingUp:
    """The nodes of a stack, asked before and after jobs are kept off them."""

    @pytest.fixture
    def shown(self, monkeypatch: pytest.MonkeyPatch) -> list[Losses]:
        answers: list[Losses] = []

        @contextmanager
        def kept_free(*_: object) -> Iterator[None]:
            yield

        monkeypatch.setattr(teardown, "nodes_before", lambda _: inventory())
        monkeypatch.setattr(teardown, "find_losses", lambda *_: answers.pop(0))
        monkeypatch.setattr(teardown, "kept_free", kept_free)
        monkeypatch.setattr(teardown, "storage_that_goes", lambda _: "")
        return answers

    def job(self, nodes: Nodes) -> JobState:
        return nodes.run(shell("true"))[0]

    def test_a_job_that_came_meanwhile_was_not_agreed_to(self, nodes: Nodes, shown: list[Losses]) -> None:
        shown += [Losses(), Losses(unended=(self.job(nodes),))]
        with pytest.raises(RetryError, match="started meanwhile"), prepared_teardown(DEV, 60, yes=False):
            pytest.fail("it was removed")

    def test_nor_were_the_results_of_one_that_has_ended_since(
        self, shown: list[Losses], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(teardown, "agree_to_lose", lambda *_, **__: None)
        shown += [Losses(uncollected=("train-1",)), Losses(uncollected=("train-1", "train-2"))]
        with (
            pytest.raises(RetryError, match="not removed: train-2 started meanwhile"),
            prepared_teardown(DEV, 60, yes=False),
        ):
            pytest.fail("it was removed")

    def test_nor_was_one_that_came_before_all_nodes_were_replaced(
        self, nodes: Nodes, shown: list[Losses], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(teardown, "agree_to_replace", lambda *_, **__: None)
        shown += [Losses(), Losses(unended=(self.job(nodes),))]
        with (
            pytest.raises(RetryError, match="started meanwhile"),
            prepared_replacement(DEV, inventory(), CAUSE, 60, yes=False),
        ):
            pytest.fail("they were replaced")

    def test_azure_that_does_not_answer_hinders_nobody_who_agrees(
        self, shown: list[Losses], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refused(_: Stack) -> Inventory:
            raise RetryError("Azure does not answer")

        monkeypatch.setattr(teardown, "nodes_before", refused)
        with prepared_teardown(DEV, 60, yes=True):
            pass
        monkeypatch.setattr(sys.stdin, "isatty", lambda: False)
        with pytest.raises(RankliftError, match="--yes removes it"), prepared_teardown(DEV, 60, yes=False):
            pytest.fail("it was removed")


def test_a_dry_run_of_a_removal_shows_what_it_would_ask_about(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = nodes.run(shell("true"))[0].job
    monkeypatch.setattr(Stack, "saved", lambda _: inventory())
    monkeypatch.setattr(teardown, "storage_that_goes", lambda _: "rldata")
    lost, storage, asks = teardown_steps(DEV, yes=False)
    assert lost.startswith(f"not collected, as far as the heads know: {job}; ")
    assert storage.startswith("storage account rldata is deleted with its data and results")
    assert asks == "ask first; without a terminal refuse, unless --yes is given"
    assert teardown_steps(DEV, yes=True) == [lost, storage]


def test_a_dry_run_of_a_removal_names_what_pulumi_does_not_say(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: Stack) -> str:
        raise RetryError("Pulumi's backend does not answer\nwhy")

    monkeypatch.setattr(teardown, "storage_that_goes", refused)
    monkeypatch.setattr(Stack, "saved", lambda _: Inventory("dev", "size", "place", "me", ()))
    assert teardown_steps(DEV, yes=False) == [
        "whether its own storage holds data is unknown: Pulumi's backend does not answer"
    ]
