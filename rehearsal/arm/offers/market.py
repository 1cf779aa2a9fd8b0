"""Quota by family, sizes by region and list prices of the emulated Azure.

Shapes are those of ``usages`` and ``skus`` of the compute API and of the Azure Retail Prices API
(learn.microsoft.com). Sizes and families are the catalogue's; prices and limits are
round figures of the rehearsal's own, not Azure's; use is counted from the VMs that are there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from catalogue.size import Size
from catalogue.sizes import catalogue, find
from infra.naming import OFFER_UNKNOWN
from rehearsal.arm.core.errors import ArmError, no_provider_in, not_available, over_quota
from rehearsal.arm.core.ids import ResourceId
from rehearsal.arm.core.records import place
from rehearsal.arm.core.subscription import Subscription
from rehearsal.arm.offers import marketplace
from rehearsal.arm.offers.regions import REGIONS, is_offered

__all__ = ["FAMILY_LIMIT", "Figures", "Market", "Scarcity", "answer", "prices", "skus", "usages"]

FAMILY_LIMIT, REGION_LIMIT, SPOT_LIMIT = 60_000, 120_000, 60_000
"""vCPUs: room for 300 nodes of the largest size."""
PAGE = 100
"""Entries of one page of prices."""
_GPU_H, _VCPU_H, _SPOT = 3.0, 0.03, 0.2
"""USD per hour of a GPU, of a vCPU where there is none, and a spot VM's share of that."""

_USAGES = re.compile(
    r"/subscriptions/[^/]+/providers/microsoft\.compute/locations/([^/]+)/usages", re.IGNORECASE
)
_SKUS = re.compile(r"/subscriptions/[^/]+/providers/microsoft\.compute/skus", re.IGNORECASE)
_FILTER = re.compile(r"(\w+) eq '([^']*)'")
_PRICES = "/api/retail/prices"
_GLOBAL = "Global"
_VNET = "Virtual Network"


class Scarcity:
    """Shortages of VMs: none, unless a fault makes one."""

    def refuse_growth(self, resource: ResourceId, location: str, quota: str, used: int, more: int) -> None:
        """Refuse ``more`` vCPUs of a ``quota`` of which ``used`` are in use, before anything has changed."""

    def granted(self, wanted: int) -> tuple[int, ArmError | None]:
        """Return how many of the VMs wanted come, and Azure's error about the others."""
        return wanted, None

    def is_certain(self, kind: str) -> bool:
        """Whether a fault of this kind hits the next VM."""
        return False


@dataclass(slots=True)
class Figures:
    """Figures in place of the usual ones; sizes and quotas in Azure's spelling."""

    limits: dict[str, int] = field(default_factory=dict)
    """Quota by its name among the usages, e.g. ``standardNDSv2Family``, in vCPUs, in every region."""
    closed: dict[str, str] = field(default_factory=dict)
    """Sizes closed to the subscription, with the reason: ``NotAvailableForSubscription``."""
    prices: dict[tuple[str, bool], float | None] = field(default_factory=dict)
    """USD an hour by size and whether it is a spot VM's; None: the price list has no such meter."""


@dataclass(frozen=True, slots=True)
class Market:
    """Sizes, quotas and prices of one subscription."""

    subscription: Subscription
    scarcity: Scarcity = field(default_factory=Scarcity)
    figures: Figures = field(default_factory=Figures)

    def check(
        self, resource: ResourceId, size: str, location: str, more: int, *, spot: bool, growth: bool = False
    ) -> None:
        """Refuse ``more`` VMs of a size that is closed, or beyond a quota; ``growth``: of a scale set."""
        if more <= 0:
            return
        region, each = place(location), _vcpus(size)
        quotas = _quotas(self, region)
        if growth:
            _, used = quotas.get(_quota(size), (0, 0))
            self.scarcity.refuse_growth(resource, location, _quota(size), used, more * each)
        closed = {name.lower() for name in self.figures.closed}
        if size.lower() in closed or is_offered(size, region) is False:
            raise not_available(resource, self.subscription.id, region)
        for name in _counts(size, spot=spot):
            limit, used = quotas.get(name, (0, 0))
            if name in quotas and used + more * each > limit:
                raise over_quota(name, region, limit, used, more * each)

    def check_image(
        self, reference: Mapping[str, Any], plan: Mapping[str, Any] | None, gib: int | None
    ) -> None:
        """Refuse a marketplace image from which Azure boots no VM, with an OS disk of ``gib``."""
        refused = marketplace.refusal(reference, plan, self.scarcity.is_certain)
        refused = refused or marketplace.too_small(reference, gib)
        if refused is not None:
            raise refused


