"""Virtual machines outside scale sets."""

from __future__ import annotations

from dataclasses import replace

from rehearsal.arm.compute.managed_disks import DISKS
from rehearsal.arm.compute.physical_hosts import free_hosts
from rehearsal.arm.compute.scale_set_vms import boot
from rehearsal.arm.compute.scale_sets import machine_of, user_data
from rehearsal.arm.compute.vm_views import instance_view
from rehearsal.arm.core.errors import ArmError, missing
from rehearsal.arm.core.hooks import Body, Hooks, Work
from rehearsal.arm.core.ids import ResourceId
from rehearsal.arm.core.records import Instance, Record
from rehearsal.arm.core.references import at, reference
from rehearsal.arm.core.resource_type import ResourceType
from rehearsal.arm.network.network_interfaces import subnet_of, vm_of
from rehearsal.arm.services import Services

__all__ = ["ENTRIES"]

_IMAGE_GIB = 30
_ACTIONS = ("start", "restart", "poweroff", "deallocate", "redeploy", "reimage")
_MACHINES = ResourceType(
    "Microsoft.Compute/virtualMachines",
    "compute.VirtualMachine",
    ("vmName",),
    patch_model="compute.VirtualMachineUpdate",
    immutable=(
        "zones",
        "priority",
        "osProfile.adminUsername",
        "osProfile.computerName",
        "osProfile.customData",
        "storageProfile.imageReference",
    ),
    merges=True,
    group_rank=5,
)


