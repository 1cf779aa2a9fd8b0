"""What ``fab cancel`` reports."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from invoke.context import Context
from invoke.exceptions import Exit

from infra.inventory import Inventory
from launch.client import cancel as launch_ending
from launch.client.cancel import Ending, SupervisorTimeout, Swept
from launch.client.events import JobState
from launch.errors import (
    GiveUpError,
    HostKeyChanged,
    InputError,
    NodeUnreachable,
    NoSuchJob,
    NotPushed,
    RankliftError,
    StepTimeout,
)
from playbooks.jobs import cancel as ending
from playbooks.jobs import handle, location
from playbooks.jobs.cancel import Cancelled, cancel_job, format_cancelled
from playbooks.jobs.location import Place
from playbooks.project import Stack
from tests.playbooks.jobs.test_tables import state
from tests.playbooks.server import make_key, save_stack


def cancelled(before: str | None, now: JobState | None, **swept: Swept | Exception) -> str:
    return format_cancelled(Cancelled("t-1", now, before, swept))


GONE = NodeUnreachable("node000001", "refused")


@pytest.mark.parametrize(
    ("before", "now", "swept", "text"),
    [
        (
            "QUEUED",
            state("t-1", "CANCELLED", started=None),
            {},
            "job t-1 CANCELLED: it was waiting, nothing was started",
        ),
        ("RUNNING", state("t-1", "CANCELLED"), {}, "job t-1 CANCELLED: all its processes ended on 2 nodes"),
        (
            "STARTING",
            state("t-1", "CANCELLED", nodes=("node000000",)),
            {},
            "job t-1 CANCELLED: all its processes ended on node000000",
        ),
        ("RUNNING", state("t-1", "SUCCEEDED"), {}, "job t-1 ended before it could be cancelled: SUCCEEDED"),
        ("FAILED", state("t-1", "FAILED"), {}, "job t-1 had ended before: FAILED"),
        ("CANCELLED", state("t-1", "CANCELLED"), {}, "job t-1 had ended before: CANCELLED"),
        (
            "RUNNING",
            state("t-1", "CANCELLED"),
            {"node000001": GONE},
            "job t-1 CANCELLED: all its processes ended on node000000",
        ),
        (
            "RUNNING",
            state("t-1", "CANCELLED", nodes=("node000001",)),
            {"node000001": Swept(1, ())},
            "job t-1 CANCELLED: its head has lost every node\n  node000001: 1 process ended",
        ),
        (
            "LOST",
            state("t-1", "LOST"),
            {"node000000": Swept(2, ()), "node000001": Swept(2, ())},
            "job t-1 had ended before: LOST\n  node[000000-000001]: 2 processes ended",
        ),
        (
            "LOST",
            state("t-1", "LOST"),
            {"node000000": Swept(0, ()), "node000001": Swept(1, ())},
            "job t-1 had ended before: LOST\n"
            "  node000000: no process was left\n"
            "  node000001: 1 process ended",
        ),
        (
            None,
            None,
            {"node000000": Swept(1, (7, 9)), "node000001": GONE},
            "job t-1: state unknown\n  node000000: SIGKILL did not end 7, 9: restart the node",
        ),
    ],
)
def test_each_way_it_can_go_has_its_words(
    before: str | None, now: JobState | None, swept: dict[str, Swept | Exception], text: str
) -> None:
    assert cancelled(before, now, **swept) == text


def test_the_end_of_an_upload_is_reported() -> None:
    done = Cancelled("t-1", state("t-1", "CANCELLED"), "CANCELLED", upload_ended=True)
    text = "job t-1 had ended before: CANCELLED; its upload was ended, `fab upload` goes on"
    assert format_cancelled(done) == text


class Sealed:
    """Says how a head and the nodes answer, and runs ``fab cancel t-1`` over them."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        key = make_key(folder / "key")
        self.stack = Stack("dev", folder, {})
        self.inventory = save_stack(self.stack.folder, {0: 1, 3: 2}, key, key)
        self._monkeypatch = monkeypatch
        monkeypatch.setattr(ending, "open_from", lambda *_: self.stack)
        monkeypatch.setattr(handle, "choose_job", lambda *_, **__: "t-1")
        monkeypatch.setattr(ending, "find_job", lambda *_: Place(self.inventory.nodes[0], "abc"))
        self.nodes_find({})

    def head_says(self, answer: Callable[[], Ending]) -> None:
        self._monkeypatch.setattr(launch_ending, "end_job", lambda *_, **__: answer())

    def head_fails(self, error: Exception) -> None:
        def fail() -> Ending:
            raise error

        self.head_says(fail)

    def nodes_find(self, found: dict[str, Swept | Exception]) -> None:
        def sweep(_: object, __: Inventory, names: Any, *___: object) -> dict[str, Swept | Exception]:
            return {name: found.get(name, Swept(0, ())) for name in names}

        self._monkeypatch.setattr(ending, "_sweep", sweep)

    def cancel(self) -> int:
        try:
            ending.cancel.body(Context(), "t-1")
        except Exit as end:
            return end.code
        return 0


