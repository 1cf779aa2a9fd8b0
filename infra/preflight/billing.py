"""What bills an existing resource, read from Azure's description of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from infra.arm.types import api_version
from infra.preflight.meters import ADDRESS, ENDPOINT, NAT, NFS_SHARE, Meter, premium_disk
from launch.errors import RankliftError

__all__ = ["Charge", "charge_of", "details_path"]

_SET, _MACHINE = "microsoft.compute/virtualmachinescalesets", "microsoft.compute/virtualmachines"
_DISK, _ACCOUNT = "microsoft.compute/disks", "microsoft.storage/storageaccounts"

_ADDRESSES = "microsoft.network/publicipaddresses"

_METERS = {
    _ADDRESSES: ADDRESS,
    "microsoft.network/natgateways": NAT,
    "microsoft.network/privateendpoints": ENDPOINT,
}
_FREE = {
    "microsoft.network/virtualnetworks": "",
    "microsoft.network/networksecuritygroups": "",
    "microsoft.network/networkinterfaces": "",
    "microsoft.network/privatednszones/virtualnetworklinks": "",
    # The program's has inbound NAT rules alone: learn.microsoft.com, cost of Load Balancer.
    "microsoft.network/loadbalancers": "NAT rules only; by traffic",
    "microsoft.managedidentity/userassignedidentities": "",
    "microsoft.compute/galleries": "",
    "microsoft.compute/galleries/images": "",
    # What they take is billed at the workspace: learn.microsoft.com prometheus-metrics-overview.
    "microsoft.insights/datacollectionendpoints": "",
    "microsoft.insights/datacollectionrules": "",
}
_UNKNOWN = {
    "microsoft.network/privatednszones": "by zone and by queries",
    "microsoft.compute/galleries/images/versions": "by stored data",
    "microsoft.compute/images": "by stored data",
    "microsoft.monitor/accounts": "by samples sent and by queries",
}


@dataclass(frozen=True, slots=True)
class Charge:
    """What bills one resource: VMs of a size, units of a meter, nothing, or something unknown."""

    size: str | None = None
    meter: Meter | None = None
    units: float = 1.0
    """VMs, or units of the meter."""
    spot: bool = False
    free: bool = False
    note: str = ""


def details_path(identifier: str, kind: str) -> tuple[str, str] | None:
    """Return the path of what :func:`charge_of` needs, and its API version; ``None`` if it needs nothing."""
    if kind.lower() in (_SET, _MACHINE, _DISK):
        return identifier, api_version(kind)
    if kind.lower() == _ACCOUNT:
        return f"{identifier}/fileServices/default/shares", api_version(kind)
    return None


def charge_of(kind: str, details: Mapping[str, Any] | RankliftError | None) -> Charge:
    """Return the charge of a resource of Azure's type ``kind``, given the answer at :func:`details_path`."""
    name = kind.lower()
    if name in _METERS:
        return Charge(meter=_METERS[name], note="and by traffic" if name != _ADDRESSES else "")
    if name in _FREE:
        return Charge(free=True, note=_FREE[name])
    if name in (_SET, _MACHINE, _DISK):
        if not isinstance(details, Mapping):
            return Charge(note=str(details or "details not queried"))
        return _compute(name, details)
    if name == _ACCOUNT:
        return _account(details)
    return Charge(note=_UNKNOWN.get(name, "billing unknown"))


def _compute(name: str, details: Mapping[str, Any]) -> Charge:
    properties = details.get("properties") or {}
    if name == _SET:
        sku = details.get("sku") or {}
        spot = str((properties.get("virtualMachineProfile") or {}).get("priority", "")).lower() == "spot"
        count, size = int(sku.get("capacity") or 0), str(sku.get("name") or "")
        if count == 0:
            return Charge(free=True, note="has no nodes")
        kind = "spot" if spot else "regular"
        return Charge(size=size, units=count, spot=spot, note=f"{count} x {size}, {kind}; disks come on top")
    if name == _MACHINE:
        size = str((properties.get("hardwareProfile") or {}).get("vmSize") or "")
        spot = str(properties.get("priority", "")).lower() == "spot"
        return Charge(size=size, spot=spot, note=f"{size}; its disk comes on top")
    gib, sku = properties.get("diskSizeGB"), str((details.get("sku") or {}).get("name") or "")
    meter = premium_disk(int(gib)) if isinstance(gib, int) and sku == "Premium_LRS" else None
    return Charge(meter=meter, note=f"{gib or 'unknown'} GiB, {sku or 'of an unknown kind'}")


def _account(shares: Mapping[str, Any] | RankliftError | None) -> Charge:
    """Return the charge of an account: premium file shares by their size, all else by stored data.

    An account without a file service answers the query for its shares with an error: it stores blobs.
    """
    entries = (shares.get("value") or ()) if isinstance(shares, Mapping) else ()
    found = [one.get("properties") or {} for one in entries]
    gib = sum(int(one.get("shareQuota") or 0) for one in found if one.get("enabledProtocols") == "NFS")
    if gib:
        return Charge(meter=NFS_SHARE, units=gib, note=f"NFS share of {gib} GiB")
    return Charge(note="by stored data and requests")
