"""What `fab replace` says when it ends half-way, and how it goes on from there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import Mock

import pytest
from invoke.context import Context
from invoke.exceptions import Exit

from infra.inventory import INVENTORY_FILE, Inventory, Node
from infra.scale_plan import Use
from launch.errors import RankliftError, RetryError
from playbooks.cli import output
from playbooks.jobs import cancel
from playbooks.nodes import busy, health, push, vm_ops
from playbooks.project import Stack
from playbooks.pulumi import pending, recover
from playbooks.pulumi.locks import InUse
from playbooks.stack import converge, preflight, removal
from playbooks.stack import replace as replacing


def node(number: int, state: str = "running") -> Node:
    return Node(f"node00000{number}", number, "", "", 0, 8, state)


class Cluster:
    """Stack ``dev`` of nodes 0 to 2; ``ends`` is how a step ends, by its name."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (folder / "Pulumi.yaml").write_text("name: ranklift\nruntime: python\n")
        (folder / "Pulumi.dev.yaml").write_text('config:\n  ranklift:nodeCount: "3"\n')
        monkeypatch.setenv("RANKLIFT_PROJECT", str(folder))
        (folder / ".ranklift" / "dev").mkdir(parents=True)
        (folder / ".ranklift" / "dev" / INVENTORY_FILE).touch()
        self.nodes = [node(0), node(1), node(2)]
        self.saved = list(self.nodes)
        self.ends: dict[str, BaseException] = {}
        self.done: list[str] = []
        self.held: list[str] = []
        self.is_locked = False
        self.jobs: list[tuple[str, ...]] = []
        """On node 1, whenever it is asked while its slots are held; before that it has the first of them."""
        self.alone: tuple[str, ...] = ()
        """Of them, those that the node's slots alone name."""
        self.uncollected: tuple[str, ...] = ()
        """Of jobs that have ended, on node 1."""
        self.later: tuple[str, ...] = ()
        """Jobs that end there, uncollected, between the question and the deletion."""
        self.silent: set[str] = set()
        """Nodes that do not answer."""
        self.answers: list[bool | BaseException] = []
        """The user's at the terminal; without one there is no terminal."""
        self.questions: list[str] = []
        self.kept: set[str] = set()
        """Nodes that the last replacement has kept."""
        monkeypatch.setattr(removal, "kept_free", self.kept_free)
        monkeypatch.setattr(cancel, "cancel_job", self.ended)
        monkeypatch.setattr(cancel, "format_cancelled", str)
        monkeypatch.setattr(Stack, "saved", lambda _: self.inventory(self.saved))
        monkeypatch.setattr(Stack, "outputs", lambda _: Mock())
        monkeypatch.setattr(Stack, "state", lambda _: {})
        monkeypatch.setattr(vm_ops, "refresh", lambda *_: self.inventory(self.nodes))
        monkeypatch.setattr(vm_ops, "delete", self.delete)
        monkeypatch.setattr(push, "invalidate_copies", lambda *_: None)
        monkeypatch.setattr(vm_ops, "reimage", lambda *_: self.step("reimage"))
        monkeypatch.setattr(recover, "recover", lambda *_: None)
        monkeypatch.setattr(busy, "uses", self.uses)
        monkeypatch.setattr(converge, "build", self.build)
        monkeypatch.setattr(converge, "pulumi", self.update)
        monkeypatch.setattr(health, "wait_for_nodes", self.wait)
        monkeypatch.setattr(pending, "refuse_replacement", lambda _: self.check("settings"))
        monkeypatch.setattr(preflight, "check_image", lambda _: self.check("image"))
        monkeypatch.setattr(output, "ask", self.ask)

    @contextmanager
    def kept_free(self, _: Stack, __: Inventory, nodes: list[Node], *___: object) -> Iterator[dict[str, str]]:
        self.held.append(nodes[0].name)
        try:
            yield {}
        finally:
            self.held.pop()

    def uses(self, _: Stack, found: Inventory, holder: str = "") -> dict[str, Use]:
        assert bool(self.held) == bool(holder), "a job may come after this"
        there = self.jobs[0] if self.jobs else ()
        if self.held and self.jobs:
            self.jobs.pop(0)
        jobs = {"node000001": there}
        left = {"node000001": (*self.uncollected, *(self.later if self.held else ()))}
        return {
            one.name: Use(unknown="no route to host")
            if one.name in self.silent
            else Use(
                jobs.get(one.name, ()),
                uncollected=left.get(one.name, ()),
                held=self.alone if one.name in jobs else (),
                dead=one.state == "stopped",
            )
            for one in found.nodes
        }

    def ask(self, question: str) -> bool | None:
        assert not self.is_locked, "no command waits for an answer while it holds the stack"
        assert not self.done, "something was changed before the question"
        self.questions.append(question)
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def ended(self, _: Stack, __: Inventory, job: str, ___: object) -> str:
        self.done.append(f"end {job}")
        return job

    def inventory(self, nodes: list[Node]) -> Inventory:
        return Inventory("dev", "size", "place", "me", tuple(nodes))

    def check(self, name: str) -> None:
        assert not any(done.startswith("end ") for done in self.done), "a job was ended before this check"
        if name in self.ends:
            raise self.ends[name]

    def step(self, name: str) -> None:
        self.done.append(name)
        if name in self.ends:
            raise self.ends[name]

    def delete(self, _: Stack, __: str, nodes: list[Node], ___: float) -> None:
        assert self.is_locked, "another command may change the stack"
        assert self.held or nodes[0].state == "deleting", "a job may come to it"
        self.step(f"delete {nodes[0].instance_id}")
        self.nodes.remove(nodes[0])

    def update(
        self, _: Stack, words: list[str], *, limit: float, before: Callable[[], object] | None = None
    ) -> None:
        assert words[:2] == ["up", "--yes"]
        assert before is not None
        if "lock" in self.ends:
            raise self.ends["lock"]
        self.is_locked = True
        before()
        self.is_locked = False
        self.step("update")

    def build(self, _: Stack, __: float, ___: list[str], *, there: Inventory, yes: bool) -> None:
        self.step(f"make beside {len(there.nodes)}")
        self.nodes.append(node(3))

    def wait(self, _: Stack, __: float, *, kept: set[str]) -> Inventory:
        self.step("wait")
        self.kept = kept
        return self.inventory(self.nodes)

    def replace(self, text: str, **options: bool) -> None:
        replacing.replace(Context(), [text], stack="dev", **options)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(tmp_path, monkeypatch)