class _VirtualMachineHooks(Hooks[Services]):
    """A VM boots with its resource, on the address of its first interface."""

    def accept(self, rid: ResourceId, body: Body, old: Body | None) -> Body:
        """Refuse missing parameters, a size that cannot be had, and interfaces or disks of other VMs."""
        properties = body["properties"]
        if not at(properties, "hardwareProfile", "vmSize"):
            raise missing("vmSize")
        system = properties.get("osProfile") or {}
        for name in ("computerName", "adminUsername"):
            if not system.get(name):
                raise missing(f"osProfile.{name}")
        user_data(system)
        if old is None:
            spot = properties.get("priority") == "Spot"
            size = properties["hardwareProfile"]["vmSize"]
            self.services.market.check(rid, size, body["location"], 1, spot=spot)
        nics = [ResourceId.parse(n.get("id", "")) for n in _nics(properties)]
        if not nics:
            raise missing("networkProfile")
        for nic in nics:
            holder = vm_of(self.services.subscription, nic) if nic is not None else None
            if holder is not None and holder.key != rid.key:
                problem = f"Network Interface {nic} is used by existing VM {holder}."
                raise ArmError(400, "NicInUse", problem)
        for disk in _data_disks(properties):
            holder = vm_of(self.services.subscription, disk)
            if holder is not None and holder.key != rid.key:
                problem = f"Disk {disk.name} cannot be attached to VM {rid.name}: it is attached to {holder}."
                raise ArmError(409, "AttachDiskWhileBeingDetached", problem)
        return body

    async def apply(self, record: Record, old: Body | None) -> None:
        if record.id.key in self.services.subscription.virtual_machines:
            return
        nic = self.services.subscription.find(_parsed(_nics(record.properties)[0]["id"]))
        subnet = subnet_of(nic.body)
        assert subnet is not None and nic.address is not None  # noqa: S101  (checked with the interface)
        system = record.properties["osProfile"]
        machine = machine_of(
            system, system["computerName"], nic.address, record.properties["hardwareProfile"]["vmSize"]
        )
        host = next(free_hosts(self.services.subscription))
        instance = Instance(0, replace(machine, host=host), str(subnet))
        self.services.subscription.virtual_machines[record.id.key] = instance
        self._make_system_disk(record)
        await boot(self.services, _network(instance), [instance])

    async def remove(self, record: Record) -> None:
        """End the VM; delete the disks and interfaces that go with it."""
        instance = self.services.subscription.virtual_machines.pop(record.id.key, None)
        if instance is not None:
            await self.services.machines.remove(_network(instance), [instance.machine.name])
        storage = record.properties.get("storageProfile") or {}
        ends = str(at(storage, "osDisk", "deleteOption")).lower() == "delete"
        for disk in list(self.services.subscription.of_type(DISKS.type)):
            if disk.owner == str(record.id):
                disk.owner = ""
                if ends:
                    self.services.subscription.resources.pop(disk.id.key, None)
        for also in (*_nics(record.properties), *(storage.get("dataDisks") or ())):
            how = (also.get("properties") or also).get("deleteOption", "Detach")
            target = ResourceId.parse(also.get("id") or at(also, "managedDisk", "id") or "")
            if target is not None and str(how).lower() == "delete":
                self.services.subscription.resources.pop(target.key, None)

    def show(self, record: Record, shown: Body) -> None:
        """Add ids and the system disk; remove what Azure never shows."""
        properties = shown["properties"]
        properties.update(vmId=record.guid, timeCreated=record.created)
        for secret in ("customData", "adminPassword"):
            (properties.get("osProfile") or {}).pop(secret, None)
        disk = next(
            (d for d in self.services.subscription.of_type(DISKS.type) if d.owner == str(record.id)), None
        )
        system = at(properties, "storageProfile", "osDisk")
        if disk is not None and system is not None:
            system.update(name=disk.id.name, osType="Linux", diskSizeGB=disk.properties["diskSizeGB"])
            system["managedDisk"] = {**(system.get("managedDisk") or {}), "id": str(disk.id)}

    def act(self, rid: ResourceId, record: Record, action: str, body: Body) -> Work | Body | None:
        return Work(self._power(record, action)) if action in _ACTIONS else None

    async def part(self, record: Record, name: str) -> Body | None:
        if name != "instanceview":
            return None
        instance = self.services.subscription.virtual_machines[record.id.key]
        return instance_view(instance, await self.services.machines.running(_network(instance)))

    async def _power(self, record: Record, action: str) -> None:
        instance = self.services.subscription.virtual_machines[record.id.key]
        if action != "start":
            await self.services.machines.remove(_network(instance), [instance.machine.name])
        instance.deallocated = action == "deallocate"
        if action in ("start", "restart", "redeploy", "reimage"):
            await boot(self.services, _network(instance), [instance])

    def _make_system_disk(self, record: Record) -> None:
        wanted = at(record.properties, "storageProfile", "osDisk") or {}
        name = wanted.get("name") or f"{record.id.name}_OsDisk_1_{record.guid.replace('-', '')}"
        base = ResourceId(record.id.subscription, record.id.group)
        rid = base.extended("Microsoft.Compute", ("disks", name))
        body = {
            "location": record.body["location"],
            "sku": {"name": (wanted.get("managedDisk") or {}).get("storageAccountType", "Standard_LRS")},
            # Whether Azure gives it the VM's tags is not known: without tags it is harder to find.
            "properties": {
                "osType": "Linux",
                "creationData": {"createOption": "FromImage"},
                "diskSizeGB": wanted.get("diskSizeGB") or _IMAGE_GIB,
            },
        }
        self.services.subscription.add(Record(rid, DISKS, body, "Succeeded", owner=str(record.id)))


def _nics(properties: Body) -> list[Body]:
    return list(at(properties, "networkProfile", "networkInterfaces") or ())


def _data_disks(properties: Body) -> list[ResourceId]:
    found = [reference(d, "managedDisk") for d in at(properties, "storageProfile", "dataDisks") or ()]
    return [d for d in found if d is not None]


def _network(instance: Instance) -> str:
    return str(_parsed(instance.subnet).parent)


def _parsed(text: str) -> ResourceId:
    rid = ResourceId.parse(text)
    assert rid is not None  # noqa: S101  (dangling references are refused before)
    return rid


ENTRIES = ((_MACHINES, _VirtualMachineHooks),)
