"""What the emulated Azure sells: quota by family, sizes by region, list prices. Questions only.

Shapes are those of ``usages`` and ``skus`` of the compute API and of the Azure Retail Prices API
(learn.microsoft.com). Prices and limits are round figures of the rehearsal's own and nobody's real ones; what
is used is counted from the VMs that are there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from aiohttp import web

from catalogue.sizes import Size, catalogue
from infra.naming import OFFER_UNKNOWN
from rehearsal.arm.core.errors import no_provider_in, not_available, over_quota
from rehearsal.arm.offers.figures import Figures
from rehearsal.arm.offers.regions import REGIONS, is_offered

if TYPE_CHECKING:
    from rehearsal.arm.core.subscription import Subscription

__all__ = ["FAMILY_LIMIT", "answer", "check", "prices", "skus", "standing", "usages"]

FAMILY_LIMIT, REGION_LIMIT, SPOT_LIMIT = 60_000, 120_000, 60_000
"""vCPUs: room for 300 nodes of the largest size."""
PAGE = 100
"""Entries of one page of prices."""
_GPU_H, _VCPU_H, _SPOT = 3.0, 0.03, 0.2
"""USD per hour of a GPU, of a vCPU where there is none, and a spot VM's share of that."""
_SERVERS = {"Standard_E8s_v5": 8}
"""Sizes without a row in the catalogue that the program makes VMs of: vCPUs."""
_FAMILIES = {
    "Standard_ND40rs_v2": "standardNDSv2Family",
    "Standard_ND96asr_v4": "standard NDASv4_A100Family",
    "Standard_ND96amsr_A100_v4": "standard NDAMSv4_A100Family",
    "Standard_ND96isr_H100_v5": "standardNDSH100v5Family",
    "Standard_ND96isr_H200_v5": "standardNDISRH200V5Family",
    "Standard_ND128isr_NDR_GB200_v6": "standardNDISRGB200V6NDRFamily",
    "Standard_E8s_v5": "standardESv5Family",
}
"""As Azure's list of sizes spells them (reference: the enum of the SKU API that aspire.dev generates)."""
_SPELT_OTHERWISE = {"standard NDASv4_A100Family": "Standard NDASv4_A100 Family"}
"""As its quotas do."""

_USAGES = re.compile(
    r"/subscriptions/[^/]+/providers/microsoft\.compute/locations/([^/]+)/usages", re.IGNORECASE
)
_SKUS = re.compile(r"/subscriptions/[^/]+/providers/microsoft\.compute/skus", re.IGNORECASE)
_FILTER = re.compile(r"(\w+) eq '([^']*)'")
_PRICES = "/api/retail/prices"
_GLOBAL = "Global"
_VNET = "Virtual Network"


def answer(request: web.Request, subscription: Subscription) -> web.Response | None:
    """The answer to a question of this kind, ``None`` to any other request."""
    if request.method != "GET":
        return None
    path = request.path.rstrip("/")
    if path == _PRICES:
        return _page(request, subscription.figures)
    if (found := _USAGES.fullmatch(path)) is not None:
        if found[1].lower() not in REGIONS:
            raise no_provider_in(found[1], "locations/usages", request.query["api-version"])
        return web.json_response({"value": usages(subscription, found[1].lower())})
    if _SKUS.fullmatch(path) is not None:
        wanted = dict(_FILTER.findall(request.query.get("$filter", ""))).get("location")
        places = [wanted.lower()] if wanted else list(REGIONS)
        closed = _holds(subscription, "sku")
        return web.json_response({"value": list(skus(places, closed=closed, figures=subscription.figures))})
    return None


def _holds(subscription: Subscription, kind: str) -> bool:
    """Whether a fault of that kind would strike the next VM: one that lets some pass cannot be foreseen."""
    listed = getattr(subscription.faults, "listed", None)
    return listed is not None and any(one.kind == kind and not one.after for one in listed())


