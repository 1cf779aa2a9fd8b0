"""Queries: what Azure offers in a region, and the subscription's quota there.

Quota comes from the compute API's usages of a region, offers from its Resource SKUs. What an answer lacks is
``None``, never zero.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from infra.arm.errors import AzureRefused
from infra.arm.rest import Rest
from infra.arm.types import api_version
from infra.naming import OFFER_UNKNOWN

__all__ = [
    "CORES",
    "SPOT_CORES",
    "Offer",
    "ScaleSet",
    "Usage",
    "family_key",
    "machine_size",
    "moment",
    "offer_of",
    "offers",
    "regions_offering",
    "scale_set",
    "usages",
]

CORES, SPOT_CORES = "cores", "lowPriorityCores"
"""Azure's names of the quotas for all of a region's vCPUs and for those of spot VMs."""

_SKUS_API = api_version("Microsoft.Compute/skus")
_USAGES_API = api_version("Microsoft.Compute/locations/usages")


@dataclass(frozen=True, slots=True)
class Usage:
    """One quota of a region."""

    name: str
    """Azure's name, e.g. ``standardNDSv2Family`` or ``cores``."""
    label: str
    """Azure's name as the portal shows it."""
    limit: int
    used: int

    @property
    def left(self) -> int:
        """vCPUs still available; 0 if a lowered limit is exceeded."""
        return max(0, self.limit - self.used)


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One size in one region, by the Resource SKUs."""

    size: str
    location: str
    offered: bool
    restricted: str | None = None
    """Why the region is closed to this subscription: ``NotAvailableForSubscription`` or ``QuotaId``."""
    zones: tuple[str, ...] = ()
    """Availability zones that have the size and are open to this subscription."""
    closed_zones: tuple[str, ...] = ()
    family: str | None = None
    """Name of its quota, in the spelling of the SKUs: see :func:`family_key`."""
    vcpus: int | None = None
    rdma: bool | None = None
    spot: bool | None = None
    known: bool = True
    """``False``: a rehearsal does not know whether the region has the size, and allows it."""

    @property
    def available(self) -> bool:
        """Whether this subscription may use the size there."""
        return self.offered and self.restricted is None


@dataclass(frozen=True, slots=True)
class ScaleSet:
    """A stack's scale set as it is."""

    size: str
    capacity: int
    spot: bool
    location: str
    created: datetime | None = None
    """``None``: unknown."""
    image: str | None = None
    """What its VMs boot, as :func:`infra.preflight.marketplace.reference` writes it; ``None``: unknown."""
    disks: tuple[int, ...] = ()
    """GiB of its VMs' managed OS disks, the oldest first: those of before a change of size keep theirs."""


# -- quota ------------------------------------------------------------------------------------------------


def usages(rest: Rest, subscription: str, location: str) -> tuple[Usage, ...]:
    """Return every compute quota of the region.

    Raises :class:`~infra.arm.errors.AzureRefused`, also when an entry lacks its figures: an unknown quota
    must not look like one of 0.
    """
    path = f"/subscriptions/{subscription}/providers/Microsoft.Compute/locations/{location}/usages"
    return tuple(_usage(entry) for entry in rest.pages(path, **{"api-version": _USAGES_API}))


def family_key(name: str) -> str:
    """Return a quota family's name without the differences of Azure's spellings.

    >>> family_key("Standard NDASv4_A100 Family") == family_key("StandardNDASv4_A100Family")
    True
    """
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _usage(entry: Mapping[str, Any]) -> Usage:
    name = entry.get("name") or {}
    limit, used = entry.get("limit"), entry.get("currentValue")
    if not name.get("value") or not isinstance(limit, int) or not isinstance(used, int):
        raise AzureRefused(f"Azure's list of quotas has an entry of another form: {entry}")
    return Usage(str(name["value"]), str(name.get("localizedValue") or name["value"]), limit, used)


# -- offers ----------------------------------------------------------------------------------------------


def offers(rest: Rest, subscription: str, location: str) -> Sequence[Mapping[str, Any]]:
    """Return the region's Resource SKUs of VMs, to be read with :func:`offer_of`.

    The API's only filter is by region, and the list is long: one query serves all sizes.
    """
    path = f"/subscriptions/{subscription}/providers/Microsoft.Compute/skus"
    query = {"api-version": _SKUS_API, "$filter": f"location eq '{location}'"}
    return [entry for entry in rest.pages(path, **query) if entry.get("resourceType") == "virtualMachines"]


def offer_of(entries: Iterable[Mapping[str, Any]], size: str, location: str) -> Offer:
    """Return the offer of ``size`` in ``location``; a size that the SKUs lack is not offered."""
    entry = next((one for one in entries if _names(one, size) and _is_in(one, location)), None)
    if entry is None:
        return Offer(size=size, location=location, offered=False)
    capabilities = {str(one.get("name")): str(one.get("value")) for one in entry.get("capabilities") or ()}
    closed = {zone: str(one.get("reasonCode")) for one in _limits(entry, "Zone") for zone in _zones(one)}
    zones = {
        str(zone)
        for info in entry.get("locationInfo") or ()
        if _same(info.get("location"), location)
        for zone in info.get("zones") or ()
    }
    reasons = [
        str(one.get("reasonCode"))
        for one in _limits(entry, "Location")
        if any(_same(place, location) for place in _places(one))
    ]
    return Offer(
        size=str(entry.get("name")),
        location=location,
        offered=True,
        restricted=reasons[0] if reasons else None,
        zones=tuple(sorted(zones - closed.keys())),
        closed_zones=tuple(sorted(zones & closed.keys())),
        family=str(entry["family"]) if entry.get("family") else None,
        vcpus=_number(capabilities.get("vCPUs")),
        rdma=_truth(capabilities.get("RdmaEnabled")),
        spot=_truth(capabilities.get("LowPriorityCapable")),
        known=_truth(capabilities.get(OFFER_UNKNOWN)) is not True,
    )


