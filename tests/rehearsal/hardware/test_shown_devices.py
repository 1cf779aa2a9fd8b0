"""What programs on rehearsed nodes see of their devices, and of a change while they run."""

from __future__ import annotations

import asyncio
import json
import resource
import shlex
from dataclasses import replace
from pathlib import Path

from rehearsal.hardware.devices import NodeDevices
from tests.rehearsal.node_lab import NETWORK, Lab, lab

NODE_PYTHON = Path(__file__).resolve().parents[3] / ".venv-node"

NVML = """
import ctypes, json
nvml = ctypes.CDLL("libnvidia-ml.so.1")
def ask(name, *given, kind=ctypes.c_uint):
    value = kind()
    result = getattr(nvml, name)(*given, ctypes.byref(value))
    return value.value if result == 0 else -result
class Field(ctypes.Structure):
    _fields_ = [("field", ctypes.c_uint), ("scope", ctypes.c_uint), ("timestamp", ctypes.c_longlong),
                ("latency", ctypes.c_longlong), ("type", ctypes.c_int), ("result", ctypes.c_int),
                ("value", ctypes.c_ulonglong)]
class Pci(ctypes.Structure):
    _fields_ = [("legacy", ctypes.c_char * 16), *((name, ctypes.c_uint) for name in "abcde"),
                ("id", ctypes.c_char * 32)]
found = {"before": ask("nvmlDeviceGetCount_v2"), "init": nvml.nvmlInit_v2(), "gpus": []}
for place in range(ask("nvmlDeviceGetCount_v2")):
    handle = ctypes.c_void_p()
    result = nvml.nvmlDeviceGetHandleByIndex_v2(place, ctypes.byref(handle))
    if result:
        found["gpus"].append(-result)
        continue
    pci, field, rows = Pci(), Field(field=230), [ctypes.c_uint() for _ in range(4)]
    nvml.nvmlDeviceGetPciInfo_v3(handle, ctypes.byref(pci))
    nvml.nvmlDeviceGetFieldValues(handle, 1, ctypes.byref(field))
    remapped = nvml.nvmlDeviceGetRemappedRows(handle, *map(ctypes.byref, rows))
    found["gpus"].append([
        pci.id.decode(), ask("nvmlDeviceGetTotalEccErrors", handle, 1, 0, kind=ctypes.c_ulonglong),
        [row.value for row in rows] if remapped == 0 else -remapped,
        ask("nvmlDeviceGetCurrentClocksEventReasons", handle, kind=ctypes.c_ulonglong),
        ask("nvmlDeviceGetPersistenceMode", handle), ask("nvmlDeviceGetTemperature", handle, 0), field.value])
found["end"] = nvml.nvmlShutdown()
print(json.dumps(found))
"""

USED = """
import ctypes, json
nvml = ctypes.CDLL("libnvidia-ml.so.1")
nvml.nvmlInit_v2()
class Memory2(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint), *((name, ctypes.c_ulonglong) for name in "trfu")]
found = []
for place in range(2):
    handle, rates, watts = ctypes.c_void_p(), (ctypes.c_uint * 2)(), ctypes.c_uint()
    first, second, wrong = (ctypes.c_ulonglong * 3)(), Memory2(ctypes.sizeof(Memory2) | 2 << 24), Memory2()
    nvml.nvmlDeviceGetHandleByIndex_v2(place, ctypes.byref(handle))
    results = [nvml.nvmlDeviceGetUtilizationRates(handle, rates), nvml.nvmlDeviceGetMemoryInfo(handle, first),
               nvml.nvmlDeviceGetMemoryInfo_v2(handle, ctypes.byref(second)),
               nvml.nvmlDeviceGetPowerUsage(handle, ctypes.byref(watts)),
               nvml.nvmlDeviceGetMemoryInfo_v2(handle, ctypes.byref(wrong))]
    found.append([results, list(rates), list(first), [second.t, second.r, second.f, second.u], watts.value])
print(json.dumps(found))
"""


async def boot(it: Lab, *sizes: str) -> None:
    machines = [replace(it.machine(number), size=size) for number, size in enumerate(sizes)]
    await it.machines.boot(NETWORK, machines)
    for number, machine in enumerate(machines):
        await it.machines.forward(NETWORK, (it.address, 50000 + number), (machine.private_ip, 22))


def shown(it: Lab) -> NodeDevices:
    """Return what the first node shows."""
    found = it.machines.devices(NETWORK, "node000000")
    assert found is not None
    return found


async def output(it: Lab, number: int, command: str) -> str:
    status, found = await it.ssh(number, command)
    assert status == 0, found
    return found


class BootFaults:
    """The second node's devices have other names, the third has no InfiniBand."""

    def hits_boot(self, kind: str, name: str) -> bool:
        return {"ib-names": "node000001", "no-ib": "node000002"}.get(kind) == name