# -- quota ------------------------------------------------------------------------------------------------


def usages(subscription: Subscription, location: str) -> list[dict[str, Any]]:
    """Every quota of the region; with the fault ``quota`` none has anything left."""
    full = _holds(subscription, "quota")
    return [
        _usage(name, used, used if full else limit)
        for name, (limit, used) in _quotas(subscription, location).items()
    ]


def _quotas(subscription: Subscription, location: str) -> dict[str, tuple[int, int]]:
    """Limit and use of each quota of the region, in vCPUs."""
    used: dict[str, int] = {}
    for size, count, spot in _machines(subscription, location):
        vcpus = _vcpus().get(size.lower(), 0) * count
        for name in _counts(size, spot=spot):
            used[name] = used.get(name, 0) + vcpus
    limits = {"cores": REGION_LIMIT, "lowPriorityCores": SPOT_LIMIT}
    limits |= {_family(size): FAMILY_LIMIT for size in _sizes()}
    given = subscription.figures.limits
    return {
        name: (given.get(_SPELT_OTHERWISE.get(name, name), most), used.get(name, 0))
        for name, most in limits.items()
    }


def _counts(size: str, *, spot: bool) -> tuple[str, ...]:
    return ("lowPriorityCores",) if spot else (_family(size), "cores")


def standing(subscription: Subscription, size: str, location: str) -> tuple[str, int, int]:
    """A size's family as quotas spell it, the vCPUs of it in use in the region, and those of one more VM."""
    name, one = _family(size), _vcpus().get(size.lower(), 0)
    used = sum(
        count * _vcpus().get(other.lower(), 0)
        for other, count, spot in _machines(subscription, location)
        if _family(other) == name and not spot
    )
    return _SPELT_OTHERWISE.get(name, name), used, one


def check(
    subscription: Subscription, resource: object, size: str, location: str, more: int, *, spot: bool
) -> None:
    """Raises Azure's refusal of ``more`` VMs: of a size that is closed, or beyond a quota."""
    region, each = location.lower().replace(" ", ""), _vcpus().get(size.lower(), 0)
    closed = {name.lower() for name in subscription.figures.closed}
    if more > 0 and (size.lower() in closed or is_offered(size, region) is False):
        raise not_available(resource, subscription.id, region)
    quotas = _quotas(subscription, region) if more > 0 else {}
    for name in _counts(size, spot=spot):
        limit, used = quotas.get(name, (0, 0))
        if name in quotas and used + more * each > limit:
            raise over_quota(_SPELT_OTHERWISE.get(name, name), region, limit, used, more * each)


def _usage(name: str, used: int, limit: int) -> dict[str, Any]:
    told = {"cores": "Total Regional vCPUs", "lowPriorityCores": "Total Regional Low-priority vCPUs"}
    spelt = _SPELT_OTHERWISE.get(name, name)
    label = told.get(name) or f"{spelt[0].upper()}{spelt[1:]} vCPUs"
    return {
        "limit": limit,
        "unit": "Count",
        "currentValue": used,
        "name": {"value": spelt, "localizedValue": label},
    }


def _machines(subscription: Subscription, location: str) -> Iterator[tuple[str, int, bool]]:
    """Size, number and whether they are spot of all VMs in the region."""
    for record in subscription.of_type("Microsoft.Compute/virtualMachineScaleSets"):
        if _place(record.body) == location:
            scale_set = subscription.scale_sets.get(record.id.key)
            profile = record.body.get("properties", {}).get("virtualMachineProfile") or {}
            there = scale_set.instances.values() if scale_set is not None else ()
            count = sum(not one.deallocated for one in there)
            yield record.body["sku"]["name"], count, profile.get("priority") == "Spot"
    for record in subscription.of_type("Microsoft.Compute/virtualMachines"):
        held = subscription.virtual_machines.get(record.id.key)
        if _place(record.body) == location and held is not None and not held.deallocated:
            spot = record.properties.get("priority") == "Spot"
            yield record.properties["hardwareProfile"]["vmSize"], 1, spot


