"""The rules that a node's facts are held to: one table, each rule with its limit, its source and a remedy.

healthagent is Azure/cyclecloud-healthagent, NHC Azure/azurehpc-health-checks, skills
Azure/ai-infrastructure-on-azure (skills/slurm): where no document of the field names the limit.
"""

from __future__ import annotations

from dataclasses import dataclass

from launch.remote.health import gpu_checks, host_checks, port_checks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Literal

    from launch.remote.base.health_records import Finding, Promise
    from launch.remote.health.facts import Facts

    Check = Callable[[Facts], Iterable[tuple[str, str]]]
    """Returns, for each device that breaks the rule, the device and what was measured."""

__all__ = ["RULES", "Rule", "findings"]

_REPLACE = "`fab replace` the node"
_REBOOT = "reboot the node; if it comes back, `fab replace` it"
_ROW = "catalogue"
"""Stands for the source of the promised figure, in the catalogue's row."""
_ADD_SIZE = "name a file with the size's figures in RANKLIFT_SIZES"


@dataclass(frozen=True)
class Rule:
    """One rule; ``{figure}`` in what is expected stands for the promised one."""

    name: str
    level: Literal["error", "warning", "unknown"]
    check: Check
    expected: str
    source: str
    remedy: str
    figure: str = ""
    """Key of the promise that it compares with; without that figure it finds ``unknown``."""
    applies: Callable[[Promise], bool] = bool


def _may_have_gpus(promise: Promise) -> bool:
    return promise.get("gpus") != 0


def _has_nvidia(promise: Promise) -> bool:
    return promise.get("gpus") != 0 and promise.get("vendor", "nvidia") == "nvidia"


def _has_amd(promise: Promise) -> bool:
    return promise.get("vendor") == "amd"


def _has_nvswitches(promise: Promise) -> bool:
    return bool(promise.get("fabric_manager"))


def _has_infiniband(promise: Promise) -> bool:
    return bool(promise.get("hcas"))


def _has_gpudirect(promise: Promise) -> bool:
    return _has_infiniband(promise) and bool(promise.get("gpudirect"))


def _has_topology(promise: Promise) -> bool:
    return "topology" in promise


def _has_nvme(promise: Promise) -> bool:
    return bool(promise.get("nvme"))


