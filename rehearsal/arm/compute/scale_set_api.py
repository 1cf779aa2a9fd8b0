"""Requests below a scale set: its VMs, their power and their interfaces."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from rehearsal.arm.compute import scale_set_vms, vm_views
from rehearsal.arm.core.errors import ArmError
from rehearsal.arm.core.ids import ResourceId
from rehearsal.arm.core.models import check, model
from rehearsal.arm.core.operations import Operation
from rehearsal.arm.core.records import Instance, Record
from rehearsal.arm.core.resource_manager import ResourceManager
from rehearsal.arm.services import Services
from rehearsal.imds.termination import EVICTION_NOTICE_S

__all__ = ["ScaleSetApi"]

_SET = 2
_VM = 4


@dataclass(frozen=True, slots=True)
class ScaleSetApi:
    """Paths below scale sets; the scale sets themselves are ordinary resources."""

    manager: ResourceManager
    services: Services

    async def answer(self, request: web.Request, asked: ResourceId) -> web.Response | Operation | None:
        """Return the answer for a path below a scale set, or the started operation; None for other paths.

        Interfaces of scale sets are requested from ``Microsoft.Compute`` and from ``Microsoft.Network``.
        """
        parts, lower = asked.parts, tuple(p.lower() for p in asked.parts)
        if lower[0] != "virtualmachinescalesets" or len(parts) <= _SET:
            return None
        subscription = self.manager.subscription
        own = ("virtualMachineScaleSets", parts[1])
        rid = ResourceId(subscription.id, asked.group, "Microsoft.Compute", own)
        record = subscription.find(rid)
        held = subscription.scale_sets.get(rid.key)
        instances = [held.instances[n] for n in sorted(held.instances)] if held is not None else []
        rest = lower[_SET:]
        if rest == ("instanceview",):
            return web.json_response(vm_views.scale_set_view(instances))
        if rest == ("networkinterfaces",):
            return web.json_response({"value": [n for i in instances for n in _interfaces(record, i)]})
        if rest == ("virtualmachines",):
            alive = await self._alive(record) if _expands(request) else None
            shown = [vm_views.virtual_machine(record, i, alive) for i in instances]
            return web.json_response({"value": shown})
        if len(rest) == 1 and request.method == "POST":
            return await self._act(request, record, instances, rest[0])
        if rest[0] == "virtualmachines" and len(parts) >= _VM:
            return await self._of_vm(request, record, instances, rest[1:])
        problem = f"The resource type '{'/'.join(parts[::2])}' is not emulated."
        raise ArmError(400, "InvalidResourceType", problem)

    async def _alive(self, record: Record) -> frozenset[str]:
        held = self.manager.subscription.scale_sets.get(record.id.key)
        return await self.services.machines.running(held.network) if held is not None else frozenset()

    async def _act(
        self, request: web.Request, record: Record, instances: list[Instance], action: str
    ) -> Operation:
        body = json.loads(await request.text() or "{}")
        if action == "delete":
            wanted = check(model("compute.VirtualMachineScaleSetVMInstanceRequiredIDs"), body)["instanceIds"]
            return self._delete(record, scale_set_vms.chosen(instances, wanted or [""]))
        # Without ids it is meant for all.
        wanted = body.get("instanceIds") or ["*"]
        return self._power(record, scale_set_vms.chosen(instances, wanted), action)

    def _delete(self, record: Record, instances: list[Instance]) -> Operation:
        work = scale_set_vms.delete_instances(self.services, record, [i.id for i in instances])
        return self.manager.begin(record, "post", work, "Updating")

    def _power(self, record: Record, instances: list[Instance], action: str) -> Operation:
        if action not in scale_set_vms.ACTIONS:
            raise ArmError(404, "NotFound", f"The action '{action}' of a scale set is not emulated.")
        scale_set = self.manager.subscription.scale_sets[record.id.key]
        work = scale_set_vms.power(self.services, scale_set, instances, action)
        return self.manager.begin(record, "post", work, "Updating")

    async def _of_vm(
        self, request: web.Request, record: Record, instances: list[Instance], rest: tuple[str, ...]
    ) -> web.Response | Operation:
        instance = next((i for i in instances if str(i.id) == rest[0]), None)
        if instance is None:
            problem = f"The entity was not found: instance {rest[0]} of {record.id.name}."
            raise ArmError(404, "NotFound", problem)
        below = rest[1:]
        if not below and request.method == "DELETE":
            return self._delete(record, [instance])
        if len(below) == 1 and request.method == "POST":
            return self._act_on_vm(record, instance, below[0])
        if not below:
            alive = await self._alive(record) if _expands(request) else None
            return web.json_response(vm_views.virtual_machine(record, instance, alive))
        if below == ("instanceview",):
            return web.json_response(vm_views.instance_view(instance, await self._alive(record)))
        if below == ("networkinterfaces",):
            return web.json_response({"value": _interfaces(record, instance)})
        raise ArmError(400, "InvalidResourceType", f"'{below[0]}' of a scale set's VM is not emulated.")

    def _act_on_vm(self, record: Record, instance: Instance, action: str) -> web.Response | Operation:
        if action != "simulateeviction":
            return self._power(record, [instance], action)
        scale_set_vms.refuse_eviction(record, instance)
        work = scale_set_vms.evict(self.services, record, [instance.id], EVICTION_NOTICE_S)
        self.manager.begin(record, "post", work, None)
        return web.Response(status=204)


def _expands(request: web.Request) -> bool:
    return request.query.get("$expand", "").lower() == "instanceview"


def _interfaces(record: Record, instance: Instance) -> list[dict[str, Any]]:
    profile = record.properties["virtualMachineProfile"].get("networkProfile") or {}
    nics = profile.get("networkInterfaceConfigurations") or ()
    return [vm_views.interface(record, instance, nic) for nic in nics]
