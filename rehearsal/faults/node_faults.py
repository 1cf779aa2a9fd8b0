"""What befalls nodes that run: taken by Azure, or with a clock that is wrong."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Protocol

from launch.errors import InputError, RankliftError
from rehearsal.arm import Subscription
from rehearsal.arm.compute.scale_sets import evict
from rehearsal.arm.core.records import Instance, Record
from rehearsal.faults.arm_faults import Faulting
from rehearsal.faults.fault_kinds import Order

__all__ = ["Breaking", "Clocks"]

_log = logging.getLogger("rehearsal.faults")


class Clocks(Protocol):
    """Machines whose clocks can be put wrong."""

    async def clock(self, network: str, names: list[str], seconds: float) -> None:
        """From now on programs that start there see a time that is off by ``seconds``; 0: the right one."""


class Breaking:
    """Carries out orders; evictions go on in the background."""

    def __init__(self, subscription: Subscription, machines: Clocks, faulting: Faulting) -> None:
        self._subscription, self._machines, self._faulting = subscription, machines, faulting
        self._evictions: set[asyncio.Task[None]] = set()
        self._wrong: dict[str, set[str]] = {}

    async def carry_out(self, order: Order, group: str) -> list[str]:
        """Does or sets what was ordered; names of the nodes that it befalls now.

        ``group`` is the resource group that the order's nodes are in. Raises
        :class:`~launch.errors.InputError` naming instances that are not there.
        """
        if order.kind == "evict":
            record, chosen = self._find(order, group)
            work = evict(self._subscription, record, [one.id for one in chosen], order.seconds or 0.0)
            task = asyncio.create_task(self._evict(work, record))
            self._evictions.add(task)
            task.add_done_callback(self._evictions.discard)
        elif order.kind == "clock":
            record, chosen = self._find(order, group)
            network = self._subscription.scale_sets[record.id.key].network
            names = [one.machine.name for one in chosen]
            await self._machines.clock(network, names, order.seconds or 0.0)
            self._wrong.setdefault(network, set()).update(names)
        else:
            self._faulting.set(order)
            return []
        return [one.machine.name for one in chosen]

    async def clear(self) -> list[str]:
        """Ends every fault that is set and puts clocks right; evictions that were announced come."""
        found = self._faulting.clear()
        for network, names in self._wrong.items():
            alive = await self._subscription.machines.running(network)
            await self._machines.clock(network, sorted(names & alive), 0.0)
        found += ["clock"] if self._wrong else []
        self._wrong.clear()
        return found

    def listed(self) -> list[str]:
        """What is set, a line each."""
        lines = [str(order) for order in self._faulting.listed()]
        lines += [f"clock: wrong on {', '.join(sorted(names))}" for names in self._wrong.values() if names]
        return lines

    async def close(self) -> None:
        """Stops evictions that are under way."""
        for task in tuple(self._evictions):
            task.cancel()
        await asyncio.gather(*self._evictions, return_exceptions=True)

    def _find(self, order: Order, group: str) -> tuple[Record, list[Instance]]:
        for key, scale_set in self._subscription.scale_sets.items():
            record = self._subscription.resources.get(key)
            if record is not None and record.id.group.lower() == group.lower():
                missing = [number for number in order.nodes if number not in scale_set.instances]
                if missing:
                    known = ", ".join(str(number) for number in sorted(scale_set.instances)) or "none"
                    raise InputError("--nodes", missing[0], "no such instance", f"there are: {known}")
                return record, [scale_set.instances[number] for number in order.nodes]
        raise InputError("--stack", group, "has no scale set in the rehearsal", "run fab up")

    @staticmethod
    async def _evict(work: Coroutine[Any, Any, None], record: Record) -> None:
        try:
            await work
        except (RankliftError, OSError):  # the network went first
            _log.exception("eviction from %s", record.id)
