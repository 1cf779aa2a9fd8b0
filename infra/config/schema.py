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
from datetime import date
from typing import Literal

from images.os_images import Image
from infra.config import arm_ids, bare_image, limits, network_settings, readers, shared_settings
from infra.config import storage_settings as storage
from infra.config.cluster_config import VNET_PREFIX, ClusterConfig, Storage
from infra.config.collector import Settings
from infra.config.network_settings import private_prefix, ssh_sources
from infra.config.readers import KEY, Access, Partial
from launch.errors import InputError, InputErrors

__all__ = ["ConfigError", "parse"]

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
"""Beside these, the kinds of shared storage have their own."""

_CLOUD = "azure-native:environment"


class ConfigError(InputErrors):
    """Several settings are wrong."""


def parse(settings: Mapping[str, object], *, today: date | None = None) -> ClusterConfig:
    """Read and check the settings of a cluster (keys like ``ranklift:vmSize``; others are ignored).

    Values may be strings, as Pulumi passes them, or what they stand for. ``today`` decides which sizes are
    retired. Raises :class:`~launch.errors.InputError` naming key, value and remedy, or
    :class:`ConfigError` with all of them when there are several.
    """
    read = Settings(settings)
    known = sorted((*_KEYS, *shared_settings.shared_keys()))
    read.errors += [_unknown_key(key, value, known) for key, value in read.all.items() if key not in known]
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
    shared = shared_settings.read_shared(read, stored)
    ephemeral = read.optional("ephemeralOsDisk", readers.boolean, False)
    zone = read.perhaps("zone", readers.zone)
    remove: Partial = "remove"
    partial = read.optional("partial", readers.partial, remove)
    no_tags: dict[str, str] = {}
    tags = read.optional("tags", readers.tags, no_tags)
    user = read.optional("adminUser", readers.admin_user, "azureuser")
    name = read.optional("computerNamePrefix", readers.computer_name_prefix, "node")

    _raise(read.errors)
    # A value that is None here has added an error above.
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
        shared=shared,
        max_price=max_price,
        ttl_hours=ttl_hours,
        idle_stop_minutes=idle_stop,
        ephemeral_os_disk=ephemeral,
        zone=zone,
        partial=partial,
    )
    mismatches = [
        network_settings.mismatches,
        shared_settings.mismatches,
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
            f"needs a local disk, and none is known for {config.size.name}",
            "take it out: the operating system is then on a managed disk",
        )


def _unknown_key(key: str, value: object, known: Sequence[str]) -> InputError:
    lowered = {one.lower(): one for one in known}
    plain = re.sub("[^a-z]", "", key.lower())
    close = difflib.get_close_matches(plain, lowered, n=1, cutoff=0.6)
    remedy = f"did you mean {KEY}{lowered[close[0]]}?" if close else "the keys are " + ", ".join(known)
    return InputError(KEY + key, value, "is not a setting", remedy)