def answer(request: web.Request, market: Market) -> web.Response | None:
    """Return the answer to a request for usages, SKUs, prices or images; ``None`` to any other."""
    if request.method != "GET":
        return None
    path = request.path.rstrip("/")
    if path == _PRICES:
        return _page(request, market.figures)
    if (found := _USAGES.fullmatch(path)) is not None:
        if found[1].lower() not in REGIONS:
            raise no_provider_in(found[1], "locations/usages", request.query["api-version"])
        return web.json_response({"value": usages(market, found[1].lower())})
    if _SKUS.fullmatch(path) is not None:
        wanted = dict(_FILTER.findall(request.query.get("$filter", ""))).get("location")
        places = [wanted.lower()] if wanted else list(REGIONS)
        closed = market.scarcity.is_certain("sku")
        return web.json_response({"value": list(skus(places, closed=closed, figures=market.figures))})
    return marketplace.answer(request, market.scarcity.is_certain)


# -- quota ------------------------------------------------------------------------------------------------


def usages(market: Market, location: str) -> list[dict[str, Any]]:
    """Return every quota of the region; with the fault ``quota`` none has anything left."""
    full = market.scarcity.is_certain("quota")
    labels = {"cores": "Total Regional vCPUs", "lowPriorityCores": "Total Regional Low-priority vCPUs"}
    return [
        {
            "limit": used if full else limit,
            "unit": "Count",
            "currentValue": used,
            "name": {"value": n, "localizedValue": labels.get(n) or f"{n[0].upper()}{n[1:]} vCPUs"},
        }
        for n, (limit, used) in _quotas(market, location).items()
    ]


def _quotas(market: Market, location: str) -> dict[str, tuple[int, int]]:
    """Return limit and use of each quota of the region, in vCPUs."""
    used: dict[str, int] = {}
    for size, count, spot in _machines(market.subscription, location):
        for name in _counts(size, spot=spot):
            used[name] = used.get(name, 0) + _vcpus(size) * count
    limits = {"cores": REGION_LIMIT, "lowPriorityCores": SPOT_LIMIT}
    limits |= {_quota(size.name): FAMILY_LIMIT for size in _sold()}
    given = market.figures.limits
    return {name: (given.get(name, most), used.get(name, 0)) for name, most in limits.items()}


def _counts(size: str, *, spot: bool) -> tuple[str, ...]:
    return ("lowPriorityCores",) if spot else (_quota(size), "cores")


def _machines(subscription: Subscription, location: str) -> Iterator[tuple[str, int, bool]]:
    """Yield size, number and whether they are spot of the VMs in the region."""
    for record in subscription.of_type("Microsoft.Compute/virtualMachineScaleSets"):
        if place(record.body["location"]) == location:
            scale_set = subscription.scale_sets.get(record.id.key)
            profile = record.body.get("properties", {}).get("virtualMachineProfile") or {}
            there = scale_set.instances.values() if scale_set is not None else ()
            count = sum(not one.deallocated for one in there)
            yield record.body["sku"]["name"], count, profile.get("priority") == "Spot"
    for record in subscription.of_type("Microsoft.Compute/virtualMachines"):
        held = subscription.virtual_machines.get(record.id.key)
        if place(record.body["location"]) == location and held is not None and not held.deallocated:
            spot = record.properties.get("priority") == "Spot"
            yield record.properties["hardwareProfile"]["vmSize"], 1, spot


# -- sizes ------------------------------------------------------------------------------------------------


def skus(
    places: Iterable[str], *, closed: bool = False, figures: Figures | None = None
) -> Iterator[dict[str, Any]]:
    """Yield an entry for each size in each region that has it, or of which that is not known.

    With the fault ``sku`` every size is ``closed`` to this subscription.
    """
    reasons = figures.closed if figures is not None else {}
    for region in places:
        for size in _sold():
            name, offered = size.name, is_offered(size.name, region)
            if offered is False:
                continue
            capabilities = {
                "vCPUs": str(size.vcpus),
                "RdmaEnabled": str(size.rdma),
                **({"GPUs": str(size.gpus)} if size.gpus else {}),
                **({"MemoryGB": str(size.memory_gib)} if size.memory_gib else {}),
                "LowPriorityCapable": "True",
                "HyperVGenerations": "V2" if size.hyperv == "Gen2" else "V1,V2",
                **({} if offered else {OFFER_UNKNOWN: "True"}),
            }
            yield {
                "resourceType": "virtualMachines",
                "name": name,
                "tier": "Standard",
                "size": name.removeprefix("Standard_"),
                "family": _family(name),
                "locations": [region],
                "locationInfo": [{"location": region, "zones": ["1", "2"], "zoneDetails": []}],
                "capabilities": [{"name": key, "value": value} for key, value in capabilities.items()],
                "restrictions": [_closed(region, reasons.get(name))] if closed or name in reasons else [],
            }