def regions_offering(rest: Rest, subscription: str, size: str) -> tuple[str, ...]:
    """Return the regions where this subscription may use ``size``; reading all SKUs takes seconds."""
    path = f"/subscriptions/{subscription}/providers/Microsoft.Compute/skus"
    named = [one for one in rest.pages(path, **{"api-version": _SKUS_API}) if _names(one, size)]
    places = {str(place).lower() for one in named for place in one.get("locations") or ()}
    found = {place: offer_of(named, size, place) for place in places}
    return tuple(sorted(place for place, offer in found.items() if offer.available and offer.known))


def _names(entry: Mapping[str, Any], size: str) -> bool:
    return entry.get("resourceType") == "virtualMachines" and _same(entry.get("name"), size)


def _is_in(entry: Mapping[str, Any], location: str) -> bool:
    return any(_same(place, location) for place in entry.get("locations") or ())


def _limits(entry: Mapping[str, Any], kind: str) -> list[Mapping[str, Any]]:
    return [one for one in entry.get("restrictions") or () if one.get("type") == kind]


def _places(limit: Mapping[str, Any]) -> Iterable[Any]:
    return [*((limit.get("restrictionInfo") or {}).get("locations") or ()), *(limit.get("values") or ())]


def _zones(limit: Mapping[str, Any]) -> Iterable[str]:
    return [str(zone) for zone in (limit.get("restrictionInfo") or {}).get("zones") or ()]


def _same(one: object, other: str) -> bool:
    return str(one).lower() == other.lower()


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


def _truth(text: str | None) -> bool | None:
    return None if text is None else {"true": True, "false": False}.get(text.lower())


# -- existing ---------------------------------------------------------------------------------------------


def scale_set(rest: Rest, subscription: str, group: str, name: str) -> ScaleSet | None:
    """Return the scale set as it is; ``None`` if there is none."""
    found = _found(rest, subscription, group, f"virtualMachineScaleSets/{name}")
    if found is None:
        return None
    sku = found.get("sku") or {}
    profile = (found.get("properties") or {}).get("virtualMachineProfile") or {}
    capacity = int(sku.get("capacity") or 0)
    return ScaleSet(
        size=str(sku.get("name", "")),
        capacity=capacity,
        spot=str(profile.get("priority", "")).lower() == "spot",
        location=str(found.get("location", "")).lower().replace(" ", ""),
        created=moment((found.get("properties") or {}).get("timeCreated")),
        image=_image((profile.get("storageProfile") or {}).get("imageReference") or {}),
        disks=_os_disks(rest, subscription, group, name) if capacity else (),
    )


def _os_disks(rest: Rest, subscription: str, group: str, name: str) -> tuple[int, ...]:
    what = f"virtualMachineScaleSets/{name}/virtualMachines"
    machines = rest.pages(
        _path(subscription, group, what), **{"api-version": api_version(f"Microsoft.Compute/{what}")}
    )
    sizes = []
    for machine in sorted(machines, key=lambda one: int(one["instanceId"])):
        storage = (machine.get("properties") or {}).get("storageProfile") or {}
        disk = storage.get("osDisk") or {}
        if disk.get("diskSizeGB") and not disk.get("diffDiskSettings"):  # an ephemeral one is not billed
            sizes.append(int(disk["diskSizeGB"]))
    return tuple(sizes)


def _image(reference: Mapping[str, Any]) -> str | None:
    if reference.get("id"):
        return str(reference["id"])
    parts = [reference.get(part) for part in ("publisher", "offer", "sku", "version")]
    return ":".join(map(str, parts)) if all(parts) else None


def moment(text: object) -> datetime | None:
    """Read a time as Azure writes it, with seven digits of a second, of which six count.

    >>> moment("2026-03-01T09:05:07.1234567+00:00"), moment(None)
    (datetime.datetime(2026, 3, 1, 9, 5, 7, 123456, tzinfo=datetime.timezone.utc), None)
    """
    try:
        found = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return found.replace(tzinfo=found.tzinfo or UTC)


def machine_size(rest: Rest, subscription: str, group: str, name: str) -> str | None:
    """Return the size of a VM; ``None`` if there is none of that name."""
    found = _found(rest, subscription, group, f"virtualMachines/{name}")
    hardware = ((found or {}).get("properties") or {}).get("hardwareProfile") or {}
    return str(hardware["vmSize"]) if hardware.get("vmSize") else None


def _found(rest: Rest, subscription: str, group: str, what: str) -> Mapping[str, Any] | None:
    version = api_version(f"Microsoft.Compute/{what}")
    found: Mapping[str, Any] | None = rest.find(_path(subscription, group, what), **{"api-version": version})
    return found


def _path(subscription: str, group: str, what: str) -> str:
    return f"/subscriptions/{subscription}/resourceGroups/{group}/providers/Microsoft.Compute/{what}"
