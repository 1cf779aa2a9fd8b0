"""The stack's configuration, checked as a whole before anything is created.

>>> config = parse({"ranklift:vmSize": "Standard_ND40rs_v2", "ranklift:nodeCount": "4",
...                 "ranklift:location": "South Central US", "ranklift:sshFrom": "203.0.113.7"})
>>> config.size.name, config.node_count, config.location, config.ssh_from, config.slots
('Standard_ND40rs_v2', 4, 'southcentralus', ('203.0.113.7/32',), 8)
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Literal

from catalogue.sizes import Size
from images.os_images import Image
from infra.config import arm_ids, bare_image, limits, network_settings, readers
from infra.config import storage_settings as storage
from infra.config.collector import Settings
from infra.config.network_settings import VNET_PREFIX, private_prefix, ssh_sources, subnet_of
from infra.config.readers import KEY, Access, Partial
from infra.config.storage_settings import NFS_SIZE_GIB, Nfs, Storage
from launch.errors import InputError

__all__ = ["ClusterConfig", "ConfigError", "parse"]

_KEYS = (
    "access",
    "adminUser",
    "allowWithoutInfiniBand",
    "computerNamePrefix",
    "ephemeralOsDisk",
    "idleStopMinutes",
    "image",
    "largeScaleSet",
    "location",
    "maxPrice",
    "nfs",
    "nfsSizeGib",
    "nodeCount",
    "partial",
    "retainData",
    "spot",
    "sshFrom",
    "storage",
    "storageAccountId",
    "subnetId",
    "subnetPrefix",
    "tags",
    "ttlHours",
    "vmSize",
    "vnetId",
    "vnetPrefix",
    "zone",
)


_CLOUD = "azure-native:environment"


class ConfigError(InputError):
    """Several things in the configuration are wrong; ``errors`` has each, the text a line for each."""

    def __init__(self, errors: Sequence[InputError]) -> None:
        first = errors[0]
        super().__init__(first.key, first.value, first.problem, first.remedy)
        self.errors = tuple(errors)
        self.args = ("\n".join(map(str, errors)),)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """One cluster, as asked for and found sound."""

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
    """The user's own; the stack's tag comes on top."""
    vnet_prefix: str = VNET_PREFIX
    admin_user: str = "azureuser"
    computer_name_prefix: str = "node"
    large_scale_set: bool = False
    """The subscription may put more than 100 nodes into one placement group (a support request)."""

    vnet_id: str | None = None
    """A given virtual network, in which only the nodes' subnet is made."""
    subnet_id: str | None = None
    """A given subnet: nothing of the network is made."""
    given_subnet_prefix: str | None = None
    """The nodes' addresses in a given network."""
    storage: Storage = "none"
    storage_account_id: str | None = None
    """A given storage account with the containers ``data`` and ``results``."""
    retain_data: bool = False
    """What is stored outside the nodes survives ``pulumi destroy``."""
    nfs: Nfs = "none"
    nfs_size_gib: int = NFS_SIZE_GIB
    max_price: float | None = None
    """USD per hour for the whole cluster."""
    ttl_hours: float | None = None
    """The scale set is deleted that long after it was made."""
    idle_stop_minutes: int | None = None
    """The capacity goes to 0 when no job ran for that long."""
    ephemeral_os_disk: bool = False
    zone: str | None = None
    partial: Partial = "remove"
    """What becomes of the nodes that came when Azure could not give all."""

    @property
    def subnet_prefix(self) -> str:
        """The nodes' subnet: as given, else the first /20 of the network, or all of a smaller one."""
        return self.given_subnet_prefix or subnet_of(self.vnet_prefix)

    @property
    def other_addresses(self) -> int:
        """Addresses of the nodes' subnet that are for something else: private endpoints, an NFS server."""
        endpoints = self.storage == "privateEndpoint"
        return int(endpoints) + int(self.nfs == "vm" or (endpoints and self.nfs == "files"))

    @property
    def owns_data(self) -> bool:
        """Whether the stack makes something that stores: a storage account or an NFS server."""
        return self.nfs != "none" or (self.storage != "none" and self.storage_account_id is None)

    @property
    def needs_service_endpoint(self) -> bool:
        """Whether the nodes reach a storage account by their subnet's service endpoint."""
        return self.storage == "serviceEndpoint" or (self.nfs == "files" and self.storage == "none")

    @property
    def needs_identity(self) -> bool:
        """Whether the nodes do anything at Azure that takes a right.

        Only then are an identity and role assignments made: who may make those may do nearly everything in
        a subscription, and a plain cluster should not ask for that.
        """
        return self.storage != "none" or self.ttl_hours is not None or self.idle_stop_minutes is not None

    @property
    def slots(self) -> int:
        """Processes a node can take."""
        assert self.size.slots is not None, "sizes without slots are refused"  # noqa: S101 - parse() saw to it
        return self.size.slots