def test_a_node_is_replaced(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.replace("1")
    assert cluster.done == ["delete 1", "update", "make beside 2", "wait"]
    assert capsys.readouterr().out == "node000001 replaced by node000003\n"
    assert cluster.kept == {"node000000", "node000002"}


@pytest.mark.parametrize(("reimage", "fresh"), [(False, ["node000003"]), (True, [])])
def test_what_was_replaced_is_json_alone(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], reimage: bool, fresh: list[str]
) -> None:
    replacing.replace(Context(), ["node000001"], stack="dev", reimage=reimage, json=True)
    assert json.loads(capsys.readouterr().out) == {"node": "node000001", "replaced_by": fresh}


def test_jobs_that_are_ended_leave_no_room_for_others(cluster: Cluster) -> None:
    cluster.jobs = [("train-1",), ()]
    cluster.replace("1", cancel_jobs=True, yes=True)
    assert cluster.done == ["end train-1", "delete 1", "update", "make beside 2", "wait"]


def test_a_holder_of_slots_that_no_head_knows_is_not_cancelled_and_does_not_keep_its_node(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.alone = ("of-others", "a b")
    cluster.jobs = [("train-1", *cluster.alone), cluster.alone]
    cluster.replace("1", cancel_jobs=True, yes=True)
    assert cluster.done == ["end train-1", "delete 1", "update", "make beside 2", "wait"]
    said = capsys.readouterr().err
    assert "node000001: of-others holds slots, and no head has it there: it is not cancelled" in said


def test_without_cancel_jobs_such_a_holder_is_in_the_way(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.alone, cluster.jobs = ("a b",), [("a b",)]
    with pytest.raises(Exit):
        cluster.replace("1")
    said = capsys.readouterr().err
    assert "it has a b" in said
    assert "fab wait" not in said
    assert cluster.done == []


def test_a_job_that_comes_before_the_slots_are_held_again_is_not_ended(cluster: Cluster) -> None:
    cluster.jobs = [("train-1",), ("train-2",)]
    with pytest.raises(Exit):
        cluster.replace("1", cancel_jobs=True, yes=True)
    assert cluster.done == ["end train-1"]


@pytest.mark.parametrize("end", [Exit(code=130), KeyboardInterrupt(), RetryError("No room.")])
def test_what_is_half_done_is_said_and_the_same_command_goes_on(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], end: BaseException
) -> None:
    cluster.ends["make beside 2"] = end
    with pytest.raises(Exit):
        cluster.replace("1")
    assert (
        "node000001 is removed, and the one in its place may not be created yet: "
        "`fab up --stack dev` creates it\n"
    ) in capsys.readouterr().err
    cluster.ends.clear()
    cluster.done.clear()
    cluster.replace("1")
    assert cluster.done == ["make beside 2", "wait"]
    ran = capsys.readouterr()
    assert ran.err.startswith("node000001 is removed already: creating the one in its place\n")
    assert ran.out == "node000001 replaced by node000003\n"


@pytest.mark.parametrize(
    ("step", "reimage", "output"),
    [
        (
            "delete 1",
            False,
            "may be half removed, and no other is created yet: `fab replace 1 --stack dev` continues",
        ),
        ("reimage", True, "may be half installed: `fab replace 1 --stack dev --reimage` starts again"),
        ("wait", False, "not ready yet: `fab wait --stack dev` waits for it"),
    ],
)
def test_ctrl_c_says_what_is_half_done(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], step: str, reimage: bool, output: str
) -> None:
    cluster.ends[step] = KeyboardInterrupt()
    with pytest.raises(Exit):
        cluster.replace("1", reimage=reimage)
    assert capsys.readouterr().err.endswith(f"{output}\ninterrupted\n")


