"""Jobs by parts of their ids, and the newest."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from invoke.context import Context
from invoke.exceptions import Exit

from infra.inventory import Inventory, Node
from launch.client.events import JobState
from launch.errors import InputError, NodeUnreachable
from playbooks.cli import output
from playbooks.jobs import cancel, handle
from playbooks.jobs.cancel import Cancelled
from playbooks.jobs.handle import choose_job, choose_jobs, newest_job
from playbooks.jobs.listing import JobList
from playbooks.jobs.location import Place
from playbooks.project import Stack
from tests.playbooks.jobs.test_tables import REPORT, at, state

TRAIN, DIGITS, AGAIN = (
    "train-20260301-090507-0f3a",
    "digits-20260301-100000-b1c2",
    "train-20260301-110000-0aaa",
)
NODES = tuple(Node(f"node00000{n}", n, "", "", 1, 8, "running") for n in range(2))
INVENTORY = Inventory("dev", "size", "place", "me", NODES)


class Heads:
    """What the heads of stack ``dev`` answer; ``asked`` is how many ended jobs each query wanted."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stack = Stack("dev", folder, {})
        self.jobs = [
            state(TRAIN, "SUCCEEDED", created=at(0)),
            state(DIGITS, "RUNNING", created=at(1)),
            state(AGAIN, "FAILED", created=at(2)),
        ]
        self.silent: tuple[str, ...] = ()
        self.damaged: tuple[str, ...] = ()
        self.asked: list[int | None] = []
        monkeypatch.setattr(handle, "list_jobs", self.list)
        monkeypatch.setattr("playbooks.ssh.connection.Cluster", self.connect)

    def connect(self, *_: object) -> Heads:
        return self

    def __enter__(self) -> Heads:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def host(self, _: Node) -> None:
        pass

    def list(self, _: object, nodes: Sequence[Node], last: int | None) -> JobList:
        self.asked.append(last)
        answers = {
            node.name: NodeUnreachable(node.name, "refused") if node.name in self.silent else ()
            for node in nodes
        }
        ended = [one for one in self.jobs if one.is_terminal]
        shown = ended if last is None else ended[len(ended) - last :]
        jobs: list[JobState] = [one for one in self.jobs if one in shown or not one.is_terminal]
        return JobList(jobs, 0, {}, answers, self.damaged)

    def noted(self, job: str, head: str) -> None:
        self.stack.jobs.mkdir(parents=True, exist_ok=True)
        (self.stack.jobs / f"{job}.json").write_text(json.dumps({"head": head, "remote": "abc"}))


@pytest.fixture
def heads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Heads:
    return Heads(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("given", "job"),
    [("d", DIGITS), ("train-20260301-1", AGAIN), ("0f", TRAIN), ("b1c2", DIGITS), ("newest", AGAIN)],
)
def test_a_part_that_fits_one_job_is_that_job_and_stderr_names_it(
    heads: Heads, capsys: pytest.CaptureFixture[str], given: str, job: str
) -> None:
    assert choose_job(heads.stack, INVENTORY, given) == job
    assert capsys.readouterr() == ("", f"job {job}\n")


def test_a_task_whose_answer_begins_with_the_job_does_not_report_it(
    heads: Heads, capsys: pytest.CaptureFixture[str]
) -> None:
    assert choose_job(heads.stack, INVENTORY, "newest", report=False) == AGAIN
    assert capsys.readouterr() == ("", "")


def test_a_whole_id_asks_nobody_and_says_nothing(heads: Heads, capsys: pytest.CaptureFixture[str]) -> None:
    heads.noted("t-1", "node000000")
    for whole in (TRAIN, "other-20260301-090507-0f3a", "t-1"):
        assert choose_job(heads.stack, INVENTORY, whole) == whole
    assert heads.asked == []
    assert capsys.readouterr() == ("", "")


def test_what_fits_several_jobs_is_refused_with_all_of_them(heads: Heads) -> None:
    with pytest.raises(InputError) as caught:
        choose_job(heads.stack, INVENTORY, "train")
    assert str(caught.value) == (
        f"job = 'train': fits 2 jobs: {TRAIN}, {AGAIN}; give more of its id, or its last part"
    )
    heads.jobs = [state(f"t-20260301-090507-{n:04x}", "FAILED") for n in range(11)]
    with pytest.raises(InputError, match=r"fits 11 jobs: t-20260301-090507-0003, .*-000a and 3 more; give"):
        choose_job(heads.stack, INVENTORY, "t")


@pytest.mark.parametrize("given", ["x", "rain", "newest-one"])
def test_what_fits_none_is_refused(heads: Heads, given: str) -> None:
    with pytest.raises(InputError, match=f"job = '{given}': does not fit any job of stack dev; see"):
        choose_job(heads.stack, INVENTORY, given)


@pytest.mark.parametrize("given", ["../../etc", "A", "", "-f"])
def test_what_cannot_be_part_of_an_id_asks_nobody(heads: Heads, given: str) -> None:
    with pytest.raises(InputError, match="is not a job's id"):
        choose_job(heads.stack, INVENTORY, given)
    assert heads.asked == []


