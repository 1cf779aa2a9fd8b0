"""Which nodes a command works on, by what users write and by what runs on the nodes."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from infra.inventory import Inventory, Node
from infra.scale_plan import Use
from launch.errors import InputError, RetryError
from playbooks.cli import output
from playbooks.node_price import save_price
from playbooks.nodes import busy
from playbooks.nodes.choose import choose_free_nodes, choose_node, choose_nodes, freest
from playbooks.project import Stack

DRAIN = "drained 2026-03-01T09:05:07Z by ann on desk"
STATES = {0: "running", 2: "running", 3: "stopped", 10: "running", 11: "deleting"}


def name(number: int) -> str:
    return f"node00000{'0123456789ab'[number]}"


INVENTORY = Inventory(
    "dev",
    "size",
    "place",
    "me",
    tuple(Node(name(number), number, "", "", 0, 8, state) for number, state in STATES.items()),
    time.time(),
)
THERE = "known 2 min ago: node[000000,000002-000003,00000a-00000b] (ids 0,2-3,10-11); `fab status` reads them"


def chosen(given: str | None) -> list[int]:
    return [node.instance_id for node in choose_nodes(INVENTORY, given)]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, [0, 2, 3, 10, 11]),
        ("all", [0, 2, 3, 10, 11]),
        ("2-3,node00000a", [2, 3, 10]),
        ("node[000000,00000a-00000b]", [0, 10, 11]),
        ("10,10,0", [0, 10]),
        ("any:3", [0, 2, 10]),
    ],
)
def test_names_ids_and_numbers_choose_nodes(given: str | None, expected: list[int]) -> None:
    assert chosen(given) == expected


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("0-2", "1 is not a node of stack dev"),
        ("node000000-node000002", "node000001 is not a node of stack dev"),
        ("0-12", "1, 4, 5, 6, 7, 8, 9, 12 are not nodes of stack dev"),
        ("0-13", "1, 4, 5, 6, 7, 8, 9, 12 … are not nodes of stack dev"),
        ("other000000", "other000000 is not a node of stack dev"),
        ("any:4", "stack dev has 3 nodes that run"),
    ],
)
def test_a_node_that_does_not_exist_is_refused_with_those_that_do(
    monkeypatch: pytest.MonkeyPatch, given: str, problem: str
) -> None:
    monkeypatch.setattr(output, "age", lambda _: "2 min")
    with pytest.raises(InputError) as caught:
        choose_nodes(INVENTORY, given)
    assert str(caught.value).startswith(f"--nodes = {given!r}: {problem}; {THERE}")


def test_one_node_is_one() -> None:
    assert choose_node(INVENTORY, "10", "node") == choose_node(INVENTORY, "node00000a", "node")
    for given, problem in (("2-3", "names 2 nodes"), ("all", "leaves open"), ("any:1", "leaves open")):
        with pytest.raises(InputError, match=f"^node = '{given}': {problem}"):
            choose_node(INVENTORY, given, "node")


def use(**by_name: Use) -> dict[str, Use]:
    return {node.name: Use() for node in INVENTORY.nodes} | by_name


@pytest.mark.parametrize(
    ("used", "count", "expected"),
    [
        (use(), 2, [0, 2]),
        (use(node000000=Use(("a",))), 2, [2, 10]),
        (use(node000000=Use(("a",)), node000002=Use(("a", "b"))), 2, [0, 10]),
        (use(node000000=Use(("a",)), node000002=Use(("a", "b"))), 3, [0, 2, 10]),
        (use(node000002=Use(unknown="silent")), 2, [0, 10]),
    ],
)
def test_any_takes_free_nodes_first_and_then_those_with_the_fewest_jobs(
    used: dict[str, Use], count: int, expected: list[int]
) -> None:
    assert [node.instance_id for node in freest(INVENTORY.nodes, used, count)] == expected


def test_any_never_takes_a_drained_node() -> None:
    used = use(node000000=Use(drain=DRAIN), node000002=Use(("a",), drain=DRAIN), node00000a=Use(("a",)))
    assert [node.instance_id for node in freest(INVENTORY.nodes, used, 1)] == [10]
    with pytest.raises(RetryError) as caught:
        freest(INVENTORY.nodes, used, 2)
    assert str(caught.value).splitlines()[:3] == [
        "any:2: 1 node can take a job now",
        f"node000000: it is {DRAIN}: `fab undrain 0` ends that",
        f"node000002: it is {DRAIN}: `fab undrain 2` ends that",
    ]


def test_too_few_nodes_that_can_take_a_job_are_named_with_the_reasons() -> None:
    used = use(node000002=Use(unknown="silent"), node00000a=Use(removal="`fab scale 3` of ann"))
    with pytest.raises(RetryError) as caught:
        freest(INVENTORY.nodes, used, 3)
    assert str(caught.value) == (
        "any:3: 1 node can take a job now\n"
        "node000002: its use is unknown (silent)\n"
        "node000003: stopped\n"
        "node00000a: it is being removed by `fab scale 3` of ann\n"
        "node00000b: deleting"
    )


def test_a_launch_asks_the_nodes_and_a_dry_run_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack = Stack("dev", tmp_path, {})
    monkeypatch.setattr(busy, "uses", lambda *_: pytest.fail("a node was asked"))
    for given in (None, "0,2", "any:2"):
        nodes, notices = choose_free_nodes(stack, INVENTORY, given, dry_run=True)
        assert len(notices) == (given != "0,2")
    assert [node.instance_id for node in nodes] == [0, 2]
    monkeypatch.setattr(busy, "uses", lambda *_: use(node000000=Use(("a",))))
    nodes, notices = choose_free_nodes(stack, INVENTORY, "any:2", dry_run=False)
    assert ([node.instance_id for node in nodes], notices) == ([2, 10], ["any:2: node[000002,00000a]"])
    nodes, notices = choose_free_nodes(stack, INVENTORY, "any:3", dry_run=False)
    assert [node.instance_id for node in nodes] == [0, 2, 10]
    assert notices[1] == "too few nodes are free: this job may wait for jobs on node000000"


def test_who_names_no_nodes_is_told_how_many_a_job_takes_and_their_price(tmp_path: Path) -> None:
    stack = Stack("dev", tmp_path, {})
    nodes, notices = choose_free_nodes(stack, INVENTORY, None, dry_run=False)
    assert (len(nodes), notices) == (5, ("no --nodes: the job takes all 5 nodes of stack dev",))
    save_price(stack, "size", "place", 22.032, spot=True)
    ((notice,), (one,)) = (
        choose_free_nodes(stack, inventory, None, dry_run=True)[1]
        for inventory in (INVENTORY, replace(INVENTORY, nodes=INVENTORY.nodes[:1]))
    )
    assert notice.startswith(
        "no --nodes: the job takes all 5 nodes of stack dev, 110.16 USD an hour (spot; Azure Retail Prices"
    )
    assert one.startswith("no --nodes: the job takes 1 node of stack dev, 22.03 USD an hour (spot; ")
    assert choose_free_nodes(stack, INVENTORY, "all", dry_run=True)[1] == ()
