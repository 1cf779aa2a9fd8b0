"""Network interfaces, of virtual machines and of private endpoints."""

from __future__ import annotations

from rehearsal.arm.core.errors import ArmError, subnet_full
from rehearsal.arm.core.hooks import Body, Hooks
from rehearsal.arm.core.ids import ResourceId
from rehearsal.arm.core.records import Record
from rehearsal.arm.core.references import at, reference
from rehearsal.arm.core.resource_type import InUse, ResourceType
from rehearsal.arm.core.subscription import Subscription
from rehearsal.arm.network.virtual_networks import free_addresses
from rehearsal.arm.services import Services

__all__ = ["ENTRIES", "INTERFACES", "assign_address", "subnet_of", "vm_of"]

_TYPE = "Microsoft.Network/networkInterfaces"
INTERFACES = ResourceType(
    _TYPE,
    "network.NetworkInterface",
    ("networkInterfaceName",),
    children={"ipConfigurations": f"{_TYPE}/ipConfigurations"},
    immutable=("extendedLocation",),
    in_use=InUse(
        "NicInUse",
        "Network Interface {rid} is used by existing resource {holder}. In order to delete the network "
        "interface, it must be dissociated from the resource. To learn more, see aka.ms/deletenic.",
    ),
    group_rank=3,
    guid_name="resourceGuid",
)


def subnet_of(body: Body) -> ResourceId | None:
    """Return the subnet of an interface's first configuration."""
    first = next(iter(at(body, "properties", "ipConfigurations") or ()), None)
    return reference(first, "properties", "subnet")


def vm_of(subscription: Subscription, rid: ResourceId) -> ResourceId | None:
    """Return the VM that an interface or a disk is attached to."""
    return next((h for h in subscription.holders(rid) if h.type.endswith("/virtualMachines")), None)


def assign_address(subscription: Subscription, record: Record) -> None:
    """Give an interface its address: the static one of its body, else the lowest free one."""
    subnet = subnet_of(record.body)
    if record.address is None and subnet is not None:
        taken = next(free_addresses(subscription, subnet), None)
        record.address = _wanted_address(record.body) or taken


def _wanted_address(body: Body) -> str | None:
    own = body["properties"]["ipConfigurations"][0].get("properties") or {}
    static = str(own.get("privateIPAllocationMethod", "Dynamic")).lower() == "static"
    return own.get("privateIPAddress") if static else None


class _InterfaceHooks(Hooks[Services]):
    """An interface holds one address of its subnet."""

    def accept(self, rid: ResourceId, body: Body, old: Body | None) -> Body:
        """Refuse an interface without a subnet, or without a free address in it."""
        subnet = subnet_of(body)
        if subnet is None:
            problem = f"Required property 'subnet' of an IP configuration of {rid} is missing."
            raise ArmError(400, "InvalidRequestFormat", f"Cannot parse the request. {problem}")
        wanted = _wanted_address(body)
        free = list(free_addresses(self.services.subscription, subnet)) if old is None else []
        if old is None and wanted is not None and wanted not in free:
            problem = f"IP address {wanted} of {rid} is not available in subnet {subnet}."
            raise ArmError(400, "PrivateIPAddressNotAvailable", problem)
        if old is None and not free:
            raise subnet_full(subnet.name, 1)
        return body

    async def apply(self, record: Record, old: Body | None) -> None:
        assign_address(self.services.subscription, record)

    def release(self, rid: ResourceId) -> None:
        """Refuse to delete the interface of a private endpoint."""
        record = self.services.subscription.resources.get(rid.key)
        if record is not None and record.owner:
            problem = f"Cannot delete network interface {rid}: it is used by private endpoint {record.owner}."
            raise ArmError(400, "NicInUseWithPrivateEndpoint", problem)

    def show(self, record: Record, shown: Body) -> None:
        """Add the defaults, the address, and the VM or private endpoint that has the interface."""
        properties = shown["properties"]
        for number, configuration in enumerate(properties.get("ipConfigurations") or ()):
            own = configuration["properties"]
            own.setdefault("privateIPAllocationMethod", "Dynamic")
            own.setdefault("privateIPAddressVersion", "IPv4")
            own.setdefault("primary", number == 0)
            if number == 0 and record.address is not None:
                own["privateIPAddress"] = record.address
        properties.setdefault("enableAcceleratedNetworking", False)
        properties.setdefault("enableIPForwarding", False)
        vm = vm_of(self.services.subscription, record.id)
        if vm is not None:
            properties["virtualMachine"] = {"id": str(vm)}
        if record.owner:
            properties["privateEndpoint"] = {"id": record.owner}


ENTRIES = ((INTERFACES, _InterfaceHooks),)
