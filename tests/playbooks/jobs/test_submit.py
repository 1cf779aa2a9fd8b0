"""What is noted of a job here while it is handed over, and what later commands make of it."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from invoke.exceptions import Exit

from infra.inventory import Inventory
from launch.client import submit
from launch.client.events import StateChange
from launch.errors import GiveUpError, InputError, ManyNodesError, MissingTool, NodeUnreachable, NotPushed
from launch.host import Completed
from launch.remote.base.phase_records import Phase
from playbooks.cli import output
from playbooks.jobs import submit as handover
from playbooks.jobs.location import Place, find_job
from playbooks.jobs.submit import Handling, Load, hand_over
from playbooks.project import Stack
from playbooks.ssh import connection
from playbooks.start import OutputFailed
from tests.playbooks.jobs.test_tables import state
from tests.playbooks.server import make_key, save_stack


@dataclass(frozen=True)
class Planned:
    """The part of a plan that a hand-over reads."""

    id: str = "t-1"
    remote: str = ".ranklift/remote/abc"
    spec: object = field(
        default_factory=lambda: SimpleNamespace(
            environment=None, runtime="bare", hang_after_s=None, identity=False
        )
    )
    py_spy: str = ""
    stages: tuple[Phase, ...] = ()
    snapshots: tuple[str, ...] = ()
    nodes: tuple[Any, ...] = ()
    identity: str = ""


PLANNED = cast("Any", Planned())
LOAD = Load(cast("Any", SimpleNamespace(id="5", entries=(), notice=None)))


class Desk:
    """A stack of two nodes, of which the head answers as a test says."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        key = make_key(folder / "key")
        self.stack = Stack("dev", folder, {})
        self.inventory: Inventory = save_stack(self.stack.folder, {0: 1, 3: 2}, key, key)
        self._monkeypatch = monkeypatch

    def note(self) -> dict[str, object] | None:
        path = self.stack.jobs / "t-1.json"
        return json.loads(path.read_text()) if path.exists() else None

    def submits(self, answer: Callable[..., object]) -> None:
        self._monkeypatch.setattr(submit, "submit", answer)
        self._monkeypatch.setattr(submit, "submit_and_follow", answer)

    def pushes(self, answer: Callable[..., object]) -> None:
        self._monkeypatch.setattr(handover, "_push", answer)

    def launch(self, *, detach: bool = True) -> None:
        handling = Handling(detach, json=False, dry_run=False)
        hand_over(self.stack, self.inventory, self.inventory.nodes, PLANNED, LOAD, handling)

    def head_has(self, answer: bytes | Exception, *, others: bytes = b"") -> None:
        def run(host: connection.SshHost, *_: object, **__: object) -> Completed:
            if isinstance(answer, Exception):
                raise answer
            if host.name != "node000000":
                return Completed(0 if others else 1, others, b"")
            return Completed(0 if answer else 1, answer, b"")

        self._monkeypatch.setattr(connection.SshHost, "run", run)

    def find(self) -> Place:
        return find_job(self.stack, self.inventory, "t-1")


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    return Desk(tmp_path, monkeypatch)


def lacking(*_: object) -> None:
    raise NotPushed("node000000", "push first")


@pytest.mark.parametrize("how", [ManyNodesError("push", {"node000000": OSError()}), KeyboardInterrupt()])
def test_a_push_that_fails_or_is_interrupted_leaves_no_note(desk: Desk, how: BaseException) -> None:
    desk.submits(lacking)

    def push(*_: object) -> None:
        raise how

    desk.pushes(push)
    with pytest.raises(type(how)):
        desk.launch()
    assert desk.note() is None


def test_a_head_that_took_the_job_is_noted(desk: Desk) -> None:
    desk.submits(lambda *_: None)
    desk.launch()
    assert desk.note() == {"head": "node000000", "remote": "abc"}


