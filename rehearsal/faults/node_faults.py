"""Faults of nodes that run: eviction, and a wrong clock."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Protocol

from launch.errors import InputError, RankliftError
from rehearsal.arm.compute.scale_set_vms import evict
from rehearsal.arm.core.records import Instance, Record
from rehearsal.arm.services import Services
from rehearsal.faults.arm_faults import ArmFaults
from rehearsal.faults.fault_kinds import FaultSpec

__all__ = ["Clocks", "NodeFaults"]

_log = logging.getLogger("rehearsal.faults")


class Clocks(Protocol):
    """VMs whose clocks can be set wrong."""

    async def clock(self, network: str, names: list[str], seconds: float) -> None:
        """Shift the time that programs see which start from now on; 0 is the right time."""


class NodeFaults:
    """Injects faults; evictions go on in the background."""

    def __init__(self, services: Services, clocks: Clocks, arm_faults: ArmFaults) -> None:
        self._services, self._clocks, self._arm_faults = services, clocks, arm_faults
        self._subscription = services.subscription
        self._evictions: set[asyncio.Task[None]] = set()
        self._wrong: dict[str, set[str]] = {}

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
            await self._clocks.clock(network, names, spec.seconds or 0.0)
            self._wrong.setdefault(network, set()).update(names)
        else:
            self._arm_faults.set(spec)
            return []
        return [one.machine.name for one in chosen]

    async def clear(self) -> list[str]:
        """Clear every fault that is set and set clocks right; announced evictions go on. Return the kinds."""
        found = self._arm_faults.clear()
        for network, names in self._wrong.items():
            alive = await self._services.machines.running(network)
            await self._clocks.clock(network, sorted(names & alive), 0.0)
        found += ["clock"] if self._wrong else []
        self._wrong.clear()
        return found

    def listed(self) -> list[str]:
        """Return the faults that are set, a line each."""
        lines = [str(spec) for spec in self._arm_faults.listed()]
        lines += [f"clock: wrong on {', '.join(sorted(names))}" for names in self._wrong.values() if names]
        return lines

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
