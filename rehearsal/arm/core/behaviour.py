"""What each resource type checks before a write and does in the course of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rehearsal.arm.auth import identities
from rehearsal.arm.auth.identity_types import ASSIGNMENTS
from rehearsal.arm.compute import galleries, scale_sets, virtual_machines
from rehearsal.arm.core.errors import ArmError
from rehearsal.arm.core.hooks import Hooks
from rehearsal.arm.core.ids import ResourceId
from rehearsal.arm.core.records import Record, place
from rehearsal.arm.core.references import references
from rehearsal.arm.core.registry import Kind, kind_of
from rehearsal.arm.network import private_link, virtual_networks
from rehearsal.arm.storage import accounts

if TYPE_CHECKING:
    from rehearsal.arm.core.subscription import Subscription

__all__ = ["accept", "apply", "hooks", "refuse_in_use", "remove"]

NETWORKS = "Microsoft.Network/virtualNetworks"


_HOOKS: Mapping[str, Hooks] = {
    **virtual_networks.HOOKS,
    **private_link.HOOKS,
    **scale_sets.HOOKS,
    **virtual_machines.HOOKS,
    **galleries.HOOKS,
    **identities.HOOKS,
    **accounts.HOOKS,
}
_PLAIN = Hooks()


def hooks(kind: Kind) -> Hooks:
    """What a resource type does besides being kept."""
    return _HOOKS.get(kind.type, _PLAIN)


def accept(
    subscription: Subscription, rid: ResourceId, kind: Kind, body: dict[str, Any], old: dict[str, Any] | None
) -> dict[str, Any]:
    """The body that will hold, or an :class:`ArmError` before anything has changed."""
    if kind.tracked:
        body = _placed(rid, body, old)
    if old is not None:
        body = _kept(kind, body, old)
        _refuse_immutable(kind, body, old)
        _refuse_lost_children(subscription, rid, kind, body, old)
    _refuse_dangling(subscription, rid, kind, body)
    identities.check_assigned(subscription, rid, body)
    return hooks(kind).accept(subscription, rid, body, old)


def _placed(rid: ResourceId, body: dict[str, Any], old: dict[str, Any] | None) -> dict[str, Any]:
    if not body.get("location"):
        raise ArmError(400, "LocationRequired", "The location property is required for this definition.")
    if old is not None and place(old["location"]) != place(body["location"]):
        raise ArmError(
            409,
            "InvalidResourceLocation",
            f"The resource '{rid.name}' already exists in location '{place(old['location'])}' in resource "
            f"group '{rid.group}'. A resource with the same name cannot be created in location "
            f"'{body['location']}'. Please select a new resource name.",
        )
    return {**body, "location": place(body["location"])}


async def apply(subscription: Subscription, record: Record, old: dict[str, Any] | None) -> None:
    """Makes the accepted body real."""
    await hooks(record.kind).apply(subscription, record, old)


async def remove(subscription: Subscription, record: Record) -> None:
    """Takes away what :func:`apply` made."""
    await hooks(record.kind).remove(subscription, record)


def refuse_in_use(subscription: Subscription, rid: ResourceId) -> None:
    """Raises Azure's refusal when something outside ``rid`` needs it."""
    kind = kind_of(rid.type)
    if kind is None:
        return
    hooks(kind).release(subscription, rid)
    inside = [r for r in subscription.inside(rid) if r.kind.before_parent and r.id.parent.key == rid.key]
    if inside:
        problem = f"Can not delete resource before nested resources are deleted: {inside[0].id}."
        raise ArmError(409, "CannotDeleteResource", problem)
    holder = next(subscription.holders(rid), None) if kind.in_use else None
    if holder is not None:
        raise ArmError(400, kind.in_use, _in_use(kind, rid, holder))


def _in_use(kind: Kind, rid: ResourceId, holder: ResourceId) -> str:
    if kind.in_use == "InUseSubnetCannotBeDeleted":
        return (
            f"Subnet {rid.name} is in use by {holder} and cannot be deleted. In order to delete the subnet, "
            "delete all the resources within the subnet. See aka.ms/deletesubnet."
        )
    if kind.in_use == "PublicIPAddressCannotBeDeleted":
        return (
            f"Public IP address {rid} can not be deleted since it is still allocated to resource {holder}. "
            "In order to delete the public IP, disassociate/detach the Public IP address from the resource. "
            "To learn how to do this, see aka.ms/deletepublicip."
        )
    if kind.in_use == "LoadBalancerInUseByVirtualMachineScaleSet":
        return f"Cannot delete load balancer {rid} since it is in use by virtual machine scale set {holder}."
    if kind.in_use == "NicInUse":
        return (
            f"Network Interface {rid} is used by existing resource {holder}. In order to delete the network "
            "interface, it must be dissociated from the resource. To learn more, see aka.ms/deletenic."
        )
    return f"{rid.short} cannot be deleted because it is in use by the following resources: {holder}."


def _kept(kind: Kind, body: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
    # A network written without its subnets keeps them, as Azure does; other lists are replaced.
    if kind.type != NETWORKS or "subnets" in (body.get("properties") or {}):
        return body
    kept = (old.get("properties") or {}).get("subnets")
    return {**body, "properties": {**(body.get("properties") or {}), "subnets": kept or []}}


def _refuse_immutable(kind: Kind, body: dict[str, Any], old: dict[str, Any]) -> None:
    for path in kind.immutable:
        before, after = _at(old, path), _at(body, path)
        if before is not None and after is not None and before != after:
            if kind.type == ASSIGNMENTS:
                problem = "Tenant ID, application ID, principal ID, and scope are not allowed to be updated."
                raise ArmError(400, "RoleAssignmentUpdateNotPermitted", problem)
            problem = f"Changing property '{path}' is not allowed."
            raise ArmError(409, "PropertyChangeNotAllowed", problem, path)


def _at(body: dict[str, Any], path: str) -> Any:
    first, *rest = path.split(".")
    value = body.get(first, (body.get("properties") or {}).get(first))
    for name in rest:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _refuse_lost_children(
    subscription: Subscription, rid: ResourceId, kind: Kind, body: dict[str, Any], old: dict[str, Any]
) -> None:
    for collection in kind.children:
        kept = {e.get("name", "").lower() for e in (body.get("properties") or {}).get(collection) or ()}
        for element in (old.get("properties") or {}).get(collection) or ():
            if element.get("name", "").lower() not in kept:
                refuse_in_use(subscription, rid.child(collection, element["name"]))


def _refuse_dangling(subscription: Subscription, rid: ResourceId, kind: Kind, body: dict[str, Any]) -> None:
    own = {
        rid.child(collection, element.get("name", "")).key
        for collection in kind.children
        for element in (body.get("properties") or {}).get(collection) or ()
    }
    for holder, target in references(rid, body, kind.children, kind.loose):
        inside = target.key.startswith(f"{rid.key}/")
        known = kind_of(target.type) is not None
        if (inside and target.key not in own) or (known and not inside and not subscription.exists(target)):
            raise ArmError(
                400,
                "InvalidResourceReference",
                f"Resource {target} referenced by resource {holder} was not found. Please make sure that the "
                "referenced resource exists, and that both resources are in the same region.",
            )
