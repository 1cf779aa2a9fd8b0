"""With `--on-unhealthy replace`, nodes at which a look finds errors are replaced before the job, once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from infra.inventory import Inventory, Node
from infra.scale_plan import Use
from launch.errors import InputError, RetryError
from launch.remote.base.health_records import HealthMode
from playbooks.check.on_unhealthy import on_unhealthy_flag, with_healthy_nodes
from playbooks.nodes import busy, sick
from playbooks.nodes.sick import Sick
from playbooks.project import Stack
from playbooks.stack import replacement
from tests.playbooks.nodes.test_sick import finding


def node(number: int) -> Node:
    return Node(f"node00000{number}", number, "", "", 0, 8, "running")


class Cluster:
    """Nodes 0 to 3, of which some are unhealthy; a new node has the next id."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, unhealthy: tuple[int, ...]) -> None:
        self.nodes, self.unhealthy = [node(n) for n in range(4)], unhealthy
        self.env: Mapping[str, str] = {}
        self.replaced: list[str] = []
        self.rules: Sequence[str] = ()
        self.uses_of: dict[str, Use] = {}
        self.health: HealthMode = "strict"
        self.stack = Stack("dev", Path("/nowhere"), {})
        monkeypatch.setattr(Stack, "saved", lambda _: self.inventory)
        monkeypatch.setattr(sick, "examine", self.examine)
        monkeypatch.setattr(busy, "uses", self.uses)
        monkeypatch.setattr(replacement, "replace_node", self.replace)

    @property
    def inventory(self) -> Inventory:
        return Inventory("dev", "size", "place", "me", tuple(self.nodes))

    def examine(
        self, _: Stack, __: Inventory, nodes: Sequence[Node], ___: Any, env: Mapping[str, str]
    ) -> Any:
        self.env = env
        return [
            Sick(one, ("slow",), tuple(finding(rule=rule) for rule in self.rules))
            for one in nodes
            if one.instance_id in self.unhealthy
        ], {}

    def uses(self, *_: object) -> dict[str, Use]:
        return {one.name: self.uses_of.get(one.name, Use(())) for one in self.nodes}

    def replace(self, _: Stack, name: str) -> list[str]:
        self.replaced.append(name)
        self.nodes = [one for one in self.nodes if one.name != name]
        self.nodes.append(node(3 + len(self.replaced)))
        return [self.nodes[-1].name]

    def chosen(self, *ids: int, dry_run: bool = False) -> tuple[list[int], Sequence[str]]:
        wanted = [one for one in self.nodes if one.instance_id in ids]
        env = {"NCCL_DEBUG": "INFO"}
        found, nodes, notices = with_healthy_nodes(
            self.stack, self.inventory, wanted, env, self.health, dry_run=dry_run
        )
        assert set(nodes) <= set(found.nodes)
        return [one.instance_id for one in nodes], notices


def test_unhealthy_nodes_are_replaced_and_the_job_gets_the_new_ones(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = Cluster(monkeypatch, (0, 2))
    assert cluster.chosen(0, 1, 2) == ([1, 4, 5], ())
    assert cluster.replaced == ["node000000", "node000002"]
    assert cluster.env == {"NCCL_DEBUG": "INFO"}
    assert capsys.readouterr().err.splitlines() == [
        "node000000 is replaced before the job: slow",
        "node000000 replaced by node000004",
        "node000002 is replaced before the job: slow",
        "node000002 replaced by node000005",
    ]


def test_a_new_node_is_not_replaced_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, (3, 4))
    assert cluster.chosen(0, 3) == ([0, 4], ())
    assert cluster.replaced == ["node000003"]


def test_no_node_is_replaced_for_what_all_have_in_common(monkeypatch: pytest.MonkeyPatch) -> None:
    """An image without a driver, or a look that fails on it: every launch would pay for new nodes."""
    cluster = Cluster(monkeypatch, (0, 1))
    cluster.rules = ("gpu-driver", "memory")
    ids, (notice,) = cluster.chosen(0, 1)
    assert (ids, cluster.replaced) == ([0, 1], [])
    assert notice.startswith("no node is replaced: all 2 break gpu-driver, memory, as new ones")


def test_the_only_node_of_a_job_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, (0, 1))
    cluster.rules = ("gpu-driver",)
    assert cluster.chosen(1) == ([4], ())


