"""Faults of nodes that run: eviction, a wrong clock, slow links, sick devices."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, Protocol

from launch.errors import InputError, RankliftError
from rehearsal.arm.compute.scale_set_vms import evict
from rehearsal.arm.core.records import Instance, Record
from rehearsal.arm.services import Services
from rehearsal.faults.arm_faults import ArmFaults
from rehearsal.faults.device_faults import DEVICE_FAULTS, BrokenDevices
from rehearsal.faults.fault_kinds import FaultSpec
from rehearsal.hardware.devices import NodeDevices
from rehearsal.vms.api import CUT

__all__ = ["NodeFaults", "Parts"]

_log = logging.getLogger("rehearsal.faults")


_ENDS = 2
"""Nodes of a path."""


class Parts(Protocol):
    """Parts of VMs that can be made wrong."""

    async def clock(self, network: str, names: list[str], seconds: float) -> None:
        """Shift the time that programs see which start from now on; 0 is the right time."""

    async def shape(self, network: str, names: list[str], rate: int, source: str = "") -> None:
        """Let nodes receive ``rate`` MB per second, from node ``source`` if given; 0: as much as comes, CUT:
        nothing from there."""

    def devices(self, network: str, name: str) -> NodeDevices | None:
        """Return what a VM shows of its devices; another object once it booted again, None for one that is
        gone."""

    async def show_devices(self, network: str, name: str, devices: NodeDevices) -> None:
        """Let a VM show other devices from now on."""


class NodeFaults:
    """Injects faults; evictions go on in the background."""

    def __init__(self, services: Services, parts: Parts, arm_faults: ArmFaults) -> None:
        self._services, self._parts, self._arm_faults = services, parts, arm_faults
        self._subscription = services.subscription
        self._evictions: set[asyncio.Task[None]] = set()
        self._wrong: dict[str, set[str]] = {}
        self._slow: dict[str, set[str]] = {}
        self._broken: dict[tuple[str, str], tuple[BrokenDevices, NodeDevices]] = {}
        """By network and name: the faults of a node's devices, and what it shows since."""

    async def inject(self, spec: FaultSpec, group: str) -> list[str]:
        """Inject or set a fault; return the names of the nodes that it hits now.

        ``group`` is the resource group of the nodes. Raises :class:`~launch.errors.InputError` naming
        instances that do not exist.
        """
        if spec.kind == "evict":
            record, chosen = self._find(spec, group)
            work = evict(self._services, record, [one.id for one in chosen], spec.seconds or 0.0)
            task = asyncio.create_task(self._evict(work, record))
            self._evictions.add(task)
            task.add_done_callback(self._evictions.discard)
        elif spec.kind == "clock":
            record, chosen = self._find(spec, group)
            network = self._subscription.scale_sets[record.id.key].network
            names = [one.machine.name for one in chosen]
            await self._parts.clock(network, names, spec.seconds or 0.0)
            self._wrong.setdefault(network, set()).update(names)
        elif spec.kind in ("slow-link", "slow-path", "cut-path"):
            record, chosen = self._find(spec, group)
            network = self._subscription.scale_sets[record.id.key].network
            names = [one.machine.name for one in chosen]
            await self._shape(network, names, spec)
            self._slow.setdefault(network, set()).update(names)
        elif spec.kind in DEVICE_FAULTS:
            record, chosen = self._find(spec, group)
            network = self._subscription.scale_sets[record.id.key].network
            await self._break(network, [one.machine.name for one in chosen], spec)
        else:
            self._arm_faults.set(spec)
            return []
        return [one.machine.name for one in chosen]

    async def clear(self) -> list[str]:
        """Clear every fault that is set, set clocks and devices right; announced evictions go on. Return the
        kinds."""
        found = self._arm_faults.clear()
        for network, names in self._wrong.items():
            alive = await self._services.machines.running(network)
            await self._parts.clock(network, sorted(names & alive), 0.0)
        for network, names in self._slow.items():
            alive = await self._services.machines.running(network)
            await self._parts.shape(network, sorted(names & alive), 0)
        found += ["clock"] if self._wrong else []
        found += ["slow-link"] if self._slow else []
        self._wrong.clear()
        self._slow.clear()
        self._forget_restarted()
        for (network, name), (broken, _) in self._broken.items():
            await self._parts.show_devices(network, name, broken.healthy)
            found += [fault.kind for fault in broken.faults if fault.kind not in found]
        self._broken.clear()
        return found

    def listed(self) -> list[str]:
        """Return the faults that are set, a line each."""
        lines = [f"{spec}: hit {spec.hits} times" for spec in self._arm_faults.listed()]
        lines += [f"clock: wrong on {', '.join(sorted(names))}" for names in self._wrong.values() if names]
        lines += [f"slow-link: to {', '.join(sorted(names))}" for names in self._slow.values() if names]
        self._forget_restarted()
        hit: dict[FaultSpec, list[str]] = {}
        for (_, name), (broken, _) in self._broken.items():
            for fault in broken.faults:
                hit.setdefault(replace(fault, nodes=()), []).append(name)
        return lines + [f"{fault}: on {', '.join(sorted(names))}" for fault, names in hit.items()]

    async def _shape(self, network: str, names: list[str], spec: FaultSpec) -> None:
        if spec.kind == "slow-link":
            await self._parts.shape(network, names, spec.rate or 0)
            return
        if len(names) != _ENDS:
            raise InputError("--nodes", len(names), "a path has two ends", "name two nodes")
        first, second = names
        if spec.kind == "slow-path":
            await self._parts.shape(network, [second], spec.rate or 0, first)
        else:
            await self._parts.shape(network, [second], CUT, first)
            await self._parts.shape(network, [first], CUT, second)

    async def _break(self, network: str, names: list[str], spec: FaultSpec) -> None:
        self._forget_restarted()
        alive = await self._services.machines.running(network)
        wanted = {}
        for name in names:
            devices = self._parts.devices(network, name)
            if name not in alive or devices is None:
                raise InputError("--nodes", name, "does not run", "choose nodes that do")
            before, _ = self._broken.get((network, name), (BrokenDevices(devices), devices))
            wanted[name] = before.add(name, spec)
        for name, broken in wanted.items():
            shown = broken.shown
            await self._parts.show_devices(network, name, shown)
            self._broken[network, name] = broken, shown

    def _forget_restarted(self) -> None:
        """Drop the faults of nodes that booted again or are gone: they show what their size has."""
        for (network, name), (_, shown) in tuple(self._broken.items()):
            if self._parts.devices(network, name) is not shown:
                del self._broken[network, name]

    async def close(self) -> None:
        """Cancel the evictions under way."""
        for task in tuple(self._evictions):
            task.cancel()
        await asyncio.gather(*self._evictions, return_exceptions=True)

    def _find(self, spec: FaultSpec, group: str) -> tuple[Record, list[Instance]]:
        for key, scale_set in self._subscription.scale_sets.items():
            record = self._subscription.resources.get(key)
            if record is not None and record.id.group.lower() == group.lower():
                missing = [number for number in spec.nodes if number not in scale_set.instances]
                if missing:
                    known = ", ".join(str(number) for number in sorted(scale_set.instances)) or "none"
                    raise InputError("--nodes", missing[0], "no such instance", f"instances: {known}")
                return record, [scale_set.instances[number] for number in spec.nodes]
        raise InputError("--stack", group, "has no scale set in the rehearsal", "run fab up")

    @staticmethod
    async def _evict(work: Coroutine[Any, Any, None], record: Record) -> None:
        try:
            await work
        except (RankliftError, OSError):  # the network was deleted first
            _log.exception("eviction from %s", record.id)
