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
from typing import Any

from infra.config import (
    arm_ids,
    bare_image,
    limits,
    network_settings,
    readers,
    shared_settings,
    storage_settings,
)
from infra.config.cluster_config import VNET_PREFIX, Access, ClusterConfig, Storage
from infra.config.collector import Settings
from infra.config.network_settings import private_prefix, ssh_sources
from infra.config.readers import KEY, one_of
from launch.errors import InputError, InputErrors

__all__ = ["ConfigError", "known_keys", "parse"]

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
    config = _read(read, today or date.today())
    _raise([*_unknown_keys(read), *_other_cloud(settings), *read.errors])
    mismatches = [
        network_settings.mismatches,
        shared_settings.mismatches,
        storage_settings.mismatches,
        bare_image.mismatches,
        _without_local_disk,
        _without_metrics,
    ]
    _raise([error for look in mismatches for error in look(config, read)])
    return config


def known_keys() -> list[str]:
    """Return the names of all settings, without their namespace."""
    read = Settings({})
    _read(read, date.today())
    return _known(read)


def _read(read: Settings, on: date) -> ClusterConfig:
    """Return the configuration; required values that are None have added an error."""
    without_infiniband = read.optional("allowWithoutInfiniBand", readers.boolean, False)
    large = read.optional("largeScaleSet", readers.boolean, False)
    access: Access = read.optional("access", one_of("public", "private"), "public")
    stored: Storage = read.optional("storage", one_of("none", "serviceEndpoint", "privateEndpoint"), "none")
    size = read.required("vmSize", lambda key, value: readers.fit_size(key, value, without_infiniband, on))
    count = read.required("nodeCount", lambda key, value: readers.node_count(key, value, large))
    image: Any = readers.image_of(size) if size else None
    if read.has("image") or (size and not image):
        image = read.required("image", lambda key, value: readers.image(key, value, size))

    def prefix(key: str, value: object) -> str:
        return private_prefix(key, value, count or 1)

    read.perhaps("datastores", storage_settings.read_datastores)  # for commands alone, as the next three
    for key in ("dataDiskGib", "dataDownloads", "dataRateMBps"):
        read.perhaps(key, storage_settings.positive)
    return ClusterConfig(
        size=size,
        node_count=count,
        location=read.required("location", readers.location),
        access=access,
        ssh_from=read.required("sshFrom", ssh_sources)
        if access == "public"
        else read.optional("sshFrom", ssh_sources, ()),
        image=image,
        spot=read.optional("spot", readers.boolean, False),
        tags=read.optional("tags", readers.tags, {}),
        vnet_prefix=read.optional("vnetPrefix", prefix, VNET_PREFIX),
        admin_user=read.optional("adminUser", readers.admin_user, "azureuser"),
        computer_name_prefix=read.optional("computerNamePrefix", readers.computer_name_prefix, "node"),
        vnet_id=read.perhaps("vnetId", arm_ids.reader(arm_ids.VIRTUAL_NETWORK)),
        subnet_id=read.perhaps("subnetId", arm_ids.reader(arm_ids.SUBNET)),
        given_subnet_prefix=read.perhaps("subnetPrefix", prefix),
        storage=stored,
        storage_account_id=read.perhaps("storageAccountId", arm_ids.reader(arm_ids.STORAGE_ACCOUNT)),
        data_operators=read.optional("dataOperators", storage_settings.object_ids, ()),
        container_registry=read.perhaps("containerRegistry", arm_ids.reader(arm_ids.CONTAINER_REGISTRY)),
        retain_data=read.optional("retainData", readers.boolean, False),
        shared=shared_settings.read_shared(read, stored),
        max_price=read.guard("maxPrice", limits.max_price),
        ttl_hours=read.guard("ttlHours", limits.ttl_hours),
        idle_stop_minutes=read.guard("idleStopMinutes", limits.idle_stop_minutes),
        metrics_port=read.perhaps("metricsPort", network_settings.metrics_port),
        monitor=read.optional("monitor", readers.boolean, False),
        os_disk_gib=read.optional("osDiskGib", limits.os_disk_gib, limits.OS_DISK_GIB),
        ephemeral_os_disk=read.optional("ephemeralOsDisk", readers.boolean, False),
        zone=read.perhaps("zone", readers.zone),
        partial=read.optional("partial", one_of("keep", "remove"), "remove"),
    )


def _other_cloud(settings: Mapping[str, object]) -> list[InputError]:
    try:
        readers.public_only(_CLOUD, settings.get(_CLOUD))
    except InputError as error:
        return [error]
    return []


def _raise(errors: Sequence[InputError]) -> None:
    if errors:
        raise errors[0] if len(errors) == 1 else ConfigError(errors)


def _without_local_disk(config: ClusterConfig, settings: Settings) -> Iterator[InputError]:
    if config.ephemeral_os_disk and settings.has("osDiskGib"):
        yield InputError(
            f"{KEY}osDiskGib",
            str(settings.all["osDiskGib"]),
            "is for a managed disk, and ephemeralOsDisk has the system on the node's own",
            "take one of them out",
        )
    if config.ephemeral_os_disk and config.size.local_disk is None:
        yield InputError(
            f"{KEY}ephemeralOsDisk",
            "true",
            f"needs a local disk, and none is known for {config.size.name}",
            "remove it: the operating system is then on a managed disk",
        )


def _without_metrics(config: ClusterConfig, settings: Settings) -> Iterator[InputError]:
    if config.monitor and config.metrics_port is None:
        yield InputError(
            f"{KEY}monitor",
            str(settings.all["monitor"]),
            f"needs {KEY}metricsPort: the service that serves the nodes' metrics there is what sends them",
            f"set {KEY}metricsPort as well, like 9500, or remove {KEY}monitor",
        )


def _known(settings: Settings) -> list[str]:
    return sorted({*settings.known, *shared_settings.shared_keys()})


def _unknown_keys(settings: Settings) -> Iterator[InputError]:
    known = _known(settings)
    lowered = {one.lower(): one for one in known}
    for key, value in settings.all.items():
        if key not in known:
            plain = re.sub("[^a-z]", "", key.lower())
            close = difflib.get_close_matches(plain, lowered, n=1, cutoff=0.6)
            remedy = (
                f"did you mean {KEY}{lowered[close[0]]}?" if close else "known settings: " + ", ".join(known)
            )
            yield InputError(KEY + key, value, "unknown setting", remedy)
