"""Each rule, with a node that breaks it and one that just does not."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from catalogue.sizes import catalogue
from launch.promise import promise_of
from launch.remote.health.facts import Facts
from launch.remote.health.kernel_log import KernelLog, Xid
from launch.remote.health.nvml import Driver
from launch.remote.health.rules import RULES, findings
from tests.launch.remote.health.healthy_nodes import healthy_node, with_gpu, with_host, with_port

SIZE = "Standard_ND96isr_H100_v5"
Change = Callable[[Facts], Facts]


def gpu(**changes: object) -> Change:
    return lambda facts: with_gpu(facts, **changes)


def port(**changes: object) -> Change:
    return lambda facts: with_port(facts, **changes)


def host(**changes: object) -> Change:
    return lambda facts: with_host(facts, **changes)


def count(counter: str, number: int) -> Change:
    return port(counters={counter: number})


def grown(number: int) -> Change:
    return lambda facts: dataclasses.replace(facts, growth={"mlx5_ib0:1": {"link_downed": number}})


def logged(code: int) -> Change:
    xid = Xid(code, "0004:00:00", "pid=7, Channel 00000008")
    return lambda facts: dataclasses.replace(facts, kernel_log=KernelLog((xid,)))


def known_gpus(number: int) -> Change:
    def change(facts: Facts) -> Facts:
        assert facts.driver
        return dataclasses.replace(facts, driver=Driver(facts.driver.gpus[:number]))

    return change


def driver(found: Driver) -> Change:
    return lambda facts: dataclasses.replace(facts, driver=found)


def pci_gpus(number: int) -> Change:
    return lambda facts: known_gpus(number)(dataclasses.replace(facts, pci_gpus=facts.pci_gpus[:number]))


def without_port(facts: Facts) -> Facts:
    return dataclasses.replace(facts, ports=facts.ports[1:])


def same(facts: Facts) -> Facts:
    return facts


HARMLESS = (13, 31, 43, 45, 63, 66, 68, 94, 109, 154)
CASES: list[tuple[str, str, Change, str, Change]] = [
    ("gpu-missing", "error", pci_gpus(7), "PCI bus: 7 GPUs", pci_gpus(8)),
    (
        "gpu-driver",
        "error",
        known_gpus(7),
        "GPU at 0008:00:00.0: 8 GPUs on the PCI bus, 7 known to the driver",
        known_gpus(8),
    ),
    (
        "gpu-lost",
        "error",
        gpu(error="NVML_ERROR_GPU_IS_LOST"),
        "GPU 3 at 0004:00:00.0: NVML_ERROR_GPU_IS_LOST",
        same,
    ),
    (
        "gpu-ecc",
        "error",
        gpu(uncorrected=1),
        "GPU 3 at 0004:00:00.0: 1 double-bit errors",
        gpu(uncorrected=0),
    ),
    (
        "gpu-remap-failed",
        "error",
        gpu(remap_failed=True),
        "GPU 3 at 0004:00:00.0: a row could not be remapped",
        gpu(remap_failed=None),
    ),
    (
        "gpu-remap-pending",
        "warning",
        gpu(remap_pending=True),
        "GPU 3 at 0004:00:00.0: a row waits for a reset",
        gpu(remap_pending=None),
    ),
    *(
        ("gpu-recovery", "error", gpu(recovery=action), f"GPU 3 at 0004:00:00.0: {text}", gpu(recovery=3))
        for action, text in (
            (1, "1: reset the GPU"),
            (2, "2: reboot the node"),
            (4, "4: drain and reset"),
            (7, "7: an action unknown here"),
        )
    ),
    *(
        (
            "gpu-clocks",
            "error",
            gpu(clock_events=bit),
            f"GPU 3 at 0004:00:00.0: {text}",
            gpu(clock_events=0x17),
        )
        for bit, text in (
            (0x08, "hardware slowdown"),
            (0x20, "software thermal slowdown"),
            (0x40, "hardware thermal slowdown"),
            (0x80, "hardware power brake"),
        )
    ),
    (
        "gpu-persistence",
        "warning",  # the images of older sizes have it off: no reason to refuse their nodes
        gpu(persistence=False),
        "GPU 3 at 0004:00:00.0: off",
        gpu(persistence=None),
    ),
    (
        "gpu-temperature",
        "warning",
        gpu(temperature_c=94),
        "GPU 3 at 0004:00:00.0: 94 C",
        gpu(temperature_c=93),
    ),
    *(
        (
            "gpu-xid",
            "error",
            logged(code),
            f"GPU at 0004:00:00: Xid {code}, pid=7, Channel 00000008",
            logged(harmless),
        )
        for code, harmless in zip((48, 61, 62, 64, 69, 74, 79, 92, 95, 119), HARMLESS, strict=True)
    ),
    (
        "gpu-log",
        "unknown",
        lambda facts: dataclasses.replace(
            facts, kernel_log=KernelLog(problem="sudo: a password is required")
        ),
        "kernel log: sudo: a password is required",
        same,
    ),
    (
        "fabric-manager",
        "error",
        host(has_fabric_manager=False),
        "nv-fabricmanager: does not run",
        host(has_fabric_manager=True),
    ),
    (
        "ib-missing",
        "error",
        without_port,
        "/sys/class/infiniband: " + ", ".join(f"mlx5_ib{number}:1" for number in range(1, 8)),
        same,
    ),
    ("ib-state", "error", port(state="2: INIT"), "mlx5_ib0:1: 2: INIT", port(state="4: ACTIVE")),
    (
        "ib-phys-state",
        "error",
        port(phys_state="2: Polling"),
        "mlx5_ib0:1: 2: Polling",
        port(phys_state="5: LinkUp"),
    ),
    (
        "ib-rate",
        "error",
        port(rate="200 Gb/sec (2X NDR)"),
        "mlx5_ib0:1: 200 Gb/sec (2X NDR)",
        port(rate="400 Gb/sec (4X NDR)"),
    ),
    ("ib-pkey", "error", port(pkeys=(0x7FFF, 0)), "mlx5_ib0:1: 0x0000, 0x7fff", port(pkeys=(0x7FFF, 0x8123))),
    ("ib-link-downed", "error", grown(3), "mlx5_ib0:1: link_downed +3 in 3 h", grown(2)),
    *(
        (
            rule,
            "warning",
            count(counter, limit + 1),
            f"mlx5_ib0:1: {counter} {limit + 1}",
            count(counter, limit),
        )
        for rule, counter, limit in (
            ("ib-link-error-recovery", "link_error_recovery", 3),
            ("ib-carrier-down-count", "carrier_down_count", 5),
            ("ib-rcv-errors", "port_rcv_errors", 100),
            ("ib-xmit-discards", "port_xmit_discards", 1000),
        )
    ),
    (
        "memory",
        "error",
        host(memory_kib=int(1870 * 0.94) << 20),
        "memory: 1757 GiB",
        host(memory_kib=int(1870 * 0.96) << 20),
    ),
    ("memory", "error", host(memory_kib=None), "/proc/meminfo: not readable", same),
    ("shared-memory", "warning", host(shm_bytes=64 << 20), "/dev/shm: 64 MiB", host(shm_bytes=1 << 30)),
    ("memlock", "warning", host(memlock=8 << 20), "memlock: 8192 KiB", host(memlock=None)),
    (
        "peermem",
        "warning",
        host(has_peermem=False, without_dma_buf="Linux 5.4.0"),
        "nvidia_peermem: not loaded, and no DMA-BUF: Linux 5.4.0",
        host(has_peermem=False),
    ),
    (
        "gpu-hang",
        "error",
        driver(Driver(hangs="no answer within 40 s")),
        "NVML: no answer within 40 s",
        same,
    ),
    (
        "gpu-unread",
        "unknown",
        driver(Driver(unread="libnvidia-ml.so.1: not loaded in 40 s")),
        "NVML: libnvidia-ml.so.1: not loaded in 40 s",
        same,
    ),
    (
        "topology",
        "warning",
        host(has_topology=False),
        "/opt/microsoft/ndv5-topo.xml: no such file",
        host(has_topology=True),
    ),
    (
        "clock",
        "warning",
        host(clock_is_synchronised=False),
        "clock: not synchronised",
        host(clock_is_synchronised=None),
    ),
    ("local-disk", "warning", host(nvme_disks=0), "/sys/class/nvme: no disk", host(nvme_disks=1)),
]


@pytest.mark.parametrize(
    ("rule", "level", "broken", "shown", "near"), CASES, ids=[f"{case[0]} {case[3]}"[:70] for case in CASES]
)
def test_a_rule_finds_what_breaks_it_and_not_its_neighbour(
    rule: str, level: str, broken: Change, shown: str, near: Change
) -> None:
    (found,) = findings(broken(healthy_node(SIZE)))
    assert (found["rule"], found["level"]) == (rule, level)
    assert f"{found['subject']}: {found['measured']}" == shown
    assert found["expected"] and found["source"] and found["remedy"]
    assert list(findings(near(healthy_node(SIZE)))) == []


def test_each_rule_has_a_case() -> None:
    amd_alone = {"gpu-state"}
    assert {case[0] for case in CASES} | amd_alone == {rule.name for rule in RULES}


def test_a_rule_compares_with_the_sizes_own_figure() -> None:
    slow = with_port(healthy_node("Standard_ND40rs_v2"), rate="56 Gb/sec (4X FDR)")
    (found,) = findings(slow)
    assert found["expected"] == "100 Gb/s"
    assert found["source"] == "azure-compute-docs ndv2-series.md"


@pytest.mark.parametrize("size", [size.name for size in catalogue() if not size.is_family])
def test_a_node_as_the_row_says_is_healthy_or_its_figures_are_unknown(size: str) -> None:
    promise = promise_of(size)
    found = list(findings(healthy_node(size)))
    assert {one["level"] for one in found} <= {"unknown"}
    unknown = {
        *({"gpu-missing"} if "gpus" not in promise else ()),
        *({"memory"} if "memory_gib" not in promise else ()),
        *({"ib-rate"} if promise["hcas"] and "hca_gbps" not in promise else ()),
        *({"gpu-state"} if promise.get("vendor") == "amd" else ()),
    }
    assert {one["rule"] for one in found} == unknown


def test_a_size_that_sends_by_dma_buf_needs_no_peermem() -> None:
    size = "Standard_ND128isr_NDR_GB200_v6"
    without = with_host(healthy_node(size), has_peermem=False, without_dma_buf="no")
    assert [one["rule"] for one in findings(without)] == [one["rule"] for one in findings(healthy_node(size))]


def test_an_unknown_size_is_never_healthy() -> None:
    facts = dataclasses.replace(healthy_node("Standard_HC44rs"), promise=promise_of("Standard_A0"))
    (found,) = findings(facts)
    assert (found["level"], found["subject"]) == ("unknown", "Standard_A0")
    assert found["measured"] == "the catalogue has no row of this size"


def test_gpus_of_an_unknown_size_are_held_to_the_rules_that_need_no_figure() -> None:
    sick = with_gpu(healthy_node(SIZE), uncorrected=2)
    found = list(findings(dataclasses.replace(sick, promise=promise_of("Standard_A0"))))
    assert [one["rule"] for one in found] == ["size", "gpu-ecc"]


def test_a_driver_that_does_not_answer_is_named_once() -> None:
    silent = dataclasses.replace(
        healthy_node(SIZE), driver=Driver(problem="nvmlInit_v2: NVML_ERROR_DRIVER_NOT_LOADED")
    )
    (found,) = findings(silent)
    assert (found["subject"], found["measured"]) == (
        "NVIDIA driver",
        "nvmlInit_v2: NVML_ERROR_DRIVER_NOT_LOADED",
    )


def test_amds_gpus_are_counted_and_their_state_is_unknown() -> None:
    facts = healthy_node("Standard_ND96isr_MI300X_v5")
    fewer = dataclasses.replace(facts, pci_gpus=facts.pci_gpus[1:])
    levels = {one["rule"]: one["level"] for one in findings(fewer)}
    assert levels == {"gpu-missing": "error", "gpu-state": "unknown", "memory": "unknown"}


class TestWhereTheHealthChecksOfTheFieldFail:
    """Faults of Azure/azurehpc-health-checks that these rules do not share."""

    def test_a_failed_remap_is_found_where_its_own_field_is_queried(self) -> None:
        # there, a fourth field of a query for three is compared, which never fires
        (found,) = findings(with_gpu(healthy_node(SIZE), remap_failed=True))
        assert found["rule"] == "gpu-remap-failed"

    def test_xid_95_is_an_error_and_94_which_is_contained_is_not(self) -> None:
        # there, neither code is in the list
        assert [one["rule"] for one in findings(logged(95)(healthy_node(SIZE)))] == ["gpu-xid"]
        assert list(findings(logged(94)(healthy_node(SIZE)))) == []

    def test_a_size_without_figures_does_not_pass(self) -> None:
        # there, it ends with exit status 0
        facts = dataclasses.replace(healthy_node(SIZE), promise=promise_of("Standard_ND1_v9"))
        assert [one["level"] for one in findings(facts)] == ["unknown"]

    def test_throttling_is_an_error(self) -> None:
        # there, it is written to a log
        (found,) = findings(with_gpu(healthy_node(SIZE), clock_events=0x40))
        assert found["level"] == "error"

    def test_a_port_that_cannot_reach_other_nodes_is_found(self) -> None:
        # there, every network test is a loopback on one node
        (found,) = findings(with_port(healthy_node(SIZE), pkeys=(0x7FFF,)))
        assert found["rule"] == "ib-pkey"


def test_the_documentation_has_every_rule() -> None:
    text = (Path(__file__).parents[4] / "docs/health.md").read_text()
    table = text.partition("### Rules\n")[2].partition("\n#")[0]
    rows = [line.split("|")[1:3] for line in table.splitlines() if line.startswith("| `")]
    documented = {name: level.strip() for names, level in rows for name in re.findall(r"`([\w-]+)`", names)}
    assert {rule.name: rule.level for rule in RULES}.items() <= documented.items()
