"""What `fab replace` says when it ends half-way, and how it goes on from there."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest
from invoke.context import Context
from invoke.exceptions import Exit

from infra.inventory import INVENTORY_FILE, Inventory, Node
from infra.scaling import Use
from launch.errors import RankliftError, RetryError
from playbooks.project import Stack
from playbooks.stack import building, instances, occupancy, readiness, replacing, unfinished


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
        monkeypatch.setattr(Stack, "saved", lambda _: self.inventory(self.saved))
        monkeypatch.setattr(Stack, "outputs", lambda _: Mock())
        monkeypatch.setattr(Stack, "refresh", lambda *_: self.inventory(self.nodes))
        monkeypatch.setattr(instances, "delete", self.delete)
        monkeypatch.setattr(instances, "distrust_copies", lambda *_: None)
        monkeypatch.setattr(instances, "reimage", lambda *_: self.step("reimage"))
        monkeypatch.setattr(unfinished, "mend", lambda *_: None)
        monkeypatch.setattr(occupancy, "uses", lambda _, found: {one.name: Use() for one in found.nodes})
        monkeypatch.setattr(building, "build", self.build)
        monkeypatch.setattr(readiness, "wait_for_nodes", self.wait)

    def inventory(self, nodes: list[Node]) -> Inventory:
        return Inventory("dev", "size", "place", "me", tuple(nodes))

    def step(self, name: str) -> None:
        self.done.append(name)
        if name in self.ends:
            raise self.ends[name]

    def delete(self, _: Stack, __: str, nodes: list[Node], ___: float) -> None:
        self.step(f"delete {nodes[0].instance_id}")
        self.nodes.remove(nodes[0])

    def build(self, _: Stack, __: float, ___: list[str], *, there: Inventory) -> None:
        self.step(f"make beside {len(there.nodes)}")
        self.nodes.append(node(3))

    def wait(self, *_: object) -> Inventory:
        self.step("wait")
        return self.inventory(self.nodes)

    def replace(self, text: str, *, reimage: bool = False) -> None:
        replacing.replace(Context(), text, stack="dev", reimage=reimage)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(tmp_path, monkeypatch)


def test_a_node_is_replaced(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.replace("1")
    assert cluster.done == ["delete 1", "make beside 2", "wait"]
    assert capsys.readouterr().out == "node000001 replaced by node000003\n"


@pytest.mark.parametrize("end", [Exit(code=130), KeyboardInterrupt(), RetryError("No room.")])
def test_what_is_half_done_is_said_and_the_same_command_goes_on(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], end: BaseException
) -> None:
    cluster.ends["make beside 2"] = end
    with pytest.raises(Exit):
        cluster.replace("1")
    assert (
        "node000001 is removed, and the one in its place may not be made yet: `fab up --stack dev` makes it\n"
    ) in capsys.readouterr().err
    cluster.ends.clear()
    cluster.done.clear()
    cluster.replace("1")
    assert cluster.done == ["make beside 2", "wait"]
    told = capsys.readouterr()
    assert told.err.startswith("node000001 is removed already: making the one in its place\n")
    assert told.out == "node000001 replaced by node000003\n"


@pytest.mark.parametrize(
    ("step", "reimage", "said"),
    [
        ("delete 1", False, "may be going, and no other is made yet: `fab replace 1 --stack dev` goes on"),
        ("reimage", True, "may be half installed: `fab replace 1 --stack dev --reimage` begins anew"),
        ("wait", False, "not fit for use yet: `fab wait --stack dev` waits for it"),
    ],
)
def test_ctrl_c_says_what_is_half_done(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], step: str, reimage: bool, said: str
) -> None:
    cluster.ends[step] = KeyboardInterrupt()
    with pytest.raises(Exit):
        cluster.replace("1", reimage=reimage)
    assert capsys.readouterr().err.endswith(f"{said}\ninterrupted\n")


def test_a_node_that_is_going_already_is_not_asked_what_it_does(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(occupancy, "uses", lambda *_: pytest.fail("it was asked"))
    cluster.nodes[1] = node(1, "deleting")
    cluster.replace("1")
    assert cluster.done == ["delete 1", "make beside 2", "wait"]


@pytest.mark.parametrize(
    ("there", "said"),
    [
        (3, "none of that id or name; it has 0 (node000000), 1 (node000001), 2 (node000002)\n"),
        (2, "1 (node000001): 2 of the 3 that are wanted; `fab up --stack dev` makes what"),
    ],
)
def test_a_node_that_never_was_is_refused_and_a_gap_is_named(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], there: int, said: str
) -> None:
    cluster.nodes = cluster.nodes[:there]
    with pytest.raises(Exit) as caught:
        cluster.replace("77")
    assert caught.value.code == 2
    assert said in capsys.readouterr().err.replace("'", "")
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