def parse(settings: Mapping[str, object], *, today: date | None = None) -> ClusterConfig:
    """The cluster that ``settings`` (keys like ``ranklift:vmSize``; others are ignored) describe.

    Values may be strings, as Pulumi hands them over, or what they stand for. ``today`` decides which sizes
    are retired. Raises :class:`~launch.errors.InputError` naming key, value and remedy, or
    :class:`ConfigError` with all of them when there are several.
    """
    read = Settings(settings)
    read.errors += [_unknown_key(key, value) for key, value in read.all.items() if key not in _KEYS]
    read.errors += _other_cloud(settings)

    without_infiniband = read.optional("allowWithoutInfiniBand", readers.boolean, False)
    large = read.optional("largeScaleSet", readers.boolean, False)
    public: Access = "public"
    access = read.optional("access", readers.access, public)
    on = today or date.today()
    size = read.required("vmSize", lambda key, value: readers.fit_size(key, value, without_infiniband, on))
    count = read.required("nodeCount", lambda key, value: readers.node_count(key, value, large))
    location = read.required("location", readers.location)
    nowhere: tuple[str, ...] = ()
    if access == "public":
        ssh_from = read.required("sshFrom", ssh_sources)
    else:
        ssh_from = read.optional("sshFrom", ssh_sources, nowhere)
    image: Image | None = readers.image_of(size) if size else None
    if read.all.get("image") or (size and not image):
        image = read.required("image", lambda key, value: readers.image(key, value, size))

    def prefix(key: str, value: object) -> str:
        return private_prefix(key, value, count or 1)

    vnet = read.optional("vnetPrefix", prefix, VNET_PREFIX)
    vnet_id = read.perhaps("vnetId", arm_ids.reader(arm_ids.VIRTUAL_NETWORK))
    subnet_id = read.perhaps("subnetId", arm_ids.reader(arm_ids.SUBNET))
    subnet_prefix = read.perhaps("subnetPrefix", prefix)
    spot = read.optional("spot", readers.boolean, False)
    max_price = read.guard("maxPrice", limits.max_price)
    ttl_hours = read.guard("ttlHours", limits.ttl_hours)
    idle_stop = read.guard("idleStopMinutes", limits.idle_stop_minutes)
    nothing: Literal["none"] = "none"
    stored: Storage = read.optional("storage", storage.storage, nothing)
    account = read.perhaps("storageAccountId", arm_ids.reader(arm_ids.STORAGE_ACCOUNT))
    retain_data = read.optional("retainData", readers.boolean, False)
    nfs: Nfs = read.optional("nfs", storage.nfs, nothing)
    nfs_size = read.optional("nfsSizeGib", storage.nfs_size, NFS_SIZE_GIB)
    ephemeral = read.optional("ephemeralOsDisk", readers.boolean, False)
    zone = read.perhaps("zone", readers.zone)
    remove: Partial = "remove"
    partial = read.optional("partial", readers.partial, remove)
    no_tags: dict[str, str] = {}
    tags = read.optional("tags", readers.tags, no_tags)
    user = read.optional("adminUser", readers.admin_user, "azureuser")
    name = read.optional("computerNamePrefix", readers.computer_name_prefix, "node")

    _raise(read.errors)
    # Whatever is None here has left an error above; the type checker cannot know.
    assert size and count and location and image and ssh_from is not None  # noqa: S101
    config = ClusterConfig(
        size=size,
        node_count=count,
        location=location,
        access=access,
        ssh_from=ssh_from,
        image=image,
        spot=spot,
        tags=tags,
        vnet_prefix=vnet,
        admin_user=user,
        computer_name_prefix=name,
        large_scale_set=large,
        vnet_id=vnet_id,
        subnet_id=subnet_id,
        given_subnet_prefix=subnet_prefix,
        storage=stored,
        storage_account_id=account,
        retain_data=retain_data,
        nfs=nfs,
        nfs_size_gib=nfs_size,
        max_price=max_price,
        ttl_hours=ttl_hours,
        idle_stop_minutes=idle_stop,
        ephemeral_os_disk=ephemeral,
        zone=zone,
        partial=partial,
    )
    mismatches = [
        network_settings.mismatches,
        storage.mismatches,
        bare_image.mismatches,
        _without_local_disk,
    ]
    _raise([error for look in mismatches for error in look(config, read)])
    return config


def _other_cloud(settings: Mapping[str, object]) -> list[InputError]:
    try:
        readers.public_only(_CLOUD, settings.get(_CLOUD))
    except InputError as error:
        return [error]
    return []


def _raise(errors: Sequence[InputError]) -> None:
    if errors:
        raise errors[0] if len(errors) == 1 else ConfigError(errors)


def _without_local_disk(config: ClusterConfig, _settings: Settings) -> Iterator[InputError]:
    if config.ephemeral_os_disk and config.size.local_disk is None:
        yield InputError(
            f"{KEY}ephemeralOsDisk",
            "true",
            f"needs a disk of the host, and none is known of {config.size.name}",
            "take it out: the operating system is then on a managed disk",
        )


def _unknown_key(key: str, value: object) -> InputError:
    lowered = {known.lower(): known for known in _KEYS}
    plain = re.sub("[^a-z]", "", key.lower())
    close = difflib.get_close_matches(plain, lowered, n=1, cutoff=0.6)
    remedy = f"did you mean {KEY}{lowered[close[0]]}?" if close else "the keys are " + ", ".join(_KEYS)
    return InputError(KEY + key, value, "is no setting", remedy)
