"""Faults of the devices that a node shows: what each changes in them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from launch.errors import InputError
from rehearsal.faults.fault_kinds import FaultSpec
from rehearsal.hardware.devices import DEFAULT_KEY, NodeDevices
from rehearsal.hardware.sysfs import CARRIER, COUNTERS, rate_text

__all__ = ["DEVICE_FAULTS", "BrokenDevices"]

DEVICE_FAULTS = ("hca", "rate", "pkey", "counter", "gpu", "gpu-load", "xid")

_GPU_STATES: dict[str, dict[str, Any]] = {
    "lost": {"lost": True},
    "ecc": {"double_bit_errors": 1},
    "remap": {"remap_failed": True},
    "hot": {"celsius": 95},
    "throttled": {"clock_reasons": 0x40},  # nvmlClocksEventReasonHwThermalSlowdown
    "recovery": {"recovery": 1},  # NVML_GPU_RECOVERY_ACTION_GPU_RESET
    "no-persistence": {"persistent": False},
    "missing": {"listed": False},
    "absent": {"on_bus": False},
}
_REPAIRED = ("active", "healthy")
_ALL_OF_IT = 100


@dataclass(frozen=True, slots=True)
class BrokenDevices:
    """A node's devices with the faults that are set on them."""

    healthy: NodeDevices
    faults: tuple[FaultSpec, ...] = ()

    def add(self, node: str, spec: FaultSpec) -> BrokenDevices:
        """Return the same with one fault more, in place of one of its kind on the same device.

        Raises :class:`~launch.errors.InputError` for a device that ``node`` does not have.
        """
        _check(node, self.healthy, spec)
        others = tuple(fault for fault in self.faults if _subject(fault) != _subject(spec))
        return replace(self, faults=others if spec.state in _REPAIRED else (*others, spec))

    @property
    def shown(self) -> NodeDevices:
        """What the node shows."""
        devices = self.healthy
        for fault in self.faults:
            devices = _apply(devices, fault)
        return devices


def _subject(spec: FaultSpec) -> tuple[Any, ...]:
    return spec.kind, spec.device, spec.counter, spec.code


def _check(node: str, devices: NodeDevices, spec: FaultSpec) -> None:
    gpus = spec.kind in {"gpu", "gpu-load", "xid"}
    count = len(devices.gpus) if gpus and devices.has_driver else 0 if gpus else len(_hcas(devices))
    what = "NVIDIA GPU" if gpus else "InfiniBand device"
    if not count:
        raise InputError("--nodes", node, f"has no {what}", "choose nodes of a size that has")
    if (spec.device or 0) >= count:
        problem = f"{node} has {count} {what}{'s' * (count > 1)}"
        raise InputError("--device", spec.device, problem, f"use 0 to {count - 1}" if count > 1 else "use 0")
    if spec.kind == "rate":
        rate_text(spec.rate or 0)
    if spec.kind == "counter" and spec.counter not in (*COUNTERS, CARRIER):
        raise InputError(
            "--counter", spec.counter, "no such counter", f"use one of {', '.join((*COUNTERS, CARRIER))}"
        )
    if spec.kind == "gpu-load" and (spec.count or 0) > _ALL_OF_IT:
        raise InputError("--count", spec.count, "is more than all of its time", "give 0 to 100, in percent")
    if spec.state == "remap" and not devices.gpus[spec.device or 0].remaps_rows:
        raise InputError("--state", "remap", f"GPUs of {node} do not remap rows", "use ecc")


def _hcas(devices: NodeDevices) -> list[int]:
    return [place for place, one in enumerate(devices.rdma) if one.link_layer == "InfiniBand"]


def _apply(devices: NodeDevices, spec: FaultSpec) -> NodeDevices:
    if spec.kind == "xid":
        address = devices.gpus[spec.device or 0].address
        return replace(devices, xids=(*devices.xids, (spec.code or 0, address)))
    if spec.state == "hang":
        return replace(devices, driver_hangs=True)
    if spec.kind in {"gpu", "gpu-load"}:
        changed = {"load": spec.count} if spec.kind == "gpu-load" else _GPU_STATES[spec.state or ""]
        gpus = list(devices.gpus)
        gpus[spec.device or 0] = replace(gpus[spec.device or 0], **changed)
        return replace(devices, gpus=tuple(gpus))
    rdma, place = list(devices.rdma), _hcas(devices)[spec.device or 0]
    port = rdma[place]
    changes: dict[str, dict[str, Any]] = {
        "hca": {"state": spec.state},
        "rate": {"gbps": spec.rate},
        "pkey": {"keys": (DEFAULT_KEY,)},
        "counter": {"counters": (*port.counters, (spec.counter, spec.count))},
    }
    rdma[place] = replace(port, **changes[spec.kind])
    return replace(devices, rdma=tuple(rdma))
