"""Faults of the endpoint: which are set, what they hit, and with which of Azure's errors.

A fault is set by kind and stays until it has hit as often as requested, its time is over, or it is cleared.
:class:`ArmFaults` is asked about every request (:meth:`ArmFaults.middleware`), every write (as
:class:`~rehearsal.arm.core.operations.Faults`) and every VM that is wanted (as
:class:`~rehearsal.arm.offers.market.Scarcity`). Faults of nodes are in :mod:`rehearsal.faults.node_faults`.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from aiohttp import web

from launch.nodeset import base36
from rehearsal.arm.auth.authentication import SENDER
from rehearsal.arm.core.errors import (
    ArmError,
    being_deleted,
    may_not_make_images,
    not_available,
    over_quota,
)
from rehearsal.arm.core.ids import ResourceId
from rehearsal.arm.core.operations import Fault
from rehearsal.arm.offers.market import Scarcity
from rehearsal.arm.resource_types import RESOURCE_TYPES
from rehearsal.faults import arm_errors
from rehearsal.faults.fault_kinds import FaultSpec

__all__ = ["ArmFaults"]

_SCALE_SETS = "microsoft.compute/virtualmachinescalesets"
_NETWORKS = "microsoft.network/virtualnetworks"
_ASSIGNMENTS = "microsoft.authorization/roleassignments"
_IMPACTS = "microsoft.impact/workloadimpacts"
_TEMPLATES = "microsoft.virtualmachineimages/imagetemplates"
_READS = ("GET", "HEAD")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(slots=True)
class _SetFault:
    """One fault that is set, with its counts."""

    spec: FaultSpec
    since: float
    passed: int = 0
    hits: int = 0
    held: list[Fault] = field(default_factory=list)

    def hit(self, now: float) -> bool:
        """Count one occasion; return whether the fault hits it."""
        spec = self.spec
        if spec.is_over(now - self.since, self.hits):
            return False
        if self.passed < (spec.after or 0):
            self.passed += 1
            return False
        self.hits += 1
        return True


class ArmFaults(Scarcity):
    """The faults that are set; ``clock`` returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._set: dict[str, _SetFault] = {}

    def set(self, spec: FaultSpec) -> None:
        """Set a fault, in place of the one of its kind."""
        self._release(spec.kind)
        self._set[spec.kind] = _SetFault(spec, self._clock())

    def clear(self) -> list[str]:
        """Clear all faults and release the operations they hold; return the kinds that were set."""
        kinds = [spec.kind for spec in self.listed()]
        for kind in tuple(self._set):
            self._release(kind)
        self._set.clear()
        return kinds

    def listed(self) -> list[FaultSpec]:
        """Return the faults that can still hit, each with its count."""
        now = self._clock()
        return [
            replace(one.spec, hits=one.hits)
            for one in self._set.values()
            if not one.spec.is_over(now - one.since, one.hits) or any(not f.free.is_set() for f in one.held)
        ]

    def _hit(self, kind: str) -> FaultSpec | None:
        found = self._set.get(kind)
        return found.spec if found is not None and found.hit(self._clock()) else None

    def _release(self, kind: str) -> None:
        found = self._set.get(kind)
        for fault in found.held if found is not None else ():
            fault.free.set()

    # -- requests -----------------------------------------------------------------------------------------

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer in place of the endpoint. Requests with an identity's token, not the operator's, pass."""
        if request[SENDER].identity is None:
            spec = self._hit("throttle")
            if spec is not None:
                seconds = round(spec.seconds or 1)
                error = arm_errors.throttled(request.path, request.method, seconds)
                headers = {"Retry-After": str(seconds)}
                return web.json_response({"error": error.body()}, status=error.status, headers=headers)
            if self._hit("login"):
                raise arm_errors.expired()
            if request.method not in _READS and self._hit("forbidden"):
                raise arm_errors.forbidden(request.method, request.path, RESOURCE_TYPES)
        return await handler(request)

    # -- writes -------------------------------------------------------------------------------------------

    def __call__(self, verb: str, resource: ResourceId) -> Fault | None:
        """Return the fault of a write: see :class:`~rehearsal.arm.core.operations.Faults`."""
        kind = resource.type.lower()
        refusal = self._refusal(verb, kind, resource)
        if refusal is not None:
            return Fault(error=refusal, at_request=True)
        if kind == _SCALE_SETS:
            spec = self._hit("stuck")
            if spec is not None:
                fault = Fault(delay=spec.seconds) if spec.seconds else Fault(held=True)
                self._set["stuck"].held.append(fault)
                return fault
        return None

    def _refusal(self, verb: str, kind: str, resource: ResourceId) -> ArmError | None:
        """Return the error with which the request itself is refused."""
        if verb == "put" and not resource.parts and self._hit("conflict"):
            return being_deleted(resource.group)
        if verb == "delete" and kind == _NETWORKS and self._hit("subnet"):
            return arm_errors.subnet_in_use(resource)
        if verb == "put" and kind == _ASSIGNMENTS and self._hit("replication"):
            return arm_errors.not_replicated(self._set["replication"].hits)
        if verb == "put" and kind == _IMPACTS and self._hit("impact"):
            return arm_errors.not_registered(resource.namespace)
        if verb == "put" and kind == _TEMPLATES and self._hit("replication"):
            return may_not_make_images(resource)
        return None

    # -- storage ------------------------------------------------------------------------------------------

    def hits_storage(self, kind: str) -> FaultSpec | None:
        """Return the fault of this kind that hits a request for a blob now; counts it."""
        return self._hit(kind)

    # -- VMs ----------------------------------------------------------------------------------------------

    def refuse_growth(self, resource: ResourceId, location: str, quota: str, used: int, more: int) -> None:
        """Refuse ``more`` vCPUs of a ``quota`` of which ``used`` are in use, before any VM is created."""
        if self._hit("sku"):
            raise not_available(resource, resource.subscription, location)
        if self._hit("quota"):
            raise over_quota(quota, location, used, used, more)

    def is_certain(self, kind: str) -> bool:
        """Whether a fault of this kind hits the next VM: one that lets some pass cannot be foreseen."""
        return any(one.kind == kind and not one.after for one in self.listed())

    def granted(self, wanted: int) -> tuple[int, ArmError | None]:
        """Return how many of the VMs wanted come, and Azure's error about the others."""
        if wanted == 0:
            return 0, None
        if self._hit("overconstrained"):
            return 0, arm_errors.overconstrained()
        found = self._set.get("allocation")
        if found is None or found.spec.is_over(self._clock() - found.since, found.hits):
            return wanted, None
        come = min(found.spec.after or 0, wanted)
        if come == wanted:
            return wanted, None
        found.hits += 1
        return come, arm_errors.allocation_failed()

    def hits_boot(self, kind: str, name: str) -> bool:
        """Whether a fault of that kind hits a node that boots now; counts it."""
        found = self._set.get(kind)
        if found is None:
            return False
        numbers = found.spec.nodes
        if numbers and not any(name.endswith(base36(number)) for number in numbers):
            return False
        return found.hit(self._clock())
