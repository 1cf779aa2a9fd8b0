"""What may stand in the settings of storage: readers, and what does not go together."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Network
from typing import TYPE_CHECKING, Literal

from infra.config.readers import KEY, choice, whole_number
from launch.errors import InputError
from launch.numbers import shown

if TYPE_CHECKING:
    from infra.config import ClusterConfig
    from infra.config.collector import Settings

__all__ = ["NFS_SIZE_GIB", "Nfs", "Storage", "firewall_sources", "mismatches", "nfs", "nfs_size", "storage"]

Storage = Literal["none", "serviceEndpoint", "privateEndpoint"]
Nfs = Literal["none", "files", "vm"]

NFS_SIZE_GIB = 1024
"""What an NFS server has when ``nfsSizeGib`` is not set."""

_SMALLEST_GIB, _LARGEST_GIB = 100, 102_400
"""Of a premium file share (learn.microsoft.com understanding-billing, storage-files-scale-targets)."""

_PRIVATE = [IPv4Network(p) for p in ("10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16")]
"""Not enforceable by an address rule of a storage account (learn.microsoft.com storage-network-security)."""

_NARROWEST_RANGE = 30  # address rules take no /31 and no /32: single addresses stand for them (same source)


def storage(key: str, value: object) -> Storage:
    """How the nodes reach blob storage, or ``none``."""
    modes: tuple[Storage, ...] = ("none", "serviceEndpoint", "privateEndpoint")
    return choice(key, value, modes)


def nfs(key: str, value: object) -> Nfs:
    """What serves the nodes' shared folder, or ``none``."""
    kinds: tuple[Nfs, ...] = ("none", "files", "vm")
    return choice(key, value, kinds)


def nfs_size(key: str, value: object) -> int:
    """GiB of the shared folder."""
    remedy = f"set it to {_SMALLEST_GIB} to {_LARGEST_GIB} GiB"
    size = whole_number(key, value, remedy)
    if not _SMALLEST_GIB <= size <= _LARGEST_GIB:
        raise InputError(key, shown(value, size), "is no size that Azure sells for a shared folder", remedy)
    return size


def firewall_sources(ssh_from: tuple[str, ...]) -> tuple[str, ...]:
    """The operator's networks as the rules of a storage account take them; private ones are left out.

    >>> firewall_sources(("203.0.113.7/32", "198.51.100.0/31", "198.51.100.0/24", "10.9.0.0/24"))
    ('203.0.113.7', '198.51.100.0', '198.51.100.1', '198.51.100.0/24')
    """
    sources: list[str] = []
    for network in map(IPv4Network, ssh_from):
        if any(network.overlaps(private) for private in _PRIVATE):
            continue
        if network.prefixlen > _NARROWEST_RANGE:
            sources += map(str, network)
        else:
            sources.append(str(network))
    return tuple(sources)


def mismatches(config: ClusterConfig, settings: Settings) -> Iterator[InputError]:
    """Settings of storage that are each sound and make no sense together."""
    if config.storage_account_id and config.storage == "none":
        yield InputError(
            f"{KEY}storageAccountId",
            config.storage_account_id,
            f"is given, but {KEY}storage is none, so that the nodes may not use it",
            f"set {KEY}storage to serviceEndpoint or privateEndpoint, or take the account out",
        )
    if config.nfs == "none" and settings.has("nfsSizeGib"):
        yield InputError(
            f"{KEY}nfsSizeGib",
            config.nfs_size_gib,
            f"is given, but {KEY}nfs is none",
            f"set {KEY}nfs to files or vm, or take the size out",
        )
    if config.retain_data and not config.owns_data:
        given = config.storage != "none" and config.storage_account_id is not None
        why = "a given storage account is never deleted" if given else "nothing is stored outside the nodes"
        yield InputError(
            f"{KEY}retainData",
            "true",
            f"has nothing to keep: {why}",
            "take it out" if given else f"set {KEY}storage or {KEY}nfs, or take it out",
        )
