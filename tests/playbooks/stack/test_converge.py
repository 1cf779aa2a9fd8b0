"""How many nodes a stack's configuration asks for, and how those that are too many go."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import Mock

import pytest

from infra.inventory import Inventory, Node
from infra.scale_plan import Use
from launch.errors import RetryError
from playbooks.nodes import vm_ops
from playbooks.project import Stack
from playbooks.stack import converge
from playbooks.stack.converge import shrink, wanted_of


@pytest.mark.parametrize(
    ("text", "nodes"), [("2", 2), ('" 2 "', 2), ('"+3"', 3), ("x", None), ('"\uff12"', None)]
)
def test_what_the_program_takes_for_a_number_is_one_here_too(
    tmp_path: Path, text: str, nodes: int | None
) -> None:
    (tmp_path / "Pulumi.dev.yaml").write_text(f"config:\n  ranklift:nodeCount: {text}\n")
    assert wanted_of(Stack("dev", tmp_path, {})) == nodes


def test_a_stack_without_a_configuration_asks_for_nothing(tmp_path: Path) -> None:
    assert wanted_of(Stack("dev", tmp_path, {})) is None


class Cluster:
    """Stack ``dev`` of idle nodes 0 to 3, but for ``jobs``; ``quicker`` come when nodes are held."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.jobs: dict[str, tuple[str, ...]] = {}
        self.quicker: dict[str, tuple[str, ...]] = {}
        self.failed: dict[str, str] = {}
        self.held: tuple[str, ...] = ()
        self.done: list[str] = []
        self.nodes = tuple(Node(f"n{i}", i, "", "", 0, 8, "running") for i in range(4))
        monkeypatch.setattr(Stack, "outputs", lambda _: Mock())
        monkeypatch.setattr(vm_ops, "refresh", lambda *_: Inventory("dev", "size", "place", "me", self.nodes))
        monkeypatch.setattr(converge, "uses", self.uses)
        monkeypatch.setattr(converge, "kept_free", self.kept_free)
        monkeypatch.setattr(vm_ops, "delete", self.delete)

    def uses(self, _: Stack, inventory: Inventory, holder: str) -> dict[str, Use]:
        return {node.name: Use(self.jobs.get(node.name, ())) for node in inventory.nodes}

    @contextmanager
    def kept_free(
        self, _: Stack, __: Inventory, nodes: Sequence[Node], holder: str, ___: float
    ) -> Iterator[dict[str, str]]:
        assert holder.startswith("`fab scale 3` of ")
        self.held = tuple(node.name for node in nodes)
        self.done.append(f"hold {' '.join(self.held)}")
        self.jobs.update({name: self.quicker.pop(name) for name in self.held if name in self.quicker})
        try:
            yield self.failed
        finally:
            self.held = ()

    def delete(self, _: Stack, __: str, nodes: Sequence[Node], ___: float) -> None:
        assert self.held == tuple(node.name for node in nodes), "a job may come to them"
        self.done.append(f"delete {' '.join(self.held)}")

    def shrink(self) -> None:
        shrink(Stack("dev", Path(), {}), 3, time.monotonic() + 60, "fab scale 3")


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(monkeypatch)


def test_nodes_are_held_before_they_are_asked_and_until_they_are_gone(cluster: Cluster) -> None:
    cluster.shrink()
    assert cluster.done == ["hold n3", "delete n3"]


def test_where_a_job_was_quicker_another_idle_node_goes(cluster: Cluster) -> None:
    cluster.quicker = {"n3": ("train-1",)}
    cluster.shrink()
    assert cluster.done == ["hold n3", "hold n2", "delete n2"]


def test_where_jobs_were_quicker_everywhere_no_node_goes(cluster: Cluster) -> None:
    cluster.jobs = {"n0": ("a",), "n1": ("b",), "n2": ("c",)}
    cluster.quicker = {"n3": ("train-1",)}
    with pytest.raises(RetryError, match="n3: it has train-1"):
        cluster.shrink()
    assert cluster.done == ["hold n3"]


def test_a_node_that_jobs_cannot_be_kept_off_does_not_go(cluster: Cluster) -> None:
    cluster.failed = {"n3": "no route to host"}
    with pytest.raises(RetryError, match="nothing was changed: n3: no route to host"):
        cluster.shrink()
    assert cluster.done == ["hold n3"]
