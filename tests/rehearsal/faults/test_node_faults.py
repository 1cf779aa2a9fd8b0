"""What befalls nodes that run, and those that boot."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from launch.errors import InputError, ReplaceNodeError
from rehearsal.faults.arm_faults import ArmFaults
from rehearsal.faults.fault_kinds import fault_spec
from rehearsal.faults.node_faults import NodeFaults
from tests.rehearsal.bodies import SCALE_SET, build
from tests.rehearsal.doubles import BASE, Endpoint, RecordingMachines
from tests.rehearsal.node_lab import NETWORK, lab


@dataclass
class Clocks:
    """Remembers whose clocks are wrong."""

    off: dict[str, float] = field(default_factory=dict)

    async def clock(self, network: str, names: list[str], seconds: float) -> None:
        self.off.update(dict.fromkeys(names, seconds))


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.fixture
def node_faults(azure: Endpoint, clocks: Clocks) -> Iterator[NodeFaults]:
    build(azure)
    made = NodeFaults(azure.services, clocks, ArmFaults())
    yield made
    azure.run(made.close())


def events(azure: Endpoint) -> list[dict[str, object]]:
    document = azure.shared.events.document(f"{BASE}/{SCALE_SET}".lower(), "somebody")
    return list(document["Events"])


def until_capacity(azure: Endpoint, wanted: int) -> None:
    deadline = time.monotonic() + 20
    while azure.ask("GET", SCALE_SET)[1]["sku"]["capacity"] != wanted:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_an_evicted_vm_is_told_then_lost_then_gone(
    azure: Endpoint, node_faults: NodeFaults, recorded: RecordingMachines
) -> None:
    ordered = fault_spec("evict", nodes=(0, 2), seconds=0.5)
    assert azure.run(node_faults.inject(ordered, "LAB")) == ["node000000", "node000002"]
    time.sleep(0.1)
    result = events(azure)
    assert [(one["EventType"], one["Resources"], one["EventSource"]) for one in result] == [
        ("Preempt", ["nodes_0"], "Platform"),
        ("Preempt", ["nodes_2"], "Platform"),
    ]
    assert recorded.dead == set()
    until_capacity(azure, 1)
    assert recorded.dead == {"node000000", "node000002"}
    vms = azure.ask("GET", f"{SCALE_SET}/virtualMachines")[1]["value"]
    assert [vm["instanceId"] for vm in vms] == ["1"]
    assert events(azure) == []


def test_an_eviction_that_is_agreed_to_does_not_wait(azure: Endpoint, node_faults: NodeFaults) -> None:
    azure.run(node_faults.inject(fault_spec("evict", nodes=(1,), seconds=600.0), "lab"))
    time.sleep(0.1)
    (event,) = events(azure)

    async def approve() -> bool:
        return bool(azure.shared.events.approve(f"{BASE}/{SCALE_SET}".lower(), str(event["EventId"])))

    assert azure.run(approve())
    until_capacity(azure, 2)


def test_all_may_be_evicted(azure: Endpoint, node_faults: NodeFaults) -> None:
    azure.run(node_faults.inject(fault_spec("evict", nodes=(0, 1, 2), seconds=0.01), "lab"))
    until_capacity(azure, 0)


def test_clocks_are_wrong_until_all_is_cleared(
    azure: Endpoint, node_faults: NodeFaults, clocks: Clocks
) -> None:
    azure.run(node_faults.inject(fault_spec("clock", nodes=(1,), seconds=-90.0), "lab"))
    azure.run(node_faults.inject(fault_spec("quota"), "lab"))
    assert clocks.off == {"node000001": -90.0}
    assert node_faults.listed() == ["quota: hit 0 times", "clock: wrong on node000001"]
    assert azure.run(node_faults.clear()) == ["quota", "clock"]
    assert clocks.off == {"node000001": 0.0}
    assert node_faults.listed() == []


@pytest.mark.parametrize(("nodes", "group", "named"), [((7,), "lab", "--nodes"), ((0,), "other", "--stack")])
def test_who_is_not_there_cannot_be_broken(
    azure: Endpoint, node_faults: NodeFaults, nodes: tuple[int, ...], group: str, named: str
) -> None:
    with pytest.raises(InputError, match=f"^{named}"):
        azure.run(node_faults.inject(fault_spec("evict", nodes=nodes), group))


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler, as the fault itself does")
def test_programs_that_start_on_a_node_see_its_wrong_clock(tmp_path: Path) -> None:
    async def story() -> None:
        async with lab(tmp_path, 2) as it:
            ask = "date +%s; python3 -c 'import time; print(int(time.time()))'; sh -c 'date +%s' 2>&1"
            await it.machines.clock(NETWORK, ["node000001"], 3600.0)
            here = time.time()
            for number, off in ((0, 0), (1, 3600)):
                status, output = await it.ssh(number, ask)
                assert status == 0
                assert all(abs(int(line) - here - off) < 60 for line in output.split()), output
            # Only the time of day is wrong: what waits, waits as long as ever.
            assert await it.ssh(1, "timeout 5 sleep 0.1 && echo slept") == (0, "slept\n")
            await it.machines.clock(NETWORK, ["node000001"], 0)
            _, output = await it.ssh(1, "date +%s")
            assert abs(int(output) - time.time()) < 60

    asyncio.run(story())


def test_a_node_that_never_boots_is_named_and_the_others_are_up(tmp_path: Path) -> None:
    async def story() -> None:
        arm_faults = ArmFaults()
        async with lab(tmp_path, 0, faults=arm_faults) as it:
            arm_faults.set(fault_spec("no-boot", nodes=(1,)))
            with pytest.raises(ReplaceNodeError, match=r"node000001.*it never answered"):
                await it.grow([0, 1, 2])
            assert await it.machines.running(NETWORK) == {"node000000", "node000002"}
            arm_faults.clear()
            await it.grow([0, 1, 2])
            assert await it.ssh(1, "hostname") == (0, "node000001\n")

    asyncio.run(story())


def test_cloud_init_fails_on_one_node_only(tmp_path: Path) -> None:
    async def story() -> None:
        arm_faults = ArmFaults()
        async with lab(tmp_path, 0, faults=arm_faults) as it:
            arm_faults.set(fault_spec("cloud-init", nodes=(1,)))
            await it.grow([0, 1])
            assert await it.ssh(0, "cloud-init status --wait") == (0, "status: done\n")
            assert await it.ssh(1, "cloud-init status --wait") == (1, "status: error\n")

    asyncio.run(story())
