"""What befalls nodes that run, and those that boot."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from launch.errors import InputError, ReplaceNodeError
from rehearsal.faults.arm_faults import ArmFaults
from rehearsal.faults.fault_kinds import fault_spec
from rehearsal.faults.node_faults import NodeFaults
from rehearsal.hardware.devices import NodeDevices, devices_of
from rehearsal.vms.api import CUT
from tests.rehearsal.bodies import SCALE_SET, build
from tests.rehearsal.doubles import BASE, Endpoint, RecordingMachines
from tests.rehearsal.node_lab import NETWORK, lab


@dataclass
class Parts:
    """Remembers whose clocks are wrong, whose links are slow, and what each node shows."""

    off: dict[str, float] = field(default_factory=dict)
    rates: dict[tuple[str, str], int] = field(default_factory=dict)
    shown: dict[str, NodeDevices] = field(default_factory=dict)

    async def clock(self, network: str, names: list[str], seconds: float) -> None:
        self.off.update(dict.fromkeys(names, seconds))

    async def shape(self, network: str, names: list[str], rate: int, source: str = "") -> None:
        self.rates.update({(source, name): rate for name in names})

    def devices(self, network: str, name: str) -> NodeDevices | None:
        return self.shown.get(name)

    async def show_devices(self, network: str, name: str, devices: NodeDevices) -> None:
        self.shown[name] = devices


@pytest.fixture
def parts() -> Parts:
    return Parts()


@pytest.fixture
def node_faults(azure: Endpoint, parts: Parts) -> Iterator[NodeFaults]:
    build(azure)
    made = NodeFaults(azure.services, parts, ArmFaults())
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
    azure: Endpoint, node_faults: NodeFaults, parts: Parts
) -> None:
    azure.run(node_faults.inject(fault_spec("clock", nodes=(1,), seconds=-90.0), "lab"))
    azure.run(node_faults.inject(fault_spec("quota"), "lab"))
    assert parts.off == {"node000001": -90.0}
    assert node_faults.listed() == ["quota: hit 0 times", "clock: wrong on node000001"]
    assert azure.run(node_faults.clear()) == ["quota", "clock"]
    assert parts.off == {"node000001": 0.0}
    assert node_faults.listed() == []


@pytest.fixture
def h100(parts: Parts) -> NodeDevices:
    """Let all nodes have the devices of a size; return them."""
    parts.shown |= {
        f"node00000{number}": replace(devices_of("Standard_ND96isr_H100_v5")) for number in range(3)
    }
    return devices_of("Standard_ND96isr_H100_v5")


def test_sick_devices_are_listed_and_well_again_when_all_is_cleared(
    azure: Endpoint, node_faults: NodeFaults, parts: Parts, h100: NodeDevices
) -> None:
    ordered = fault_spec("hca", nodes=(0, 2), state="down", device=3)
    assert azure.run(node_faults.inject(ordered, "lab")) == ["node000000", "node000002"]
    azure.run(node_faults.inject(fault_spec("gpu", nodes=(0,), state="lost"), "lab"))
    assert node_faults.listed() == [
        "hca; state down; device 3: on node000000, node000002",
        "gpu; state lost: on node000000",
    ]
    assert [parts.shown["node000000"].rdma[place].state for place in (2, 3)] == ["active", "down"]
    assert parts.shown["node000000"].gpus[0].lost
    assert parts.shown["node000001"] == h100
    assert azure.run(node_faults.clear()) == ["hca", "gpu"]
    assert list(parts.shown.values()) == [h100] * 3
    assert node_faults.listed() == []


def test_a_device_has_one_state_and_can_be_made_well_alone(
    azure: Endpoint, node_faults: NodeFaults, parts: Parts, h100: NodeDevices
) -> None:
    for state in ("hot", "ecc"):
        azure.run(node_faults.inject(fault_spec("gpu", nodes=(1,), state=state, device=5), "lab"))
    gpu = parts.shown["node000001"].gpus[5]
    assert (gpu.celsius, gpu.double_bit_errors) == (h100.gpus[5].celsius, 1)
    azure.run(node_faults.inject(fault_spec("xid", nodes=(1,), code=48, device=5), "lab"))
    azure.run(node_faults.inject(fault_spec("gpu", nodes=(1,), state="healthy", device=5), "lab"))
    assert node_faults.listed() == ["xid; device 5; code 48: on node000001"]
    assert parts.shown["node000001"] == replace(h100, xids=((48, h100.gpus[5].address),))


def test_a_gpu_that_computes_may_be_sick_too(
    azure: Endpoint, node_faults: NodeFaults, parts: Parts, h100: NodeDevices
) -> None:
    for percent in (20, 75):
        azure.run(node_faults.inject(fault_spec("gpu-load", nodes=(1,), count=percent, device=5), "lab"))
    azure.run(node_faults.inject(fault_spec("gpu", nodes=(1,), state="throttled", device=5), "lab"))
    gpu = parts.shown["node000001"].gpus[5]
    assert (gpu.load, gpu.memory_used, gpu.clock_reasons) == (75, 60 << 30, 0x40)
    assert gpu.milliwatts > h100.gpus[5].milliwatts
    azure.run(node_faults.inject(fault_spec("gpu", nodes=(1,), state="healthy", device=5), "lab"))
    assert node_faults.listed() == ["gpu-load; count 75; device 5: on node000001"]


def test_a_node_that_booted_again_or_is_gone_has_no_faults(
    azure: Endpoint, node_faults: NodeFaults, parts: Parts, h100: NodeDevices
) -> None:
    azure.run(node_faults.inject(fault_spec("pkey", nodes=(0, 1)), "lab"))
    parts.shown["node000000"] = replace(h100)
    del parts.shown["node000001"]
    assert node_faults.listed() == []
    azure.run(node_faults.inject(fault_spec("hca", nodes=(0,), state="init"), "lab"))
    assert parts.shown["node000000"].rdma[0].keys == h100.rdma[0].keys


@pytest.mark.parametrize(
    ("size", "fault", "refused"),
    [
        ("HC44rs", {"kind": "gpu", "state": "lost"}, "--nodes = 'node000001': has no NVIDIA GPU"),
        ("ND96isr_MI300X_v5", {"kind": "xid", "code": 79}, "--nodes = 'node000001': has no NVIDIA GPU"),
        (
            "NC48ads_A100_v4",
            {"kind": "hca", "state": "down"},
            "--nodes = 'node000001': has no InfiniBand device",
        ),
        ("HC44rs", {"kind": "pkey", "device": 1}, "--device = 1: node000001 has 1 InfiniBand device; use 0"),
        (
            "ND40rs_v2",
            {"kind": "gpu", "state": "hot", "device": 8},
            "--device = 8: .* 8 NVIDIA GPUs; use 0 to 7",
        ),
        (
            "ND40rs_v2",
            {"kind": "gpu", "state": "remap"},
            "--state = 'remap': GPUs of node000001 do not remap rows",
        ),
        (
            "ND40rs_v2",
            {"kind": "gpu-load", "count": 101},
            "--count = 101: is more than all of its time; give 0 to 100",
        ),
        ("HC44rs", {"kind": "rate", "rate": 99}, "--rate = 99: is not the rate of a link"),
        (
            "HC44rs",
            {"kind": "counter", "counter": "errors", "count": 9},
            "--counter = 'errors': no such counter",
        ),
    ],
)
def test_what_a_node_does_not_have_cannot_be_sick_and_no_node_is_changed(
    azure: Endpoint,
    node_faults: NodeFaults,
    parts: Parts,
    h100: NodeDevices,
    size: str,
    fault: dict[str, Any],
    refused: str,
) -> None:
    parts.shown["node000001"] = devices_of(f"Standard_{size}")
    before = dict(parts.shown)
    with pytest.raises(InputError, match=f"^{refused}"):
        azure.run(node_faults.inject(fault_spec(nodes=(0, 1), **fault), "lab"))
    assert parts.shown == before


def test_a_node_that_does_not_run_cannot_be_sick(
    azure: Endpoint, node_faults: NodeFaults, recorded: RecordingMachines, h100: NodeDevices
) -> None:
    azure.run(node_faults.inject(fault_spec("evict", nodes=(0,), seconds=600.0), "lab"))
    recorded.dead.add("node000002")
    with pytest.raises(InputError, match=r"^--nodes = 'node000002': does not run"):
        azure.run(node_faults.inject(fault_spec("pkey", nodes=(2,)), "lab"))


@pytest.mark.parametrize(
    ("given", "refused"),
    [
        ({"kind": "hca", "nodes": (1,)}, "--state: is missing: .*; give one of down, init, polling, active"),
        (
            {"kind": "hca", "nodes": (1,), "state": "lost"},
            "--state = 'lost': is not a state of hca; use one of down,",
        ),
        ({"kind": "gpu", "state": "lost"}, "--nodes: is missing"),
        (
            {"kind": "counter", "nodes": (1,), "count": 4},
            "--counter: is missing: .*; give the name of its file",
        ),
        (
            {"kind": "xid", "nodes": (1,), "code": 79, "state": "lost"},
            "--state = 'lost': does not apply to xid",
        ),
    ],
)
def test_a_fault_of_a_device_that_is_not_whole_is_refused(given: dict[str, Any], refused: str) -> None:
    with pytest.raises(InputError, match=f"^{refused}"):
        fault_spec(**given)


@pytest.mark.parametrize(("nodes", "group", "named"), [((7,), "lab", "--nodes"), ((0,), "other", "--stack")])
def test_who_is_not_there_cannot_be_broken(
    azure: Endpoint, node_faults: NodeFaults, nodes: tuple[int, ...], group: str, named: str
) -> None:
    with pytest.raises(InputError, match=f"^{named}"):
        azure.run(node_faults.inject(fault_spec("evict", nodes=nodes), group))


def test_links_and_paths_are_slow_until_all_is_cleared(
    azure: Endpoint, node_faults: NodeFaults, parts: Parts
) -> None:
    azure.run(node_faults.inject(fault_spec("slow-link", nodes=(1,), rate=5), "lab"))
    azure.run(node_faults.inject(fault_spec("slow-path", nodes=(1, 0), rate=3), "lab"))
    assert parts.rates == {("", "node000001"): 5, ("node000001", "node000000"): 3}
    assert node_faults.listed() == ["slow-link: to node000000, node000001"]
    with pytest.raises(InputError, match="a path has two ends"):
        azure.run(node_faults.inject(fault_spec("slow-path", nodes=(1,), rate=3), "lab"))
    assert azure.run(node_faults.clear()) == ["slow-link"]
    assert parts.rates["", "node000000"] == parts.rates["", "node000001"] == 0


def test_a_path_that_is_cut_carries_nothing_either_way_until_all_is_cleared(
    azure: Endpoint, node_faults: NodeFaults, parts: Parts
) -> None:
    azure.run(node_faults.inject(fault_spec("cut-path", nodes=(0, 1)), "lab"))
    assert parts.rates == {("node000000", "node000001"): CUT, ("node000001", "node000000"): CUT}
    with pytest.raises(InputError, match="a path has two ends"):
        azure.run(node_faults.inject(fault_spec("cut-path", nodes=(1,)), "lab"))
    assert azure.run(node_faults.clear()) == ["slow-link"]
    assert parts.rates["", "node000000"] == parts.rates["", "node000001"] == 0


def test_a_slow_link_carries_its_rate_and_a_cleared_one_all(tmp_path: Path) -> None:
    async def story() -> None:
        async with lab(tmp_path, 3) as it:
            receive = (
                'import socket, time; s = socket.create_server(("0.0.0.0", 5000)); print(1, flush=True); '
                "c = s.accept()[0]; c.recv(1); began = time.monotonic(); n = 0\n"
                "while d := c.recv(1 << 20): n += len(d)\n"
                "print(n / (time.monotonic() - began) / 1e6)"
            )

            async def rate(source: int, target: int) -> float:
                ip = it.machine(target).private_ip
                send = (
                    f'import socket; c = socket.create_connection(("{ip}", 5000)); c.sendall(bytes(6 << 20))'
                )
                listening = asyncio.create_task(it.ssh(target, f"timeout 60 python3 -c '{receive}'"))
                await asyncio.sleep(0.5)
                assert await it.ssh(source, f"timeout 60 python3 -c '{send}'") == (0, "")
                status, output = await listening
                assert status == 0, output
                return float(output.split()[-1])

            names = [it.machine(number).name for number in range(3)]
            await it.machines.shape(NETWORK, names[1:2], 4)
            assert 2 < await rate(0, 1) < 6
            assert await rate(1, 0) > 12
            await it.machines.shape(NETWORK, names[1:2], 4, names[2])
            assert await rate(0, 1) > 12
            assert 2 < await rate(2, 1) < 6
            await it.machines.shape(NETWORK, names[1:2], 0)
            assert await rate(2, 1) > 12

    asyncio.run(story())


def test_nothing_comes_by_a_cut_path_and_all_else_does(tmp_path: Path) -> None:
    async def story() -> None:
        async with lab(tmp_path, 3) as it:
            ip = it.machine(1).private_ip

            async def reaches(source: int) -> bool:
                return (await it.ssh(source, f"timeout 2 bash -c ': < /dev/tcp/{ip}/22'"))[0] == 0

            names = [it.machine(number).name for number in range(3)]
            await it.machines.shape(NETWORK, names[1:2], CUT, names[2])
            assert (await reaches(0), await reaches(2)) == (True, False)
            await it.machines.shape(NETWORK, names[1:2], 0)
            assert await reaches(2)

    asyncio.run(story())


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