def test_a_push_before_the_job_is_one_of_its_stages(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    refusals, plans = [NotPushed("node000000", "push first")], list[Planned]()
    pushed = SimpleNamespace(bytes_sent=1234, snapshot="5", seconds=0.0)

    def submit_or_refuse(planned: Planned, *_: object) -> None:
        plans.append(planned)
        if refusals:
            raise refusals.pop()

    desk.submits(submit_or_refuse)
    monkeypatch.setattr(handover, "push_to", lambda *_: pushed)
    desk.launch()
    first, second = plans
    assert first.stages == ()
    (stage,) = second.stages
    assert (stage["phase"], stage["bytes"], stage["verdict"]) == ("stage-code", 1234, "")
    assert stage["start"] <= stage["end"] <= 0


def test_a_job_with_the_identity_is_signed_for_the_nodes_of_its_plan_and_another_is_not(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = list[Planned]()
    desk.submits(lambda planned, *_: plans.append(planned))
    desk.launch()
    assert plans.pop().identity == ""
    nodes = tuple(SimpleNamespace(node=SimpleNamespace(name=name)) for name in ("node000003", "node000000"))
    spec = SimpleNamespace(**{**vars(PLANNED.spec), "identity": True})
    monkeypatch.setattr(sys.modules[__name__], "PLANNED", Planned(spec=spec, nodes=nodes))
    desk.launch()
    (planned,) = plans
    assert planned.identity.startswith(
        "identity t-1\nnode000003\nnode000000\n-----BEGIN SSH SIGNATURE-----\n"
    )


def test_a_job_with_the_identity_that_cannot_be_signed_reaches_no_head(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = list[Planned]()
    desk.submits(lambda planned, *_: plans.append(planned))
    spec = SimpleNamespace(**{**vars(PLANNED.spec), "identity": True})
    monkeypatch.setattr(sys.modules[__name__], "PLANNED", Planned(spec=spec))
    monkeypatch.setenv("PATH", str(desk.stack.folder))
    with pytest.raises(MissingTool, match="ssh-keygen"):
        desk.launch()
    assert plans == []


def test_a_head_that_shows_the_job_has_taken_it_although_it_is_lost_later(desk: Desk) -> None:
    def shows(_: object, __: object, on_event: Callable[[StateChange], None]) -> None:
        on_event(StateChange(state("t-1", "QUEUED")))
        raise NodeUnreachable("node000000", "gone")

    desk.submits(shows)
    with pytest.raises(NodeUnreachable):
        desk.launch(detach=False)
    assert desk.note() == {"head": "node000000", "remote": "abc"}


class TestCutShort:
    """The connection broke while the job was handed over: it may be there or not."""

    @pytest.fixture(autouse=True)
    def _cut(self, desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
        def cut(*_: object) -> None:
            raise NodeUnreachable("node000000", "refused")

        desk.submits(cut)
        with pytest.raises((NodeUnreachable, Exit)):
            desk.launch()
        assert "job t-1 was being submitted: `fab job t-1` shows whether" in capsys.readouterr().err

    def test_one_that_never_reached_its_head_is_said_to_be_nowhere(self, desk: Desk) -> None:
        desk.head_has(b"")
        with pytest.raises(
            InputError, match="never reached its head node000000: nothing was started"
        ) as printed:
            desk.find()
        assert "/" not in str(printed.value)

    def test_one_that_did_is_found_and_not_asked_after_again(self, desk: Desk) -> None:
        desk.head_has(b"{}")
        found = desk.find()
        desk.head_has(AssertionError())
        assert desk.find() == found == Place(desk.inventory.nodes[0], "abc")

    def test_of_a_silent_head_whoever_wants_the_job_will_hear(self, desk: Desk) -> None:
        desk.head_has(NodeUnreachable("node000000", "refused"))
        assert desk.find() == Place(desk.inventory.nodes[0], "abc")


def test_a_job_that_two_nodes_claim_is_found_on_neither(desk: Desk) -> None:
    plan = b'{"version": 1, "nodes": [], "remote": ".ranklift/remote/abc"}'
    desk.head_has(plan, others=plan)
    with pytest.raises(
        GiveUpError, match=r"^job t-1 has a job.json on node\[000000,000003\], and a job has one"
    ):
        desk.find()
    assert desk.note() is None


@pytest.mark.parametrize("text", ["", '{"head": "node0', "[]", '{"head": "node000000"}'])
def test_a_note_that_a_full_disk_cut_short_is_none(desk: Desk, text: str) -> None:
    desk.submits(lambda *_: None)
    desk.launch()
    (desk.stack.jobs / "t-1.json").write_text(text)
    desk.head_has(b'{"version": 1, "nodes": [], "remote": ".ranklift/remote/abc"}')
    assert desk.find() == Place(desk.inventory.nodes[0], "abc")
    assert desk.note() == {"head": "node000000", "remote": "abc"}


def test_a_job_whose_place_cannot_be_noted_is_launched_all_the_same(desk: Desk) -> None:
    launched: list[object] = []
    desk.submits(lambda *_: launched.append(1))
    desk.stack.jobs.write_text("no folder")
    desk.launch()
    assert launched == [1]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EPIPE])
@pytest.mark.parametrize(("now", "words"), [("RUNNING", "continues\n"), ("FAILED", "has ended: see")])
def test_a_stdout_that_cannot_be_written_ends_the_command_with_how_to_go_on(
    desk: Desk,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    number: int,
    now: str,
    words: str,
) -> None:
    def follow(_planned: object, _host: object, on_event: Callable[[Any], None], *_: object) -> None:
        on_event(StateChange(state("t-1", now)))
        output.result("a line of a rank")

    def fail(*_: object) -> None:
        raise OutputFailed(OSError(number, os.strerror(number)))

    desk.submits(follow)
    monkeypatch.setattr(output, "result", fail)
    with pytest.raises(OutputFailed):
        desk.launch(detach=False)
    shown = capsys.readouterr().err
    assert f"job t-1 {words}" in shown
    assert ("  cancel: fab cancel t-1 --stack dev\n" in shown) == (now == "RUNNING")


def test_a_job_whose_id_cannot_be_written_is_named_with_the_error(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise OutputFailed(OSError(errno.ENOSPC, "full"))

    desk.submits(lambda *_: None)
    monkeypatch.setattr(output, "result", fail)
    with pytest.raises(OutputFailed):
        desk.launch()
    assert "job t-1 continues\n  follow: fab logs -f t-1 --stack dev\n" in capsys.readouterr().err