def test_each_node_has_its_own_beside_the_kernels_classes_and_can_change_none(tmp_path: Path) -> None:
    look = "cd /sys/class/infiniband && grep -H . */ports/1/link_layer; ls /sys/class/net; touch x 2>&1 || :"
    refused = "touch: cannot touch 'x': Read-only file system\n"

    async def story() -> None:
        async with lab(tmp_path, 0, faults=BootFaults()) as it:
            await boot(it, *["Standard_ND40rs_v2"] * 3)
            ethernet = "mlx5_{0}/ports/1/link_layer:Ethernet\n"
            infiniband = "mlx5_{0}/ports/1/link_layer:InfiniBand\n"
            assert [await output(it, number, look) for number in range(3)] == [
                ethernet.format("an0") + infiniband.format("ib0") + "eth0\nlo\n" + refused,
                infiniband.format(0) + ethernet.format(1) + "eth0\nlo\n" + refused,
                ethernet.format("an0") + "eth0\nlo\n" + refused,
            ]

    asyncio.run(story())


def test_a_node_shows_the_hardware_of_its_size_and_none_of_this_machines(tmp_path: Path) -> None:
    async def story() -> None:
        async with lab(tmp_path, 0) as it:
            await boot(it, "Standard_ND96isr_H100_v5", "Standard_HC44rs", "Standard_ND40rs_v2")
            managers = "ps -e -o comm= | grep -c '^nv-fabric' || :"  # of NVSwitches, which V100 do without
            assert [await output(it, number, managers) for number in range(3)] == ["1\n", "0\n", "0\n"]
            found = await output(
                it, 0, "ls /sys/bus/pci/devices | wc -l; grep -l 0x0302 /sys/bus/pci/devices/*/class | wc -l"
            )
            assert found == "21\n8\n"  # 8 GPUs, 4 switches, 8 adapters, one more for Ethernet
            assert await output(it, 1, "cat /sys/bus/pci/devices/*/vendor") == "0x15b3\n"
            device = "readlink -e /sys/class/infiniband/mlx5_ib7/device; ls /sys/class/nvme | wc -l"
            assert await output(it, 0, device) == "/sys/bus/pci/devices/0108:00:00.0\n8\n"
            for number, kib in ((0, 1870 << 20), (1, 346 << 20)):
                assert (await output(it, number, "head -n 1 /proc/meminfo")).split() == [
                    "MemTotal:",
                    str(kib),
                    "kB",
                ]
            there = "ls /opt/microsoft; grep -c nv-fabricmanage /proc/[0-9]*/comm | grep -c :1; "
            there += "ls -d /sys/module/nvidia*; :"
            assert (
                await output(it, 0, there)
                == "ndv5-topo.xml\n1\n/sys/module/nvidia\n/sys/module/nvidia_peermem\n"
            )
            assert (await output(it, 1, there)).startswith("0\nls: ")
            assert "nvidia" in await output(it, 0, "cat /dev/kmsg")
            none = "python3 -c 'import ctypes; ctypes.CDLL(\"libnvidia-ml.so.1\")' 2>&1 || :"
            assert "No such file or directory" in await output(it, 1, none)

    asyncio.run(story())


SYSTEM = """
import ctypes, resource
timex = (ctypes.c_long * 64)()
state = ctypes.CDLL(None).adjtimex(timex)
memlock, core = (resource.getrlimit(one) for one in (resource.RLIMIT_MEMLOCK, resource.RLIMIT_CORE))
print(memlock, state, timex[5] & 0x40, core)
"""


def test_locked_memory_and_the_clock_are_as_on_azures_images(tmp_path: Path) -> None:
    ask = f"bash -c 'ulimit -Hl'; python3 -c {shlex.quote(SYSTEM)}"

    async def story() -> None:
        async with lab(tmp_path, 0) as it:
            await boot(it, "Standard_HC44rs", "")
            core = resource.getrlimit(resource.RLIMIT_CORE)
            assert await output(it, 0, ask) == f"unlimited\n(-1, -1) 0 0 {core}\n"
            _, own = resource.getrlimit(resource.RLIMIT_MEMLOCK)
            assert (await output(it, 1, ask)).startswith("unlimited" if own == -1 else f"{own // 1024}\n")
            await it.machines.clock(NETWORK, ["node000000"], 3600.0)
            assert await output(it, 0, ask) == f"unlimited\n(-1, -1) 5 64 {core}\n"
            await it.machines.clock(NETWORK, ["node000000"], 0)
            assert await output(it, 0, ask) == f"unlimited\n(-1, -1) 0 0 {core}\n"

    asyncio.run(story())