def _place(body: Mapping[str, Any]) -> str:
    return str(body.get("location", "")).lower().replace(" ", "")


# -- sizes ------------------------------------------------------------------------------------------------


def skus(
    places: Iterable[str], *, closed: bool = False, figures: Figures | None = None
) -> Iterator[dict[str, Any]]:
    """An entry for each size in each region that has it, or of which that is not known.

    ``closed`` to this subscription with the fault ``sku``.
    """
    reasons = figures.closed if figures is not None else {}
    known = {size.name: size for size in _rows()}
    for place in places:
        for name in _sizes():
            size, offered = known.get(name), is_offered(name, place)
            if offered is False:
                continue
            told = {
                "vCPUs": str(_vcpus()[name.lower()]),
                "RdmaEnabled": str(size is not None and size.rdma),
                **_also(size),
                "LowPriorityCapable": "True",
                "HyperVGenerations": "V2" if size is not None and size.hyperv == "Gen2" else "V1,V2",
                **({} if offered else {OFFER_UNKNOWN: "True"}),
            }
            yield {
                "resourceType": "virtualMachines",
                "name": name,
                "tier": "Standard",
                "size": name.removeprefix("Standard_"),
                "family": _family(name),
                "locations": [place],
                "locationInfo": [{"location": place, "zones": ["1", "2"], "zoneDetails": []}],
                "capabilities": [{"name": key, "value": value} for key, value in told.items()],
                "restrictions": [_closed(place, reasons.get(name))] if closed or name in reasons else [],
            }


def _also(size: Size | None) -> dict[str, str]:
    """Capabilities whose figures are known."""
    told = {"GPUs": size.gpus, "MemoryGB": size.memory_gib} if size is not None else {}
    return {name: str(value) for name, value in told.items() if value}


def _closed(place: str, reason: str | None = None) -> dict[str, Any]:
    return {
        "type": "Location",
        "values": [place],
        "restrictionInfo": {"locations": [place]},
        "reasonCode": reason or "NotAvailableForSubscription",
    }


@cache
def _rows() -> tuple[Size, ...]:
    return tuple(size for size in catalogue() if "*" not in size.name and size.vcpus and not size.retired)


@cache
def _sizes() -> tuple[str, ...]:
    return (*(size.name for size in _rows()), *_SERVERS)


@cache
def _vcpus() -> Mapping[str, int]:
    found = {size.name.lower(): size.vcpus or 0 for size in _rows()}
    return found | {name.lower(): vcpus for name, vcpus in _SERVERS.items()}


def _family(size: str) -> str:
    spelt = next((name for name in _sizes() if name.lower() == size.lower()), size)
    return _FAMILIES.get(spelt) or f"standard{spelt.removeprefix('Standard_').replace('_', '')}Family"


# -- prices -----------------------------------------------------------------------------------------------


def prices(asked: Mapping[str, str], figures: Figures | None = None) -> list[dict[str, Any]]:
    """The items of the price list whose fields are as ``asked``, in any region of Azure's that is named."""
    place = asked.get("armRegionName", "")
    if place and place not in (*REGIONS, _GLOBAL):
        return []
    items = [*_vm_items(place, figures or Figures()), *_other_items(place)]
    fields = {"type" if name == "priceType" else name: value for name, value in asked.items()}
    return [one for one in items if all(one.get(name) == value for name, value in fields.items())]


def _vm_items(place: str, figures: Figures) -> Iterator[dict[str, Any]]:
    known = {size.name: size for size in _rows()}
    for name in _sizes():
        size, vcpus = known.get(name), _vcpus()[name.lower()]
        usd = _GPU_H * size.gpus if size is not None and size.gpus else _VCPU_H * vcpus
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
