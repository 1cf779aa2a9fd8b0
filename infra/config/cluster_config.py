"""A cluster's checked settings, as the program, the plan and the commands use them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network
from typing import Literal

from catalogue.size import Size
from images.os_images import Image
from infra.config.limits import OS_DISK_GIB

__all__ = ["VNET_PREFIX", "Access", "ClusterConfig", "SharedFolder", "Storage", "subnet_of"]

Access = Literal["public", "private"]
Partial = Literal["keep", "remove"]
Storage = Literal["none", "serviceEndpoint", "privateEndpoint"]
"""How the nodes reach blob storage, if at all."""

VNET_PREFIX = "10.0.0.0/16"
"""Default address range of the stack's virtual network."""

_SUBNET = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedFolder:
    """The folder that all nodes share, as configured."""

    kind: str
    """The value of ``ranklift:nfs``: a name in :data:`infra.cluster.shared.registry.KINDS`."""
    size_gib: int = 0
    """0: the kind takes no size."""
    options: Mapping[str, object] = field(default_factory=dict)
    """Checked values of the settings that only this kind has."""
    owns_data: bool = True
    """The stack makes what stores the files, in its data group, so that ``ranklift:retainData`` keeps it."""
    addresses: int = 0
    """Addresses of the nodes' subnet that it takes."""
    service_endpoint: bool = False
    """The nodes reach it by their subnet's service endpoint for storage accounts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """The checked settings of one cluster."""

    size: Size
    node_count: int
    location: str
    """Azure's short name, e.g. ``southcentralus``."""
    access: Access = "public"
    """``private``: no public address; the operator reaches the nodes' own addresses."""
    ssh_from: tuple[str, ...] = ()
    """IPv4 networks that may open ssh connections; empty with ``access: private`` only."""
    image: Image
    spot: bool = False
    tags: Mapping[str, str] = field(default_factory=dict)
    """The user's tags, without the stack's own."""
    vnet_prefix: str = VNET_PREFIX
    admin_user: str = "azureuser"
    computer_name_prefix: str = "node"

    vnet_id: str | None = None
    """An existing virtual network, in which only the nodes' subnet is made."""
    subnet_id: str | None = None
    """An existing subnet: no network is made."""
    given_subnet_prefix: str | None = None
    """Address range of the nodes in an existing network."""
    storage: Storage = "none"
    storage_account_id: str | None = None
    """An existing storage account with the containers ``data`` and ``results``."""
    data_operators: tuple[str, ...] = ()
    """Object ids of people who may read and write the stack's own account beside the nodes."""
    container_registry: str | None = None
    """Id of an existing container registry, whose images the nodes may pull."""
    retain_data: bool = False
    """``pulumi destroy`` keeps what is stored outside the nodes."""
    shared: SharedFolder | None = None
    max_price: float | None = None
    """USD per hour for the whole cluster."""
    ttl_hours: float | None = None
    """Hours from the creation of the scale set until the nodes delete it."""
    idle_stop_minutes: int | None = None
    """Minutes without a job after which the nodes set the capacity to 0."""
    metrics_port: int | None = None
    """TCP port at which each node serves metrics inside the virtual network; None: nothing listens."""
    monitor: bool = False
    """The nodes also send these metrics to an Azure Monitor workspace of the stack."""
    os_disk_gib: int = OS_DISK_GIB
    """Of a managed OS disk."""
    ephemeral_os_disk: bool = False
    zone: str | None = None
    partial: Partial = "remove"
    """Whether new nodes stay when Azure could not give all of them."""

    @property
    def subnet_prefix(self) -> str:
        """The nodes' subnet: as given, else the first /20 of the network, or all of a smaller one."""
        return self.given_subnet_prefix or subnet_of(self.vnet_prefix)

    @property
    def other_addresses(self) -> int:
        """Addresses of the nodes' subnet that no node has: private endpoints and shared storage."""
        return int(self.storage == "privateEndpoint") + (self.shared.addresses if self.shared else 0)

    @property
    def owns_data(self) -> bool:
        """Whether the stack makes something that stores data outside the nodes."""
        own_account = self.storage != "none" and self.storage_account_id is None
        return own_account or (self.shared is not None and self.shared.owns_data)

    @property
    def needs_service_endpoint(self) -> bool:
        """Whether the nodes reach a storage account by their subnet's service endpoint."""
        return self.storage == "serviceEndpoint" or (self.shared is not None and self.shared.service_endpoint)

    @property
    def needs_identity(self) -> bool:
        """Whether the nodes call Azure with rights of their own.

        Only then are an identity and role assignments made: whoever may make role assignments may do nearly
        everything in a subscription, and a plain cluster should not ask for that.
        """
        ends_itself = self.ttl_hours is not None or self.idle_stop_minutes is not None
        uses_data = self.storage != "none" or self.container_registry is not None
        return uses_data or ends_itself or self.monitor

    @property
    def slots(self) -> int:
        """Processes that a node can run."""
        assert self.size.slots is not None, "sizes without slots are refused"  # noqa: S101 - parse() checks it
        return self.size.slots


def subnet_of(vnet_prefix: str) -> str:
    """Return the nodes' part of a virtual network: its first /20, which leaves room for others, or all of it.

    >>> subnet_of("10.0.0.0/16"), subnet_of("10.4.2.0/24")
    ('10.0.0.0/20', '10.4.2.0/24')
    """
    network = IPv4Network(vnet_prefix)
    if network.prefixlen >= _SUBNET:
        return vnet_prefix
    return f"{network.network_address}/{_SUBNET}"