def test_nvml_answers_with_the_sizes_gpus_and_with_their_faults(tmp_path: Path) -> None:
    async def story() -> None:
        async with lab(tmp_path, 0) as it:
            await boot(it, "Standard_ND96asr_v4", "Standard_ND40rs_v2")
            ask = f"python3 -c {shlex.quote(NVML)}"
            healthy = json.loads(await output(it, 0, ask))
            assert {name: value for name, value in healthy.items() if name != "gpus"} == {
                "before": -1,
                "init": 0,
                "end": 0,
            }
            assert healthy["gpus"][4:6] == [
                ["0000000B:00:00.0", 0, [0, 0, 0, 0], 0, 1, 34, 0],
                ["0000000C:00:00.0", 0, [0, 0, 0, 0], 0, 1, 34, 0],
            ]
            volta = json.loads(await output(it, 1, ask))["gpus"]
            assert [gpu[2] for gpu in volta] == [-3] * 8  # NVML_ERROR_NOT_SUPPORTED
            devices = shown(it)
            lost, sick, missing, *others = devices.gpus
            sick = replace(sick, double_bit_errors=2, remap_failed=True, clock_reasons=0x40, celsius=95)
            sick = replace(sick, persistent=False, recovery=1)
            gpus = (replace(lost, lost=True), sick, replace(missing, listed=False), *others)
            await it.machines.show_devices(NETWORK, "node000000", replace(devices, gpus=gpus))
            found = json.loads(await output(it, 0, ask))["gpus"]
            assert len(found) == 7
            assert found[:2] == [-15, ["00000002:00:00.0", 2, [0, 1, 0, 1], 0x40, 0, 95, 1]]  # GPU_IS_LOST
            assert json.loads(await output(it, 1, ask))["gpus"] == volta
            hang = replace(devices, driver_hangs=True)
            await it.machines.show_devices(NETWORK, "node000000", hang)
            assert (await it.ssh(0, f"timeout 1 {ask}"))[0] == 124
            await it.machines.show_devices(NETWORK, "node000000", devices)
            assert json.loads(await output(it, 0, ask)) == healthy

    asyncio.run(story())


def test_nvml_answers_with_what_its_gpus_use(tmp_path: Path) -> None:
    async def story() -> None:
        async with lab(tmp_path, 0) as it:
            await boot(it, "Standard_ND96asr_v4")
            devices, gib = shown(it), 2**30
            busy = replace(devices.gpus[1], load=90)
            loaded = replace(devices, gpus=(devices.gpus[0], busy, *devices.gpus[2:]))
            await it.machines.show_devices(NETWORK, "node000000", loaded)
            ask = f"python3 -c {shlex.quote(USED)}"
            done = [0, 0, 0, 0, 25]  # NVML_ERROR_ARGUMENT_VERSION_MISMATCH
            assert json.loads(await output(it, 0, ask)) == [
                [done, [0, 0], [40 * gib, 40 * gib, 0], [40 * gib, 0, 40 * gib, 0], 50_000],
                [done, [90, 90], [40 * gib, 4 * gib, 36 * gib], [40 * gib, 0, 4 * gib, 36 * gib], 275_000],
            ]

    asyncio.run(story())


def test_what_leaves_the_bus_comes_back_and_a_node_that_boots_again_is_as_its_size(tmp_path: Path) -> None:
    look = "ls /sys/bus/pci/devices | wc -l; cat /sys/class/infiniband/mlx5_ib0/ports/1/state; "
    look += "ls -A /sys/class /sys/bus | grep -c new; :"

    async def story() -> None:
        async with lab(tmp_path, 0) as it:
            await boot(it, *["Standard_ND40rs_v2"] * 2)
            devices = shown(it)
            gone = replace(devices.gpus[0], on_bus=False)
            down = replace(devices.rdma[0], state="down")
            broken = replace(devices, gpus=(gone, *devices.gpus[1:]), rdma=(down, *devices.rdma[1:]))
            await it.machines.show_devices(NETWORK, "node000000", broken)
            assert await output(it, 0, look) == "9\n1: DOWN\n0\n"
            assert await output(it, 1, look) == "10\n4: ACTIVE\n0\n"
            await it.machines.show_devices(NETWORK, "node000000", devices)
            assert await output(it, 0, look) == "10\n4: ACTIVE\n0\n"
            await it.machines.show_devices(NETWORK, "node000000", broken)
            await it.machines.fault(NETWORK, "node000000", "death")
            await boot(it, *["Standard_ND40rs_v2"] * 2)
            assert await output(it, 0, look) == "10\n4: ACTIVE\n0\n"
            assert shown(it) == devices

    asyncio.run(story())


def test_torch_takes_none_of_it_for_a_gpu(tmp_path: Path) -> None:
    ask = "python3 -c 'import torch; print(torch.cuda.is_available(), torch.cuda.device_count())'"

    async def story() -> None:
        async with lab(tmp_path, 0, node_python=NODE_PYTHON) as it:
            await boot(it, "Standard_ND40rs_v2")
            assert (await output(it, 0, ask)).splitlines()[-1] == "False 0"

    asyncio.run(story())
