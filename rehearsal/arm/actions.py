"""What a POST asks of a resource (power, builds, keys), and its parts that are no resources."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from rehearsal.arm.compute import galleries, virtual_machines
from rehearsal.arm.compute.compute_types import MACHINES, TEMPLATES
from rehearsal.arm.core import views
from rehearsal.arm.core.errors import ArmError
from rehearsal.arm.core.ids import ResourceId
from rehearsal.arm.core.operations import Operation
from rehearsal.arm.core.records import Record
from rehearsal.arm.core.subscription import Subscription
from rehearsal.arm.storage.accounts import account_key
from rehearsal.arm.storage.storage_types import ACCOUNTS

__all__ = ["act", "look", "machine_view"]

_POWER = ("start", "restart", "poweroff", "deallocate", "redeploy", "reimage")


async def act(subscription: Subscription, rid: ResourceId, action: str) -> Operation | web.Response:
    """The answer to a POST of ``action`` on ``rid``: the operation it starts, or what it says."""
    record = subscription.find(rid)
    known = action.lower()
    if record.kind.type == MACHINES and known in _POWER:
        work = virtual_machines.power(subscription, record, known)
        return subscription.begin(record, "post", work, "Updating")
    if record.kind.type == TEMPLATES and known == "run":
        work = galleries.run_template(subscription, record)
        return subscription.begin(record, "post", work, "Updating")
    if record.kind.type == ACCOUNTS and known == "listkeys":
        return web.json_response({"keys": [_key(record, n) for n in ("key1", "key2")]})
    raise ArmError(404, "NotFound", f"The action '{action}' of {rid.type} is not emulated.")


async def look(subscription: Subscription, rid: ResourceId, what: str) -> web.Response | None:
    """The answer to a GET of a part of ``rid`` that is no resource; None when it is none that is known."""
    if rid.type.lower() == MACHINES.lower() and what.lower() == "instanceview":
        record = subscription.find(rid)
        return web.json_response(await machine_view(subscription, record))
    if rid.type.lower() == TEMPLATES.lower() and what.lower() == "runoutputs":
        return web.json_response({"value": galleries.run_outputs(subscription, subscription.find(rid))})
    return None


async def machine_view(subscription: Subscription, record: Record) -> dict[str, Any]:
    """State and power of a VM that is in no scale set."""
    instance = subscription.virtual_machines[record.id.key]
    subnet = ResourceId.parse(instance.subnet)
    network = str(subnet.parent) if subnet is not None else ""
    return views.instance_view(instance, await subscription.machines.running(network))


def _key(record: Record, name: str) -> dict[str, Any]:
    key = account_key(record, name)
    return {"keyName": name, "value": key, "permissions": "FULL", "creationTime": record.created}