def test_a_node_that_is_going_already_is_not_asked_what_it_does(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(busy, "uses", lambda *_: pytest.fail("it was asked"))
    cluster.nodes[1] = node(1, "deleting")
    cluster.replace("1")
    assert cluster.done == ["delete 1", "update", "make beside 2", "wait"]


@pytest.mark.parametrize(
    ("there", "output"),
    [
        (3, "node = 77: 77 is not a node of stack dev; known "),
        (2, "reads them from Azure again: 2 of 3 nodes; `fab up --stack dev` creates what"),
    ],
)
def test_a_node_that_never_was_is_refused_and_a_gap_is_named(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], there: int, output: str
) -> None:
    cluster.nodes = cluster.nodes[:there]
    with pytest.raises(Exit) as caught:
        cluster.replace("77")
    assert caught.value.code == 2
    assert output in capsys.readouterr().err.replace("'", "")
    assert cluster.done == []


def test_a_node_that_has_gone_for_good_is_not_made_anew(cluster: Cluster) -> None:
    """Somebody has scaled since: nothing is missing."""
    cluster.saved.append(node(7))
    with pytest.raises(Exit):
        cluster.replace("7")
    assert cluster.done == []


def test_azures_refusal_leaves_all_as_it_was(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.ends["delete 1"] = RankliftError("No right.")
    with pytest.raises(Exit):
        cluster.replace("1")
    assert capsys.readouterr().err == "error: No right.\n"


def test_while_another_update_has_the_lock_no_node_goes_and_no_job_is_ended(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.jobs = [("train-1",), ()]
    cluster.ends["lock"] = InUse("dev", ())
    with pytest.raises(Exit) as caught:
        cluster.replace("1", cancel_jobs=True, yes=True)
    assert caught.value.code == 1
    assert cluster.done == []
    shown = capsys.readouterr().err
    assert "\nerror: stack dev: another command is using it" in shown
    assert "removed" not in shown


def test_where_nodes_came_or_went_before_the_lock_was_had_nothing_is_changed(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refresh(*_: object) -> Inventory:
        return cluster.inventory(cluster.nodes + [node(4), node(5)] * cluster.is_locked)

    monkeypatch.setattr(vm_ops, "refresh", refresh)
    with pytest.raises(Exit):
        cluster.replace("1")
    assert cluster.done == []
    assert "another command changed the number of nodes meanwhile" in capsys.readouterr().err


def test_where_another_command_was_quicker_to_replace_it_nothing_is_changed(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refresh(*_: object) -> Inventory:
        return cluster.inventory([node(0), node(2), node(3)] if cluster.is_locked else cluster.nodes)

    monkeypatch.setattr(vm_ops, "refresh", refresh)
    with pytest.raises(Exit):
        cluster.replace("1")
    assert cluster.done == []
    assert "node000001 is not replaced: another command removed it meanwhile; " in capsys.readouterr().err


def test_what_the_update_after_the_removal_fails_at_does_not_hide_that_the_node_is_gone(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.ends["update"] = Exit(code=130)
    with pytest.raises(Exit):
        cluster.replace("1")
    assert "node000001 is removed, and the one in its place may not be created yet" in capsys.readouterr().err
    cluster.ends.clear()
    cluster.replace("1")
    assert cluster.done == ["delete 1", "update", "make beside 2", "wait"]


@pytest.mark.parametrize("check", ["settings", "image"])
def test_nothing_is_removed_where_the_update_would_replace_all_nodes_or_make_none(
    cluster: Cluster, check: str
) -> None:
    cluster.ends[check] = RetryError("nothing was changed")
    with pytest.raises(Exit):
        cluster.replace("1")
    assert cluster.done == []
