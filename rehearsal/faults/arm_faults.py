"""Azure's bad days, on request: what is set, what it befalls, and with which of Azure's words.

A fault is set by kind and stays until it has struck as often as it was told to, its time is over, or it is
cleared. This is the endpoint's part: :class:`Faulting` is consulted for every request
(:meth:`Faulting.door`), every write (a :class:`~rehearsal.arm.core.operations.Faults`) and every VM that is
wanted. What befalls nodes is in :mod:`rehearsal.faults.node_faults`.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from aiohttp import web

from launch.nodeset import base36
from rehearsal.arm.auth.authentication import SENDER
from rehearsal.arm.core.errors import ArmError
from rehearsal.arm.core.ids import ResourceId
from rehearsal.arm.core.operations import Fault
from rehearsal.arm.offers import market
from rehearsal.faults import arm_errors
from rehearsal.faults.fault_kinds import Order

if TYPE_CHECKING:
    from rehearsal.arm.core.subscription import Subscription

__all__ = ["Faulting"]

_SCALE_SETS = "microsoft.compute/virtualmachinescalesets"
_NETWORKS = "microsoft.network/virtualnetworks"
_READS = ("GET", "HEAD")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(slots=True)
class _Set:
    """One fault that is set, and what it has done so far."""

    order: Order
    since: float
    passed: int = 0
    struck: int = 0
    held: list[Fault] = field(default_factory=list)

    def strikes(self, now: float) -> bool:
        """Whether this time it strikes; counts it."""
        order = self.order
        if order.is_over(now - self.since, self.struck):
            return False
        if self.passed < (order.after or 0):
            self.passed += 1
            return False
        self.struck += 1
        return True


class Faulting:
    """All faults that are set; ``clock`` gives seconds that only grow."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._set: dict[str, _Set] = {}

    def set(self, order: Order) -> None:
        """Sets a fault, in place of the one of its kind that was set."""
        self._release(order.kind)
        self._set[order.kind] = _Set(order, self._clock())

    def clear(self) -> list[str]:
        """Ends all faults, and lets operations go on that never ended; the kinds that were set."""
        kinds = [order.kind for order in self.listed()]
        for kind in tuple(self._set):
            self._release(kind)
        self._set.clear()
        return kinds

    def listed(self) -> list[Order]:
        """The faults that can still strike, each with how often it has."""
        now = self._clock()
        return [
            replace(one.order, struck=one.struck)
            for one in self._set.values()
            if not one.order.is_over(now - one.since, one.struck)
            or any(not f.free.is_set() for f in one.held)
        ]

    def holds(self, kind: str) -> bool:
        """Whether a fault of this kind is set; counts nothing."""
        found = self._set.get(kind)
        return found is not None and not found.order.is_over(self._clock() - found.since, found.struck)

    def _strikes(self, kind: str) -> Order | None:
        found = self._set.get(kind)
        return found.order if found is not None and found.strikes(self._clock()) else None

    def _release(self, kind: str) -> None:
        found = self._set.get(kind)
        for fault in found.held if found is not None else ():
            fault.free.set()

    # -- requests -----------------------------------------------------------------------------------------

    @web.middleware
    async def door(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answers in place of the endpoint. An identity's token is not the operator's: those pass."""
        if request[SENDER].identity is None:
            order = self._strikes("throttle")
            if order is not None:
                seconds = round(order.seconds or 1)
                error = arm_errors.throttled(request.path, request.method, seconds)
                return _refusal(error, {"Retry-After": str(seconds)})
            if self._strikes("login"):
                return _refusal(arm_errors.expired(), {"WWW-Authenticate": 'Bearer error="invalid_token"'})
            if request.method not in _READS and self._strikes("forbidden"):
                return _refusal(arm_errors.forbidden(request.method, request.path), {})
        return await handler(request)

    # -- writes -------------------------------------------------------------------------------------------

    def __call__(self, verb: str, resource: ResourceId) -> Fault | None:
        """What befalls a write: see :class:`~rehearsal.arm.core.operations.Faults`."""
        kind = resource.type.lower()
        if verb == "put" and not resource.parts and self._strikes("conflict"):
            return Fault(error=arm_errors.being_deleted(resource.group), at_request=True)
        if verb == "delete" and kind == _NETWORKS and self._strikes("subnet"):
            return Fault(error=arm_errors.subnet_in_use(resource), at_request=True)
        if kind == _SCALE_SETS:
            order = self._strikes("stuck")
            if order is not None:
                fault = Fault(delay=order.seconds) if order.seconds else Fault(held=True)
                self._set["stuck"].held.append(fault)
                return fault
        return None

    # -- VMs ----------------------------------------------------------------------------------------------

    def refuse_growth(
        self, subscription: Subscription, resource: ResourceId, size: str, location: str, more: int
    ) -> None:
        """Raises Azure's refusal of ``more`` VMs in a scale set, before any is made."""
        if self._strikes("sku"):
            raise arm_errors.not_available(resource, location)
        if self._strikes("quota"):
            family, used, each = market.family_use(subscription, size, location)
            raise arm_errors.over_quota(family, location, used, each * more)

    def granted(self, wanted: int) -> tuple[int, ArmError | None]:
        """How many of the VMs wanted come, and what is said of the others."""
        if self._strikes("overconstrained"):
            return 0, arm_errors.overconstrained()
        found = self._set.get("allocation")
        if found is None or found.order.is_over(self._clock() - found.since, found.struck):
            return wanted, None
        come = min(found.order.after or 0, wanted)
        if come == wanted:
            return wanted, None
        found.struck += 1
        return come, arm_errors.allocation_failed()

    def node(self, kind: str, name: str) -> bool:
        """Whether a node that boots now is struck: ``no-boot`` or ``cloud-init``."""
        found = self._set.get(kind)
        if found is None:
            return False
        numbers = found.order.nodes
        if numbers and not any(name.endswith(base36(number)) for number in numbers):
            return False
        return found.strikes(self._clock())


def _refusal(error: ArmError, headers: dict[str, Any]) -> web.Response:
    return web.json_response({"error": error.body()}, status=error.status, headers=headers)