def test_several_are_looked_for_at_once(heads: Heads, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["d", TRAIN, "newest", "b1"]
    assert choose_jobs(heads.stack, INVENTORY, given) == [DIGITS, TRAIN, AGAIN, DIGITS]
    assert heads.asked == [None]
    assert capsys.readouterr().err == f"job {DIGITS}\njob {AGAIN}\n"


def test_the_newest_asks_each_head_for_one_that_has_ended(heads: Heads) -> None:
    choose_job(heads.stack, INVENTORY, "newest")
    assert heads.asked == [1]
    heads.jobs = []
    with pytest.raises(InputError, match="job: stack dev has no job; launch one"):
        choose_job(heads.stack, INVENTORY, "newest")


def test_a_job_whose_head_is_silent_or_gone_is_known_by_its_note(
    heads: Heads, capsys: pytest.CaptureFixture[str]
) -> None:
    heads.silent = ("node000001",)
    heads.noted("lost-20260301-090507-1111", "node000001")
    heads.noted("gone-20260301-090507-2222", "node00000z")
    heads.noted("removed-20260301-090507-3333", "node000000")
    (heads.stack.jobs / "torn-20260301-090507-4444.json").write_text("{")
    assert choose_job(heads.stack, INVENTORY, "lost") == "lost-20260301-090507-1111"
    assert "node000001: no answer; a job of which it is the head may be missing" in capsys.readouterr().err
    assert choose_job(heads.stack, INVENTORY, "2222") == "gone-20260301-090507-2222"
    assert choose_job(heads.stack, INVENTORY, "removed") == "removed-20260301-090507-3333"
    with pytest.raises(InputError, match="does not fit any job of stack dev"):
        choose_job(heads.stack, INVENTORY, "torn")


def test_a_job_that_its_head_keeps_back_makes_a_beginning_fit_two(heads: Heads) -> None:
    heads.noted("digits-20260301-100001-07aa", "node000000")
    with pytest.raises(InputError, match="fits 2 jobs: "):
        choose_job(heads.stack, INVENTORY, "digits")


class TestCancelWithoutAJob:
    @pytest.fixture
    def ended(self, heads: Heads, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        done: list[str] = []

        def end(_: Stack, __: Inventory, job: str, ___: object) -> Cancelled:
            done.append(job)
            return Cancelled(job, None, None)

        monkeypatch.setattr(cancel, "open_from", lambda *_: heads.stack)
        monkeypatch.setattr(Stack, "saved", lambda _: INVENTORY)
        monkeypatch.setattr(cancel, "cancel_job", end)
        monkeypatch.setattr(cancel, "find_job", lambda *_: Place(NODES[0], "abc"))
        monkeypatch.setattr("launch.client.query.show_job", lambda *_, **__: REPORT)
        return done

    def test_takes_the_newest_that_has_not_ended(self, heads: Heads) -> None:
        assert newest_job(heads.stack, INVENTORY).job == DIGITS
        heads.jobs = [heads.jobs[0]]
        with pytest.raises(InputError, match="stack dev has no job that runs or waits"):
            newest_job(heads.stack, INVENTORY)

    def test_is_refused_without_a_terminal(
        self, ended: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(output, "ask", lambda _: None)
        with pytest.raises(Exit) as caught:
            cancel.cancel.body(Context(), "newest")
        assert (caught.value.code, ended) == (2, [])
        assert f"give it, as in `fab cancel {DIGITS}`, or --yes for this one" in capsys.readouterr().err

    @pytest.mark.parametrize("answer", [True, False])
    def test_asks_at_a_terminal(
        self,
        ended: list[str],
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        answer: bool,
    ) -> None:
        questions: list[str] = []

        def ask(question: str) -> bool:
            questions.append(question)
            return answer

        monkeypatch.setattr(output, "ask", ask)
        if answer:
            cancel.cancel.body(Context(), "newest")
        else:
            with pytest.raises(Exit):
                cancel.cancel.body(Context(), "newest")
        assert questions == [f"End job {DIGITS}?"]
        shown = f"job {DIGITS} RUNNING, 4 ranks on node[000000-000001]: train.py --name 'a b'\n"
        assert capsys.readouterr().err.startswith(shown)
        assert ended == [DIGITS] * answer

    def test_asks_without_the_command_where_the_head_has_fallen_silent(
        self, ended: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def show_job(*_: object, **__: object) -> None:
            raise NodeUnreachable("node000000", "refused")

        monkeypatch.setattr("launch.client.query.show_job", show_job)
        monkeypatch.setattr(output, "ask", lambda _: True)
        cancel.cancel.body(Context(), "newest")
        assert capsys.readouterr().err == (
            f"the command of job {DIGITS} is unknown: node000000: refused\n"
            f"job {DIGITS} RUNNING, 4 ranks on node[000000-000001]\n"
        )

    def test_asks_nobody_with_yes_or_a_job(self, ended: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(output, "ask", lambda _: pytest.fail("somebody was asked"))
        cancel.cancel.body(Context(), "newest", yes=True)
        cancel.cancel.body(Context(), "0f3a")
        assert ended == [DIGITS, TRAIN]

    @pytest.mark.parametrize("given", [{"job": "digits"}, {"job": "newest", "yes": True}])
    @pytest.mark.parametrize("gap", ["silent", "damaged"])
    def test_ends_none_that_was_not_named_whole_while_another_may_be_meant(
        self,
        ended: list[str],
        heads: Heads,
        capsys: pytest.CaptureFixture[str],
        gap: str,
        given: dict[str, Any],
    ) -> None:
        record = "node000000: the record of job x is damaged: [2].ranks is 'x', not a count"
        heads.silent, heads.damaged = (("node000001",), ()) if gap == "silent" else ((), (record,))
        with pytest.raises(Exit):
            cancel.cancel.body(Context(), **given)
        reason = "node000001: no answer" if gap == "silent" else record
        expected = f"{reason}: another job may be meant; if it is {DIGITS}, give its whole id"
        assert expected in capsys.readouterr().err
        assert ended == []
        cancel.cancel.body(Context(), DIGITS)
        assert ended == [DIGITS]
