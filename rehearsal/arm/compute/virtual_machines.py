"""Virtual machines that are in no scale set, and managed disks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from launch.errors import RankliftError
from rehearsal.arm.compute.compute_types import DISKS, MACHINES
from rehearsal.arm.compute.scale_sets import user_data
from rehearsal.arm.core.errors import ArmError
from rehearsal.arm.core.hooks import Hooks
from rehearsal.arm.core.ids import ResourceId
from rehearsal.arm.core.records import Instance, Record
from rehearsal.arm.core.registry import kind_of
from rehearsal.arm.network.private_link import machine_of, subnet_of
from rehearsal.arm.offers import market
from rehearsal.vms.api import Machine

if TYPE_CHECKING:
    from rehearsal.arm.core.subscription import Subscription

__all__ = ["HOOKS", "power"]

Body = dict[str, Any]
_GIB = 1 << 30
_IMAGE_GIB = 30


def _missing(parameter: str) -> ArmError:
    problem = f"Required parameter '{parameter}' is missing (null)."
    return ArmError(400, "InvalidParameter", problem, parameter)


def _accept_machine(subscription: Subscription, rid: ResourceId, body: Body, old: Body | None) -> Body:
    properties = {**((old or {}).get("properties") or {}), **(body.get("properties") or {})}
    if not (properties.get("hardwareProfile") or {}).get("vmSize"):
        raise _missing("vmSize")
    system = properties.get("osProfile") or {}
    for name in ("computerName", "adminUsername"):
        if not system.get(name):
            raise _missing(f"osProfile.{name}")
    user_data(system)
    if old is None:
        spot = properties.get("priority") == "Spot"
        market.check(
            subscription, rid, properties["hardwareProfile"]["vmSize"], body["location"], 1, spot=spot
        )
    nics = [ResourceId.parse(n.get("id", "")) for n in _nics(properties)]
    if not nics:
        raise _missing("networkProfile")
    for nic in nics:
        holder = machine_of(subscription, nic) if nic is not None else None
        if holder is not None and holder.key != rid.key:
            problem = f"Network Interface {nic} is used by existing VM {holder}."
            raise ArmError(400, "NicInUse", problem)
    for disk in _data_disks(properties):
        holder = machine_of(subscription, disk)
        if holder is not None and holder.key != rid.key:
            problem = f"Disk {disk.name} cannot be attached to VM {rid.name}: it is attached to {holder}."
            raise ArmError(409, "AttachDiskWhileBeingDetached", problem)
    return {**body, "properties": properties}


def _nics(properties: Body) -> list[Body]:
    return list((properties.get("networkProfile") or {}).get("networkInterfaces") or ())


def _data_disks(properties: Body) -> list[ResourceId]:
    disks = (properties.get("storageProfile") or {}).get("dataDisks") or ()
    found = [ResourceId.parse((d.get("managedDisk") or {}).get("id", "")) for d in disks]
    return [d for d in found if d is not None]


async def _apply_machine(subscription: Subscription, record: Record, _old: Body | None) -> None:
    if record.id.key in subscription.virtual_machines:
        return
    nic = subscription.find(_parsed(_nics(record.properties)[0]["id"]))
    subnet = subnet_of(nic.body)
    assert subnet is not None and nic.address is not None  # noqa: S101  (checked with the interface)
    system = record.properties["osProfile"]
    keys = ((system.get("linuxConfiguration") or {}).get("ssh") or {}).get("publicKeys") or ()
    machine = Machine(
        name=system["computerName"],
        private_ip=nic.address,
        admin_user=system["adminUsername"],
        authorized_keys=tuple(k["keyData"] for k in keys if k.get("keyData")),
        user_data=user_data(system),
    )
    instance = Instance(0, machine, str(subnet))
    subscription.virtual_machines[record.id.key] = instance
    _make_system_disk(subscription, record)
    await _boot(subscription, instance)


async def _boot(subscription: Subscription, instance: Instance) -> None:
    network = str(_parsed(instance.subnet).parent)
    try:
        await subscription.machines.boot(network, [instance.machine])
    except (RankliftError, OSError) as error:
        instance.state = "Failed"
        raise ArmError(
            409,
            "OSProvisioningTimedOut",
            f"OS Provisioning for VM '{instance.machine.name}' did not finish in the allotted time. The VM "
            f"may still finish provisioning successfully. Please check provisioning state later. {error}",
        ) from error
    instance.state = "Succeeded"


def _parsed(text: str) -> ResourceId:
    rid = ResourceId.parse(text)
    assert rid is not None  # noqa: S101  (dangling references are refused before)
    return rid


def _make_system_disk(subscription: Subscription, record: Record) -> None:
    kind = kind_of(DISKS)
    assert kind is not None  # noqa: S101
    wanted = (record.properties.get("storageProfile") or {}).get("osDisk") or {}
    name = wanted.get("name") or f"{record.id.name}_OsDisk_1_{record.guid.replace('-', '')}"
    base = ResourceId(record.id.subscription, record.id.group)
    rid = base.extended("Microsoft.Compute", ("disks", name))
    body = {
        "location": record.body["location"],
        "sku": {"name": (wanted.get("managedDisk") or {}).get("storageAccountType", "Standard_LRS")},
        # Whether Azure gives it the VM's tags is not known here: it gets none, so that it has to be found.
        "properties": {
            "osType": "Linux",
            "creationData": {"createOption": "FromImage"},
            "diskSizeGB": wanted.get("diskSizeGB") or _IMAGE_GIB,
        },
    }
    subscription.resources[rid.key] = Record(rid, kind, body, "Succeeded", owner=str(record.id))


async def _remove_machine(subscription: Subscription, record: Record) -> None:
    instance = subscription.virtual_machines.pop(record.id.key, None)
    if instance is not None:
        await subscription.machines.remove(str(_parsed(instance.subnet).parent), [instance.machine.name])
    storage = record.properties.get("storageProfile") or {}
    ends = str((storage.get("osDisk") or {}).get("deleteOption", "Detach")).lower() == "delete"
    for disk in list(subscription.of_type(DISKS)):
        if disk.owner == str(record.id):
            disk.owner = ""
            if ends:
                subscription.resources.pop(disk.id.key, None)
    for also in (*_nics(record.properties), *(storage.get("dataDisks") or ())):
        how = (also.get("properties") or also).get("deleteOption", "Detach")
        target = ResourceId.parse(also.get("id") or (also.get("managedDisk") or {}).get("id", ""))
        if target is not None and str(how).lower() == "delete":
            subscription.resources.pop(target.key, None)


def _show_machine(subscription: Subscription, record: Record, shown: Body) -> None:
    properties = shown["properties"]
    properties.update(vmId=record.guid, timeCreated=record.created)
    for secret in ("customData", "adminPassword"):
        (properties.get("osProfile") or {}).pop(secret, None)
    disk = next((d for d in subscription.of_type(DISKS) if d.owner == str(record.id)), None)
    system = (properties.get("storageProfile") or {}).get("osDisk")
    if disk is not None and system is not None:
        system.update(name=disk.id.name, osType="Linux", diskSizeGB=disk.properties["diskSizeGB"])
        system["managedDisk"] = {**(system.get("managedDisk") or {}), "id": str(disk.id)}


async def power(subscription: Subscription, record: Record, action: str) -> None:
    """Does ``start``, ``restart``, ``powerOff``, ``deallocate`` or ``redeploy`` to a VM."""
    instance = subscription.virtual_machines[record.id.key]
    if action.lower() != "start":
        await subscription.machines.remove(str(_parsed(instance.subnet).parent), [instance.machine.name])
    instance.deallocated = action.lower() == "deallocate"
    if action.lower() in ("start", "restart", "redeploy", "reimage"):
        await _boot(subscription, instance)


# -- disks ------------------------------------------------------------------------------------------------


def _holder(subscription: Subscription, rid: ResourceId) -> str:
    record = subscription.resources.get(rid.key)
    holder = machine_of(subscription, rid)
    return str(holder or (record.owner if record is not None else ""))


def _accept_disk(_: Subscription, rid: ResourceId, body: Body, old: Body | None) -> Body:
    properties = {**((old or {}).get("properties") or {}), **(body.get("properties") or {})}
    if not properties.get("creationData"):
        raise _missing("disk.creationData")
    size, before = properties.get("diskSizeGB"), ((old or {}).get("properties") or {}).get("diskSizeGB")
    if properties["creationData"].get("createOption") == "Empty" and not size:
        raise _missing("disk.diskSizeGB")
    if before is not None and size is not None and size < before:
        problem = f"New disk size specified ({size} GB) of disk {rid.name} is less than it has ({before} GB)."
        raise ArmError(409, "OperationNotAllowed", f"{problem} Shrinking of managed disks is not supported.")
    return {**body, "properties": properties}


def _release_disk(subscription: Subscription, rid: ResourceId) -> None:
    holder = _holder(subscription, rid)
    if holder:
        raise ArmError(409, "OperationNotAllowed", f"Disk {rid.name} is attached to VM {holder}.")


def _show_disk(subscription: Subscription, record: Record, shown: Body) -> None:
    holder = _holder(subscription, record.id)
    properties = shown["properties"]
    properties.update(
        diskState="Attached" if holder else "Unattached",
        timeCreated=record.created,
        uniqueId=record.guid,
        diskSizeBytes=(properties.get("diskSizeGB") or 0) * _GIB,
    )
    if holder:
        shown["managedBy"] = holder


HOOKS = {
    MACHINES: Hooks(accept=_accept_machine, apply=_apply_machine, remove=_remove_machine, show=_show_machine),
    DISKS: Hooks(accept=_accept_disk, release=_release_disk, show=_show_disk),
}