RULES = (
    Rule("gpu-missing", "error", gpu_checks.missing, "{figure} GPUs", _ROW, _REPLACE, "gpus", _may_have_gpus),
    Rule(
        "gpu-driver",
        "error",
        gpu_checks.without_driver,
        "a driver that answers for every GPU",
        "NVML; NVIDIA/aicr#1858",
        _REBOOT,
        applies=_has_nvidia,
    ),
    Rule(
        "gpu-hang",
        "error",
        gpu_checks.hanging,
        "an answer within 2 s",
        "NVML, which hangs with some faults of GPUs",
        _REBOOT,
        applies=_has_nvidia,
    ),
    Rule(
        "gpu-unread",
        "unknown",
        gpu_checks.unread_driver,
        "a library that loads and answers",
        "NVML",
        "`python3 -c 'import ctypes; ctypes.CDLL(\"libnvidia-ml.so.1\")'` there shows why",
        applies=_has_nvidia,
    ),
    Rule("gpu-lost", "error", gpu_checks.lost, "a GPU that answers", "NVML", _REBOOT, applies=_has_nvidia),
    Rule(
        "gpu-ecc",
        "error",
        gpu_checks.uncorrected,
        "0 double-bit errors since the driver was loaded",
        "healthagent",
        _REBOOT,
        applies=_has_nvidia,
    ),
    Rule(
        "gpu-remap-failed",
        "error",
        gpu_checks.remap_failed,
        "no failed remap of a row",
        "healthagent",
        _REPLACE,
        applies=_has_nvidia,
    ),
    Rule(
        "gpu-remap-pending",
        "warning",
        gpu_checks.remap_pending,
        "no row that waits for a reset",
        "NVIDIA, GPU Memory Error Management",
        "reboot the node when its jobs have ended",
        applies=_has_nvidia,
    ),
    Rule(
        "gpu-recovery",
        "error",
        gpu_checks.recovery,
        "no reset or reboot that the driver asks for",
        "healthagent",
        _REBOOT,
        applies=_has_nvidia,
    ),
    Rule(
        "gpu-clocks",
        "error",
        gpu_checks.slowed,
        "no slowdown by hardware, heat or power brake",
        "healthagent",
        _REPLACE,
        applies=_has_nvidia,
    ),
    Rule(
        "gpu-persistence",
        "warning",
        gpu_checks.not_persistent,
        "persistence mode on, which saves seconds whenever a program opens the GPUs",
        "Azure/cyclecloud-slurm-workspace#349: off in the images of some sizes",
        "`sudo nvidia-smi -pm 1`, and enable nvidia-persistenced in the image",
        applies=_has_nvidia,
    ),
    Rule(
        "gpu-temperature",
        "warning",
        gpu_checks.hot,
        f"at most {gpu_checks.HOTTEST_C} C",
        "healthagent",
        "`fab replace` the node if it stays hot",
        applies=_has_nvidia,
    ),
    Rule(
        "gpu-xid",
        "error",
        gpu_checks.xids,
        f"no Xid since boot but {', '.join(map(str, sorted(gpu_checks.HARMLESS_XIDS)))}",
        "healthagent, NVIDIA/k8s-device-plugin",
        _REBOOT,
        applies=_has_nvidia,
    ),
    Rule(
        "gpu-log",
        "unknown",
        gpu_checks.unread_log,
        "a kernel log that the node's user can read",
        "NVIDIA, Xid Errors",
        "let the node's user run `sudo -n dmesg`",
        applies=_has_nvidia,
    ),
    Rule(
        "gpu-state",
        "unknown",
        gpu_checks.not_queried,
        "state of each GPU",
        _ROW,
        "check them with `rocm-smi`: nothing here reads the state of AMD's GPUs",
        "gpus",
        _has_amd,
    ),
    Rule(
        "fabric-manager",
        "error",
        gpu_checks.no_fabric_manager,
        "nv-fabricmanager runs",
        _ROW,
        "`sudo systemctl start nvidia-fabricmanager`; without it no job can use the GPUs together",
        "fabric_manager",
        _has_nvswitches,
    ),
    Rule(
        "ib-missing",
        "error",
        port_checks.missing,
        "{figure} InfiniBand ports",
        _ROW,
        _REPLACE,
        "hcas",
        _has_infiniband,
    ),
    Rule(
        "ib-state",
        "error",
        port_checks.not_active,
        "4: ACTIVE",
        "healthagent",
        _REPLACE,
        applies=_has_infiniband,
    ),
    Rule(
        "ib-phys-state",
        "error",
        port_checks.no_link,
        "5: LinkUp",
        "healthagent",
        _REPLACE,
        applies=_has_infiniband,
    ),
    Rule("ib-rate", "error", port_checks.slow, "{figure} Gb/s", _ROW, _REPLACE, "hca_gbps", _has_infiniband),
    Rule(
        "ib-pkey",
        "error",
        port_checks.not_joined,
        "a partition key beside 0x0000 and 0x7fff",
        "skills",
        _REPLACE,
        applies=_has_infiniband,
    ),
    Rule(
        "ib-link-downed",
        "error",
        port_checks.flapping,
        f"less than +{port_checks.DOWNED} in 3 h",
        "healthagent",
        _REPLACE,
        applies=_has_infiniband,
    ),
    *(
        Rule(
            "ib-" + counter.replace("port_", "").replace("_", "-"),
            "warning",
            port_checks.above(counter, limit),
            f"at most {limit}",
            source,
            "`fab replace` the node if it grows",
            applies=_has_infiniband,
        )
        for counter, limit, source in port_checks.LIMITS
    ),
    Rule(
        "memory",
        "error",
        host_checks.little_memory,
        f"{{figure}} GiB, less {host_checks.TOLERANCE_PERCENT} % at most",
        _ROW,
        _REPLACE,
        "memory_gib",
    ),
    Rule(
        "shared-memory",
        "warning",
        host_checks.little_shared_memory,
        "at least 1 GiB",
        "NVIDIA, NCCL Troubleshooting",
        "`sudo mount -o remount,size=50% /dev/shm`",
        applies=_may_have_gpus,
    ),
    Rule(
        "memlock",
        "warning",
        host_checks.locked_memory,
        "unlimited",
        "azhpc-images, hpc-tuning",
        "set memlock to unlimited in /etc/security/limits.d",
        applies=_has_infiniband,
    ),
    Rule(
        "peermem",
        "warning",
        host_checks.no_peermem,
        "DMA-BUF (open kernel modules, Linux 5.12), or module nvidia_peermem",
        "NVIDIA, GPU Operator, GPUDirect RDMA",
        "install the driver's open kernel modules, or `sudo modprobe nvidia-peermem`: without either NCCL "
        "copies through the host's memory",
        applies=_has_gpudirect,
    ),
    Rule(
        "topology",
        "warning",
        host_checks.no_topology,
        "{figure}",
        _ROW,
        "use an HPC image, or one that `fab image.build` made: NCCL takes a wrong topology without",
        "topology",
        _has_topology,
    ),
    Rule(
        "clock",
        "warning",
        host_checks.unsynchronised,
        "a clock that a time service sets",
        "adjtimex(2)",
        "`sudo systemctl start chrony`",
    ),
    Rule("local-disk", "warning", host_checks.no_nvme, "local NVMe disks", _ROW, _REPLACE, "nvme", _has_nvme),
)
"""In the order in which findings are printed."""


def findings(facts: Facts) -> Iterator[Finding]:
    """Return what of the facts breaks a rule, and which figures nobody has promised."""
    promise = facts.promise
    is_known = "hcas" in promise
    if not is_known:
        yield _unknown("size", promise["size"], "its figures", "the catalogue has no row of this size")
    for rule in RULES:
        figure = promise.get(rule.figure)
        if not rule.applies(promise):
            continue
        if rule.figure and figure is None:
            if is_known:
                yield _unknown(rule.name, promise["size"], rule.figure, "the catalogue has no figure")
            continue
        source = promise["sources"][rule.figure] if rule.source == _ROW else rule.source
        for subject, measured in rule.check(facts):
            yield {
                "rule": rule.name,
                "level": rule.level,
                "subject": subject,
                "measured": measured,
                "expected": rule.expected.format(figure=figure),
                "source": source,
                "remedy": rule.remedy,
            }


def _unknown(rule: str, size: str, expected: str, why: str) -> Finding:
    return {
        "rule": rule,
        "level": "unknown",
        "subject": size,
        "measured": why,
        "expected": expected,
        "source": "catalogue/sizes.toml",
        "remedy": _ADD_SIZE,
    }
