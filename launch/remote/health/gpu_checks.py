"""Checks of GPUs: each returns the GPUs that break its rule, with what was measured."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from launch.remote.health.facts import Facts
    from launch.remote.health.nvml import Gpu

    Found = Iterator[tuple[str, str]]

__all__ = [
    "HARMLESS_XIDS",
    "HOTTEST_C",
    "hanging",
    "hot",
    "lost",
    "missing",
    "no_fabric_manager",
    "not_persistent",
    "not_queried",
    "recovery",
    "remap_failed",
    "remap_pending",
    "slowed",
    "uncorrected",
    "unread_driver",
    "unread_log",
    "without_driver",
    "xids",
]

HOTTEST_C = 93
HARMLESS_XIDS = frozenset({13, 31, 43, 45, 63, 66, 68, 94, 109, 154})
"""Errors of the program itself, or which the driver has contained: those of healthagent, and of
NVIDIA/k8s-device-plugin 45, 68 and 109. The driver logs 45 where a process that uses a GPU is killed, as at
the end of a job."""
_SLOWDOWNS = {
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}
"""Bits of the clocks' event reasons (nvml.h, nvmlClocksEventReason*)."""
_RECOVERIES = {0: "", 1: "1: reset the GPU", 2: "2: reboot the node", 3: "", 4: "4: drain and reset"}
"""Actions that the driver asks for (nvml.h, NVML_GPU_RECOVERY_ACTION_*); 3 concerns the GPU's peers alone.
What 5 means differs between releases of nvidia-ml-py: a reset of the bus, or recovery of the IMEX domain."""


def missing(facts: Facts) -> Found:
    """GPUs that are not on the PCI bus."""
    vendor = facts.promise.get("vendor", "nvidia")
    found = sum(gpu.vendor == vendor for gpu in facts.pci_gpus)
    if found < facts.promise["gpus"]:
        yield "PCI bus", f"{found} GPUs"


def without_driver(facts: Facts) -> Found:
    """GPUs on the PCI bus for which the driver does not answer."""
    on_bus = [gpu.address for gpu in facts.pci_gpus if gpu.vendor == "nvidia"]
    if facts.driver is None or facts.driver.hangs or facts.driver.unread:
        return
    if facts.driver.problem:
        yield "NVIDIA driver", facts.driver.problem
        return
    known = {gpu.address for gpu in facts.driver.gpus}
    if any(gpu.error and not gpu.address for gpu in facts.driver.gpus):
        return  # :func:`lost` names those, whose addresses the driver does not say
    for address in on_bus:
        if address not in known:
            counts = f"{len(on_bus)} GPUs on the PCI bus, {len(known)} known to the driver"
            yield f"GPU at {address}", counts


def hanging(facts: Facts) -> Found:
    """A driver that was asked and did not answer in time."""
    if facts.driver and facts.driver.hangs:
        yield "NVML", facts.driver.hangs


def unread_driver(facts: Facts) -> Found:
    """A driver that could not be asked."""
    if facts.driver and facts.driver.unread:
        yield "NVML", facts.driver.unread


def lost(facts: Facts) -> Found:
    """GPUs that do not answer the driver."""
    return _of_each(facts, lambda gpu: gpu.error)


def uncorrected(facts: Facts) -> Found:
    """GPUs with double-bit errors."""
    return _of_each(facts, lambda gpu: f"{gpu.uncorrected} double-bit errors" if gpu.uncorrected else "")


def remap_failed(facts: Facts) -> Found:
    """GPUs that have no spare row left for a broken one."""
    return _of_each(facts, lambda gpu: "a row could not be remapped" if gpu.remap_failed else "")


def remap_pending(facts: Facts) -> Found:
    """GPUs that remap a row at their next reset."""
    return _of_each(facts, lambda gpu: "a row waits for a reset" if gpu.remap_pending else "")


def recovery(facts: Facts) -> Found:
    """GPUs that have to be reset."""
    return _of_each(
        facts, lambda gpu: _RECOVERIES.get(gpu.recovery or 0, f"{gpu.recovery}: an action unknown here")
    )


def slowed(facts: Facts) -> Found:
    """GPUs whose clocks are lower than their load allows."""

    def reasons(gpu: Gpu) -> str:
        return ", ".join(name for bit, name in _SLOWDOWNS.items() if (gpu.clock_events or 0) & bit)

    return _of_each(facts, reasons)


def not_persistent(facts: Facts) -> Found:
    """GPUs whose driver unloads with their last process."""
    return _of_each(facts, lambda gpu: "off" if gpu.persistence is False else "")


def hot(facts: Facts) -> Found:
    """GPUs near the temperature at which they slow down."""
    return _of_each(
        facts, lambda gpu: f"{gpu.temperature_c} C" if (gpu.temperature_c or 0) > HOTTEST_C else ""
    )


def xids(facts: Facts) -> Found:
    """Errors that the driver has logged since boot."""
    for xid in facts.kernel_log.xids if facts.kernel_log else ():
        if xid.code not in HARMLESS_XIDS:
            yield f"GPU at {xid.address}", f"Xid {xid.code}" + (f", {xid.text}" if xid.text else "")


def unread_log(facts: Facts) -> Found:
    """A kernel log that nobody could read."""
    if facts.kernel_log and facts.kernel_log.problem:
        yield "kernel log", facts.kernel_log.problem


def not_queried(facts: Facts) -> Found:
    """GPUs of a vendor whose driver is not queried."""
    yield f"{facts.promise['gpus']} {facts.promise.get('gpu', 'AMD')}", "not read"


def no_fabric_manager(facts: Facts) -> Found:
    """NVSwitches that nobody has set up."""
    if not facts.host.has_fabric_manager:
        yield "nv-fabricmanager", "does not run"


def _of_each(facts: Facts, measure: Callable[[Gpu], str]) -> Found:
    for gpu in facts.driver.gpus if facts.driver else ():
        measured = measure(gpu)
        if measured:
            yield f"GPU {gpu.index}" + (f" at {gpu.address}" if gpu.address else ""), measured