@pytest.fixture
def sealed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sealed:
    return Sealed(tmp_path, monkeypatch)


def test_a_supervisor_that_does_not_react_is_ended_once_nothing_of_the_job_is_left(
    sealed: Sealed, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = replace(
        state("t-1", "LOST"), reason="the job's supervisor did not react to the cancel and was ended"
    )
    monkeypatch.setattr(launch_ending, "end_supervisor", lambda *_, **__: lost)
    sealed.head_fails(SupervisorTimeout("node000000", "t-1", 4242, 33.2))
    sealed.nodes_find({"node000000": Swept(2, ())})
    assert sealed.cancel() == 0
    assert capsys.readouterr().out == (
        "job t-1 LOST: the job's supervisor did not react to the cancel and was ended\n"
        "  node000000: 2 processes ended\n  node000003: no process was left\n"
    )


def test_a_supervisor_that_does_not_react_is_ended_also_while_a_node_is_dead(
    sealed: Sealed, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch_ending, "end_supervisor", lambda *_, **__: state("t-1", "LOST"))
    sealed.head_fails(SupervisorTimeout("node000000", "t-1", 4242, 33.2))
    sealed.nodes_find({"node000000": Swept(2, ()), "node000003": NodeUnreachable("node000003", "refused")})
    assert sealed.cancel() == 1
    printed = capsys.readouterr()
    assert printed.out.startswith("job t-1 LOST: ")
    assert "node000000: 2 processes ended" in printed.out
    assert "refused" in printed.err
    assert "does not react" not in printed.err
    assert "what runs there ends by itself within 30 s of losing its head\n" in printed.err


def test_a_supervisor_that_does_not_react_is_named_with_what_to_do(
    sealed: Sealed, capsys: pytest.CaptureFixture[str]
) -> None:
    sealed.head_fails(SupervisorTimeout("node000000", "t-1", 4242, 33.2))
    sealed.nodes_find({"node000000": Swept(2, ()), "node000003": Swept(0, (7,))})
    assert sealed.cancel() == 1
    printed = capsys.readouterr()
    assert printed.out == (
        "job t-1: still runs\n  node000000: 2 processes ended\n"
        "  node000003: SIGKILL did not end 7: restart the node\n"
    )
    assert printed.err == (
        "job t-1 cannot be ended by its head; contacting every node directly\n"
        "error: the supervisor, process 4242 on node000000, does not react: job t-1 was cancelled 33 s "
        'ago and still runs; `fab exec "kill -9 4242" --nodes 0`, then cancel again\n'
    )


def test_a_head_that_is_too_slow_leaves_it_open_and_that_is_no_success(
    sealed: Sealed, capsys: pytest.CaptureFixture[str]
) -> None:
    sealed.head_fails(StepTimeout("node000000", "python3", 45.0))
    assert sealed.cancel() == 1
    assert "error: node000000 did not answer within 45 s; cancel again\n" in capsys.readouterr().err


def test_the_head_is_spoken_of_where_it_is_the_one_that_is_silent(
    sealed: Sealed, capsys: pytest.CaptureFixture[str]
) -> None:
    sealed.head_fails(NodeUnreachable("node000000", "refused"))
    assert sealed.cancel() == 1
    assert "within 30 s of losing its head; if the head lives" in capsys.readouterr().err
    cancelled = state("t-1", "CANCELLED", nodes=("node000000", "node000003"))
    sealed.head_says(lambda: Ending(cancelled, "RUNNING", ("node000003",), 3.0))
    sealed.nodes_find({"node000003": NodeUnreachable("node000003", "refused")})
    assert sealed.cancel() == 1
    err = capsys.readouterr().err
    assert "what runs there ends by itself within 30 s of losing its head\n" in err
    assert "if the head lives" not in err


def test_a_head_that_was_made_anew_is_asked_like_every_node(
    sealed: Sealed, capsys: pytest.CaptureFixture[str]
) -> None:
    sealed.head_fails(NotPushed("node000000", "the node was reimaged"))
    sealed.nodes_find({"node000003": Swept(2, ())})
    assert sealed.cancel() == 0
    printed = capsys.readouterr()
    assert printed.out == (
        "job t-1: state unknown\n  node000000: no process was left\n  node000003: 2 processes ended\n"
    )
    assert printed.err == (
        "node000000: the node was reimaged\n"
        "job t-1 cannot be ended by its head; contacting every node directly\n"
    )


@pytest.fixture
def signals() -> Iterator[None]:
    """What a command that was interrupted leaves to the system, the tests that follow get back."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("signals")
def test_ctrl_c_leaves_the_cancel_to_the_head(sealed: Sealed, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> Ending:
        signal.raise_signal(signal.SIGINT)
        raise AssertionError

    sealed.head_says(interrupted)
    assert sealed.cancel() == 130
    assert "once its head has the cancel, it continues: `fab job t-1`" in capsys.readouterr().err


@pytest.mark.parametrize(
    "error",
    [
        GiveUpError("node000000: its answer cannot be decoded"),
        GiveUpError("node000000: exit status 1"),
        InputError("job", "t-1", "what a head says of it", "see `fab jobs`"),
        HostKeyChanged("node000000", "shows another key"),
    ],
)
@pytest.mark.parametrize("sought", [False, True])
def test_a_head_whose_answer_is_of_no_use_keeps_no_job_running(
    sealed: Sealed,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    error: RankliftError,
    sought: bool,
) -> None:
    if sought and isinstance(error, GiveUpError):  # in the search for the job's head already

        def find(*_: object) -> Place:
            raise error

        monkeypatch.setattr(ending, "find_job", find)
    sealed.head_fails(error)
    sealed.nodes_find({"node000003": Swept(2, ())})
    assert sealed.cancel() == 1
    printed = capsys.readouterr()
    assert "node000003: 2 processes ended\n" in printed.out
    assert printed.out.startswith("job t-1: state unknown\n")
    assert str(error).partition(": ")[2] in printed.err


def test_an_id_that_is_none_reaches_no_node(sealed: Sealed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "find_job", location.find_job)
    monkeypatch.setattr(ending, "_sweep", None)
    with pytest.raises(InputError, match="is not a job's id"):
        cancel_job(sealed.stack, sealed.inventory, "../x", None)


def test_a_supervisor_whose_end_cannot_be_told_is_reported(
    sealed: Sealed, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def garbage(*_: object, **__: object) -> JobState:
        raise GiveUpError("node000000: its answer cannot be decoded")

    monkeypatch.setattr(launch_ending, "end_supervisor", garbage)
    sealed.head_fails(SupervisorTimeout("node000000", "t-1", 4242, 33.2))
    sealed.nodes_find({"node000003": Swept(2, ())})
    assert sealed.cancel() == 1
    printed = capsys.readouterr()
    assert "node000003: 2 processes ended" in printed.out
    assert "does not react" in printed.err


class TestAJobWithoutRecords:
    GONE = NoSuchJob("t-1", "no job t-1 on this head: it never existed, or its records were removed")

    def test_whose_head_is_known_is_ended_on_every_node(
        self, sealed: Sealed, capsys: pytest.CaptureFixture[str]
    ) -> None:
        sealed.head_fails(self.GONE)
        sealed.nodes_find({"node000003": Swept(2, ())})
        assert sealed.cancel() == 0
        shown = capsys.readouterr()
        assert "its records were removed" in shown.err
        assert shown.out == (
            "job t-1: state unknown\n  node000000: no process was left\n  node000003: 2 processes ended\n"
        )

    def test_whose_head_is_not_known_is_ended_where_it_runs(
        self, sealed: Sealed, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(ending, "find_job", self.fail)
        sealed.nodes_find({"node000003": Swept(1, ())})
        assert sealed.cancel() == 0
        assert "node000003: 1 process ended" in capsys.readouterr().out

    def test_and_without_processes_is_none(self, sealed: Sealed, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ending, "find_job", self.fail)
        with pytest.raises(
            InputError, match=r"removed, and no process of it runs on any of 2 nodes; see `fab j"
        ):
            cancel_job(sealed.stack, sealed.inventory, "t-1", None)

    def test_is_not_said_to_be_none_while_a_node_does_not_answer(
        self, sealed: Sealed, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(ending, "find_job", self.fail)
        sealed.nodes_find({"node000003": NodeUnreachable("node000003", "refused")})
        assert sealed.cancel() == 1
        assert "ending job t-1 failed on 1 of 2 nodes" in capsys.readouterr().err

    def fail(self, *_: object) -> Place:
        raise self.GONE
