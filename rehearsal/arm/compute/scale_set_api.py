"""What can be asked below a scale set (VMs, interfaces) and of a backend pool (port mappings)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from rehearsal.arm.compute import scale_set_power, scale_sets
from rehearsal.arm.core import views
from rehearsal.arm.core.errors import ArmError
from rehearsal.arm.core.ids import ResourceId
from rehearsal.arm.core.models import check, model
from rehearsal.arm.core.operations import Operation
from rehearsal.arm.core.records import Instance, Record
from rehearsal.arm.core.subscription import Subscription

__all__ = ["Answer", "answer"]

_SET = 2
_VM = 4


@dataclass(frozen=True, slots=True)
class Answer:
    """A body, or the operation that was started."""

    body: dict[str, Any] | None = None
    operation: Operation | None = None

    def response(self) -> web.Response:
        """The body over HTTP; without one there is nothing to say."""
        return web.Response(status=204) if self.body is None else web.json_response(self.body)


async def answer(  # noqa: PLR0911  (one return a path reads better than one variable)
    request: web.Request, subscription: Subscription, group: ResourceId, parts: tuple[str, ...]
) -> Answer | None:
    """The answer for a path below a scale set or a pool's query; None for every other path.

    Interfaces of scale sets are asked of either ``Microsoft.Compute`` or ``Microsoft.Network``.
    """
    lower = tuple(p.lower() for p in parts)
    if lower[0] == "loadbalancers" and lower[-1] == "queryinboundnatruleportmapping":
        return await _port_mapping(request, subscription, group, parts)
    if lower[0] != "virtualmachinescalesets" or len(parts) <= _SET:
        return None
    rid = ResourceId(subscription.id, group.group, "Microsoft.Compute", ("virtualMachineScaleSets", parts[1]))
    record = subscription.find(rid)
    held = subscription.scale_sets.get(rid.key)
    instances = [held.instances[n] for n in sorted(held.instances)] if held is not None else []
    rest = lower[_SET:]
    if rest == ("instanceview",):
        return Answer(views.scale_set_view(instances))
    if rest == ("networkinterfaces",):
        return Answer({"value": [n for i in instances for n in _interfaces(record, i)]})
    if rest == ("virtualmachines",):
        alive = None
        if request.query.get("$expand", "").lower() == "instanceview":
            alive = await _alive(subscription, record)
        return Answer({"value": [views.virtual_machine(record, i, alive) for i in instances]})
    if len(rest) == 1 and request.method == "POST":
        return Answer(operation=await _act(request, subscription, record, instances, rest[0]))
    if rest[0] == "virtualmachines" and len(parts) >= _VM:
        return await _of_vm(request, subscription, record, instances, rest[1:])
    raise ArmError(400, "InvalidResourceType", f"The resource type '{'/'.join(parts[::2])}' is not emulated.")


async def _alive(subscription: Subscription, record: Record) -> frozenset[str]:
    held = subscription.scale_sets.get(record.id.key)
    return await subscription.machines.running(held.network) if held is not None else frozenset()


def _interfaces(record: Record, instance: Instance) -> list[dict[str, Any]]:
    profile = record.properties["virtualMachineProfile"].get("networkProfile") or {}
    nics = profile.get("networkInterfaceConfigurations") or ()
    return [views.interface(record, instance, nic) for nic in nics]


async def _act(
    request: web.Request, subscription: Subscription, record: Record, instances: list[Instance], action: str
) -> Operation:
    wanted = json.loads(await request.text() or "{}").get("instanceIds")
    if action == "delete":
        return _delete(subscription, record, scale_set_power.chosen(instances, wanted or [""]))
    # Without ids it is meant for all.
    return _power(subscription, record, scale_set_power.chosen(instances, wanted or ["*"]), action)


def _delete(subscription: Subscription, record: Record, instances: list[Instance]) -> Operation:
    work = scale_sets.delete_instances(subscription, record, [i.id for i in instances])
    return subscription.begin(record, "post", work, "Updating")


def _power(subscription: Subscription, record: Record, instances: list[Instance], action: str) -> Operation:
    if action not in scale_set_power.ACTIONS:
        raise ArmError(404, "NotFound", f"The action '{action}' of a scale set is not emulated.")
    scale_set = subscription.scale_sets[record.id.key]
    work = scale_set_power.power(subscription, scale_set, instances, action)
    return subscription.begin(record, "post", work, "Updating")


async def _of_vm(
    request: web.Request,
    subscription: Subscription,
    record: Record,
    instances: list[Instance],
    rest: tuple[str, ...],
) -> Answer:
    instance = next((i for i in instances if str(i.id) == rest[0]), None)
    if instance is None:
        problem = f"The entity was not found: instance {rest[0]} of {record.id.name}."
        raise ArmError(404, "NotFound", problem)
    below = rest[1:]
    if not below and request.method == "DELETE":
        return Answer(operation=_delete(subscription, record, [instance]))
    if len(below) == 1 and request.method == "POST":
        return _act_on_vm(subscription, record, instance, below[0])
    if not below:
        expand = request.query.get("$expand", "").lower() == "instanceview"
        alive = await _alive(subscription, record) if expand else None
        return Answer(views.virtual_machine(record, instance, alive))
    if below == ("instanceview",):
        return Answer(views.instance_view(instance, await _alive(subscription, record)))
    if below == ("networkinterfaces",):
        return Answer({"value": _interfaces(record, instance)})
    raise ArmError(400, "InvalidResourceType", f"'{below[0]}' of a scale set's VM is not emulated.")


def _act_on_vm(subscription: Subscription, record: Record, instance: Instance, action: str) -> Answer:
    if action == "simulateeviction":
        scale_set_power.simulate_eviction(subscription, record, instance)
        return Answer()
    return Answer(operation=_power(subscription, record, [instance], action))


async def _port_mapping(
    request: web.Request, subscription: Subscription, group: ResourceId, parts: tuple[str, ...]
) -> Answer:
    rid = ResourceId(subscription.id, group.group, "Microsoft.Network", parts[:-1])
    record = subscription.find(rid)
    wanted = check(model("network.QueryInboundNatRulePortMappingRequest"), json.loads(await request.text()))
    configuration = (wanted.get("ipConfiguration") or {}).get("id", "").lower()
    found = [
        mapping
        for member in subscription.balancer.members(rid)
        if configuration == member.configuration_id.key
        or wanted.get("ipAddress") == member.instance.machine.private_ip
        for mapping in subscription.balancer.mapping(member, rid)
    ]

    async def work() -> dict[str, Any]:
        return {"inboundNatRulePortMappings": found}

    return Answer(operation=subscription.begin(record, "post", work(), None))