def test_nodes_that_the_job_does_not_get_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, ())
    assert cluster.chosen(0, 1) == ([0, 1], ())
    assert cluster.replaced == []


def test_a_node_that_cannot_be_replaced_ends_the_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, (1,))

    def busy(*_: object) -> list[str]:
        raise RetryError("node000001 is not replaced: it has train-1")

    monkeypatch.setattr(replacement, "replace_node", busy)
    with pytest.raises(RetryError, match="it has train-1"):
        cluster.chosen(0, 1)


def test_a_dry_run_looks_at_no_node(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, (1,))
    monkeypatch.setattr(sick, "examine", lambda *_: pytest.fail("a node was looked at"))
    ids, notices = cluster.chosen(0, 1, dry_run=True)
    assert ids == [0, 1]
    assert list(notices) == ["a launch looks at the nodes first, and replaces those with errors"]


def test_another_word_is_refused() -> None:
    with pytest.raises(InputError, match="--on-unhealthy = 'drain': is not known; give refuse or replace"):
        on_unhealthy_flag("drain")


def test_a_node_with_files_that_nobody_has_collected_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, unhealthy=(1,))
    cluster.uses_of = {"node000001": Use((), uncollected=("train-1", "train-2"))}
    with pytest.raises(
        InputError, match=r"has files of 2 jobs, not collected; `fab collect train-1`, or .* 1`"
    ):
        cluster.chosen(0, 1)
    assert cluster.replaced == []


def test_a_node_with_files_in_working_folders_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, unhealthy=(1,))
    cluster.uses_of = {"node000001": Use((), left=(("train-1", "1 file"),))}
    remedy = r"what train-1 left in its working folder: 1 file; `fab collect train-1 --work`, or .* 1`"
    with pytest.raises(InputError, match=remedy):
        cluster.chosen(0, 1)
    assert cluster.replaced == []


def test_a_node_is_not_replaced_where_what_is_lost_with_it_is_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Jobs of a head that does not answer may have results on it, and nobody is there to be asked."""
    cluster = Cluster(monkeypatch, unhealthy=(1,))
    cluster.uses_of = {"node000003": Use(unknown="no route to host")}
    why = (
        "unknown: node000003: no route to host; its jobs may have results on node000001; `fab replace 1` asks"
    )
    with pytest.raises(InputError, match=why):
        cluster.chosen(0, 1)
    assert cluster.replaced == []


def test_records_that_go_with_a_node_are_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = Cluster(monkeypatch, unhealthy=(1,))
    cluster.uses_of = {"node000001": Use(records=3)}
    cluster.chosen(0, 1)
    assert cluster.replaced == ["node000001"]
    assert "node000001 loses its records of 3 jobs that have ended\n" in capsys.readouterr().err


@pytest.mark.parametrize("drained", [1, 2])
def test_no_node_is_replaced_for_a_job_that_has_a_drained_one(
    monkeypatch: pytest.MonkeyPatch, drained: int
) -> None:
    """It may be drained to be examined, and a job on it is refused in any case."""
    cluster = Cluster(monkeypatch, unhealthy=(1, 2))
    cluster.uses_of = {f"node00000{drained}": Use((), drain="drained 2026-11-23 by ann")}
    remedy = f"is drained 2026-11-23 by ann; no node is replaced; `fab undrain {drained}`, or choose others"
    with pytest.raises(InputError, match=remedy):
        cluster.chosen(0, 1, 2)
    assert cluster.replaced == []


@pytest.mark.parametrize(
    ("use", "why"),
    [(Use(("train-1",)), "it has train-1"), (Use((), unknown="its jobs: no answer"), "its jobs: no answer")],
)
def test_the_first_sick_node_stays_where_the_second_must(
    monkeypatch: pytest.MonkeyPatch, use: Use, why: str
) -> None:
    cluster = Cluster(monkeypatch, unhealthy=(1, 2))
    cluster.uses_of = {"node000002": use}
    with pytest.raises(
        RetryError, match=rf"node000002 is sick \(slow\) and is not replaced: {why}; no node is"
    ):
        cluster.chosen(0, 1, 2)
    assert cluster.replaced == []


def test_a_job_without_looks_replaces_no_node(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, unhealthy=(1,))
    cluster.health = "off"
    with pytest.raises(InputError, match="--on-unhealthy = 'replace': cannot be combined with health: off"):
        cluster.chosen(0, 1, dry_run=True)
    assert cluster.replaced == []