def _closed(region: str, reason: str | None = None) -> dict[str, Any]:
    return {
        "type": "Location",
        "values": [region],
        "restrictionInfo": {"locations": [region]},
        "reasonCode": reason or "NotAvailableForSubscription",
    }


def _sold() -> list[Size]:
    """Return the sizes that the emulated Azure has."""
    return [size for size in catalogue() if size.vcpus and not size.is_family and not size.retired]


def _vcpus(name: str) -> int:
    size = find(name)
    return (size and size.vcpus) or 0


def _family(name: str) -> str:
    """Return the family of a size as SKUs spell it; an unknown one is a family of its own."""
    size = find(name)
    spelt = size.name if size else name
    return (size and size.family) or f"standard{spelt.removeprefix('Standard_').replace('_', '')}Family"


def _quota(name: str) -> str:
    size = find(name)
    return (size and size.quota) or _family(name)


# -- prices -----------------------------------------------------------------------------------------------


def prices(asked: Mapping[str, str], figures: Figures | None = None) -> list[dict[str, Any]]:
    """Return the items of the price list whose fields are as ``asked``; none for an unknown region."""
    place = asked.get("armRegionName", "")
    if place and place not in (*REGIONS, _GLOBAL):
        return []
    items = [*_vm_items(place, figures or Figures()), *_other_items(place)]
    fields = {"type" if name == "priceType" else name: value for name, value in asked.items()}
    return [one for one in items if all(one.get(name) == value for name, value in fields.items())]


def _vm_items(place: str, figures: Figures) -> Iterator[dict[str, Any]]:
    for size in _sold():
        name, usd = size.name, _GPU_H * size.gpus if size.gpus else _VCPU_H * (size.vcpus or 0)
        short = name.removeprefix("Standard_").replace("_", " ")
        product = f"Virtual Machines {short} Series"
        same: dict[str, Any] = {"armSkuName": name, "armRegionName": place, "serviceName": "Virtual Machines"}
        for meter, system, factor in (
            ("", "", 1.0),
            (" Spot", "", _SPOT),
            (" Low Priority", "", 2 * _SPOT),
            ("", " Windows", 1.5),
            (" Spot", " Windows", 1.5 * _SPOT),
        ):
            named = {"meterName": short + meter, "skuName": short + meter, "productName": product + system}
            linux = not system and meter in ("", " Spot")
            price = round(usd * factor, 6)
            price_set = figures.prices.get((name, meter != ""), price) if linux else price
            if price_set is not None:
                yield _item(price_set, **same, **named)
        dev = {"meterName": short, "skuName": short, "productName": product}
        yield _item(round(usd / 2, 6), **same, **dev, type="DevTestConsumption")


def _other_items(place: str) -> Iterator[dict[str, Any]]:
    for service, product, meter, where, usd, unit in (
        (_VNET, "IP Addresses", "Standard IPv4 Static Public IP", place, 0.01, "1 Hour"),
        ("NAT Gateway", "NAT Gateway", "Standard Gateway", "Global", 0.05, "1 Hour"),
        ("NAT Gateway", "NAT Gateway", "Standard Data Processed", "Global", 0.05, "1 GB"),
        (
            "Virtual Network",
            "Virtual Network Private Link",
            "Standard Private Endpoint",
            "Global",
            0.01,
            "1 Hour",
        ),
        ("Storage", "Premium Files", "Premium LRS Provisioned", place, 0.2, "1 GiB/Month"),
        *(
            ("Storage", "Premium SSD Managed Disks", f"P{tier} LRS Disk", place, float(tier), "1/Month")
            for tier in (1, 2, 3, 4, 6, 10, 15, 20, 30, 40, 50, 60, 70, 80)
        ),
    ):
        named = {"serviceName": service, "productName": product, "meterName": meter, "skuName": "Standard"}
        yield _item(usd, **named, armRegionName=where, armSkuName="", unitOfMeasure=unit)


def _item(usd: float, **named: Any) -> dict[str, Any]:
    return {
        "currencyCode": "USD",
        "tierMinimumUnits": 0.0,
        "retailPrice": usd,
        "unitPrice": usd,
        "effectiveStartDate": "2020-01-01T00:00:00Z",
        "unitOfMeasure": "1 Hour",
        "type": "Consumption",
        "isPrimaryMeterRegion": True,
        **named,
    }


def _page(request: web.Request, figures: Figures) -> web.Response:
    text = request.query.get("$filter", "")
    found = prices(dict(_FILTER.findall(text)), figures)
    start = int(request.query.get("$skip", "0"))
    end = start + PAGE
    link = str(request.url.update_query({"$skip": end})) if end < len(found) else None
    items = found[start:end]
    return web.json_response(
        {
            "BillingCurrency": "USD",
            "CustomerEntityId": "Default",
            "CustomerEntityType": "Retail",
            "Items": items,
            "NextPageLink": link,
            "Count": len(items),
        }
    )
