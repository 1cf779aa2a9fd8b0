"""Answers in the shape of Azure's own APIs, and an Azure that gives them.

The shapes are those of the Retail Prices API, of Resource SKUs and usages (2021-07-01 and 2024-07-01) and of
ARM's lists and errors; figures are made up unless a test says otherwise.
"""

from __future__ import annotations

import http.server
import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from infra.arm.rest import Answer, Rest

SUBSCRIPTION = "00000000-0000-0000-0000-000000000001"
SIZE, PLACE = "Standard_ND40rs_v2", "southcentralus"
FAMILY = "standardNDSv2Family"
DISK = {"resourceType": "disks", "name": "Premium_LRS", "locations": [PLACE]}
"""The SKUs are not only of VMs."""


def price(usd: float | None, **changed: Any) -> dict[str, Any]:
    """An item of the price list: Linux, regular, by the hour, unless changed."""
    return {
        "currencyCode": "USD",
        "tierMinimumUnits": 0.0,
        "retailPrice": usd,
        "unitPrice": usd,
        "armRegionName": PLACE,
        "location": "US South Central",
        "effectiveStartDate": "2020-03-01T00:00:00Z",
        "meterId": "6c2e3a4f-0000-0000-0000-000000000000",
        "meterName": "ND40rs v2",
        "productId": "DZH318Z0BQ4L",
        "skuId": "DZH318Z0BQ4L/00XQ",
        "productName": "Virtual Machines NDrv2 Series",
        "skuName": "ND40rs v2",
        "serviceName": "Virtual Machines",
        "serviceId": "DZH313Z7MMC8",
        "serviceFamily": "Compute",
        "unitOfMeasure": "1 Hour",
        "type": "Consumption",
        "isPrimaryMeterRegion": True,
        "armSkuName": SIZE,
    } | changed


def spot(usd: float, **changed: Any) -> dict[str, Any]:
    return price(usd, **({"meterName": "ND40rs v2 Spot", "skuName": "ND40rs v2 Spot"} | changed))


def nat(usd: float = 0.045) -> dict[str, Any]:
    names = {"serviceName": "NAT Gateway", "productName": "NAT Gateway", "meterName": "Standard Gateway"}
    return price(usd, armRegionName="Global", armSkuName="", skuName="Standard", **names)


def address(usd: float = 0.005) -> dict[str, Any]:
    names = {
        "serviceName": "Virtual Network",
        "productName": "IP Addresses",
        "meterName": "Standard IPv4 Static Public IP",
    }
    return price(usd, armSkuName="", skuName="Standard", **names)


def disk(usd: float = 38.02) -> dict[str, Any]:
    """Of a premium SSD of 256 GiB, by the month."""
    names = {
        "serviceName": "Storage",
        "productName": "Premium SSD Managed Disks",
        "meterName": "P15 LRS Disk",
        "unitOfMeasure": "1/Month",
    }
    return price(usd, armSkuName="", skuName="P15 LRS", **names)


def usage(name: str, limit: int, used: int = 0, label: str | None = None) -> dict[str, Any]:
    """One quota of a region."""
    named = {"value": name, "localizedValue": label or name}
    return {"limit": limit, "unit": "Count", "currentValue": used, "name": named}


def sku(
    size: str = SIZE,
    place: str = PLACE,
    *,
    zones: tuple[str, ...] = ("1", "2"),
    family: str | None = FAMILY,
    restrictions: tuple[dict[str, Any], ...] = (),
    **capabilities: str,
) -> dict[str, Any]:
    """An entry of the Resource SKUs."""
    result = {
        "vCPUs": "40",
        "MemoryGB": "672",
        "RdmaEnabled": "True",
        "LowPriorityCapable": "True",
    } | capabilities
    return {
        "resourceType": "virtualMachines",
        "name": size,
        "tier": "Standard",
        "size": size.removeprefix("Standard_"),
        "family": family,
        "locations": [place],
        "locationInfo": [{"location": place, "zones": list(zones), "zoneDetails": []}],
        "capabilities": [{"name": name, "value": value} for name, value in result.items()],
        "restrictions": list(restrictions),
    }


def closed(place: str = PLACE, reason: str = "NotAvailableForSubscription") -> dict[str, Any]:
    """A restriction of a whole region."""
    return {
        "type": "Location",
        "values": [place],
        "restrictionInfo": {"locations": [place]},
        "reasonCode": reason,
    }


def closed_zones(*zones: str, place: str = PLACE) -> dict[str, Any]:
    """A restriction of some zones."""
    return {
        "type": "Zone",
        "values": [place],
        "restrictionInfo": {"locations": [place], "zones": list(zones)},
        "reasonCode": "NotAvailableForSubscription",
    }


def scale_set(
    capacity: int,
    size: str = SIZE,
    place: str = PLACE,
    priority: str = "Regular",
    created: str | None = None,
) -> dict[str, Any]:
    return {
        "name": "ranklift-dev",
        "location": place,
        "sku": {"name": size, "tier": "Standard", "capacity": capacity},
        "properties": {"virtualMachineProfile": {"priority": priority}}
        | ({"timeCreated": created} if created else {}),
    }


def vm(number: int, gib: int, **disk: Any) -> dict[str, Any]:
    """An entry of a scale set's list of VMs."""
    storage = {"osDisk": {"createOption": "FromImage", "diskSizeGB": gib} | disk}
    return {"instanceId": str(number), "properties": {"storageProfile": storage}}


def image(**properties: Any) -> dict[str, Any]:
    """A version of a marketplace image: for x64 and generation 2, without a plan, unless changed."""
    usual = {
        "hyperVGeneration": "V2",
        "architecture": "x64",
        "osDiskImage": {"operatingSystem": "Linux"},
        "dataDiskImages": [],
        "imageDeprecationStatus": {"imageState": "Active"},
    }
    return {"location": PLACE, "name": "22.04.2025082501", "properties": usual | properties}


def resource(
    kind: str, name: str, group: str = "ranklift-dev", stack: str | None = "dev", **more: Any
) -> dict[str, Any]:
    """An entry of a subscription's list of resources."""
    entry = {
        "id": f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{group}/providers/{kind}/{name}",
        "name": name,
        "type": kind,
        "location": PLACE,
        "createdTime": "2026-03-01T09:05:07.1234567Z",
        "provisioningState": "Succeeded",
    }
    return {**entry, **({"tags": {"ranklift-stack": stack}} if stack else {}), **more}


def group(name: str = "ranklift-dev", stack: str | None = "dev", state: str = "Succeeded") -> dict[str, Any]:
    """An entry of a subscription's list of resource groups."""
    entry = {
        "id": f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{name}",
        "name": name,
        "type": "Microsoft.Resources/resourceGroups",
        "location": PLACE,
        "properties": {"provisioningState": state},
    }
    return {**entry, **({"tags": {"ranklift-stack": stack}} if stack else {})}


def error(status: int, code: str, message: str = "no") -> Answer:
    return Answer(status, json.dumps({"error": {"code": code, "message": message}}).encode())


def forbidden(action: str) -> Answer:
    scope = f"/subscriptions/{SUBSCRIPTION}"
    return error(
        403,
        "AuthorizationFailed",
        "The client 'ann@example.com' with object id '1' does not have authorization to perform action "
        f"'{action}' over scope '{scope}' or the scope is invalid. If access was recently granted, please "
        "refresh your credentials.",
    )


@dataclass
class Azure:
    """An Azure that answers what it was given; whatever else is asked of it fails the test."""

    prices: list[dict[str, Any]] = field(
        default_factory=lambda: [price(22.03), spot(3.97), nat(), address(), disk()]
    )
    usages: list[dict[str, Any]] = field(
        default_factory=lambda: [
            usage("cores", 400, 12, "Total Regional vCPUs"),
            usage("lowPriorityCores", 200, 0, "Total Regional Low-priority vCPUs"),
            usage(FAMILY, 200, 0, "Standard NDSv2 Family vCPUs"),
        ]
    )
    skus: list[dict[str, Any]] = field(default_factory=lambda: [sku()])
    there: dict[str, Any] | None = None
    os_disks: list[int] = field(default_factory=list)
    """GiB of the OS disks of the scale set's VMs."""
    image: dict[str, Any] | None = field(default_factory=image)
    versions: list[str] = field(default_factory=list)
    """Of the image's SKU, as the marketplace lists them."""
    accepted: bool = True
    """The terms of purchase plans."""
    resources: list[dict[str, Any]] = field(default_factory=list)
    groups: list[dict[str, Any]] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)
    """What a GET of a path with this end gives."""
    instead: dict[str, Answer | OSError] = field(default_factory=dict)
    """By a word of the address: what is answered instead."""
    asked: list[str] = field(default_factory=list)

    def __call__(self, url: str, headers: Mapping[str, str]) -> Answer:
        self.asked.append(url)
        for word, instead in self.instead.items():
            if word in url:
                if isinstance(instead, OSError):
                    raise instead
                return instead
        parts = urlsplit(url)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        assert query.get("api-version"), url
        answer = self._marketplace(parts.path) or self._answer(parts.path, query.get("$filter", ""))
        assert answer is not None, url
        return answer

    def _marketplace(self, path: str) -> Answer | None:
        if "/artifacttypes/vmimage/" in path:
            if path.endswith("/versions"):
                entries = [{"location": PLACE, "name": one, "id": f"{path}/{one}"} for one in self.versions]
                return Answer(200, json.dumps(entries).encode())
            if self.image is None:
                return error(404, "NotFound", "Artifact: VMImage was not found.")
            return Answer(200, json.dumps(self.image).encode())
        if path.endswith("/agreements/current"):
            return Answer(200, json.dumps({"properties": {"accepted": self.accepted}}).encode())
        return None

    def _answer(self, path: str, asked: str) -> Answer | None:
        lists = {
            "/subscriptions": [{"id": f"/subscriptions/{SUBSCRIPTION}", "subscriptionId": SUBSCRIPTION}],
            "/resources": self.resources,
            "/resourcegroups": self.groups,
            "/virtualmachines": [vm(number, gib) for number, gib in enumerate(self.os_disks)],
            f"/locations/{PLACE}/usages": self.usages,
            "/providers/microsoft.compute/skus": [*_in(self.skus, asked), *_in([DISK], asked)],
        }
        if path == "/api/retail/prices":
            return _listed(_filtered(self.prices, asked), "Items", "NextPageLink")
        for end, body in self.details.items():
            if path.endswith(end):
                return Answer(200, json.dumps(body).encode())
        for end, entries in lists.items():
            if path.lower().endswith(end):
                return _listed(entries)
        found: dict[str, Any] | None
        if named := re.search("/resourcegroups/([^/]+)$", path):
            found = next((one for one in self.groups if one["name"] == named[1]), None)
        elif "/Microsoft.Compute/virtualMachine" in path:
            found = None if "/virtualMachines/" in path else self.there
        else:
            return None
        if found is None:
            return error(404, "ResourceNotFound", "The Resource was not found.")
        return Answer(200, json.dumps(found).encode())

    @property
    def rest(self) -> Rest:
        """As both endpoints at once, which is what a rehearsal is."""
        return Rest("http://127.0.0.1:1", None, self, sleep=lambda _: None)


def _in(skus: list[dict[str, Any]], asked: str) -> list[dict[str, Any]]:
    place = re.fullmatch(r"location eq '(\w+)'", asked)
    return [one for one in skus if place is None or place[1] in one["locations"]]


def _filtered(items: list[dict[str, Any]], asked: str) -> list[dict[str, Any]]:
    wanted = {
        "type" if key == "priceType" else key: value
        for key, value in re.findall(r"(\w+) eq '([^']*)'", asked)
    }
    # DevTest meters come with Consumption ones in some regions: let them through.
    wanted.pop("type", None)
    return [item for item in items if all(item.get(key) == value for key, value in wanted.items())]


def _listed(entries: list[dict[str, Any]], key: str = "value", link: str = "nextLink") -> Answer:
    return Answer(200, json.dumps({key: entries, link: None}).encode())


def rehearsed(url: str, folder: Path) -> dict[str, str]:
    """The variables of a rehearsal at ``url``, with a token that is kept in ``folder``."""
    record = folder / "rehearsal.json"
    ports = {"arm_port": int(url.rpartition(":")[2]), "provider_port": 1}
    record.write_text(json.dumps({"token": "the operator's token", **ports}))
    return {"RANKLIFT_ARM_ENDPOINT": url, "RANKLIFT_ARM_TOKEN_FILE": str(record)}


@contextmanager
def served(azure: Azure) -> Iterator[str]:
    """The address at which ``azure`` answers over HTTP; what fails it is raised at the end."""
    failures: list[AssertionError] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            try:
                answer = azure(f"http://127.0.0.1{self.path}", dict(self.headers))
            except AssertionError as wrong:
                failures.append(wrong)
                answer = Answer(500)
            self.send_response(answer.status)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{running.server_port}"
        finally:
            running.shutdown()
            thread.join()
    if failures:
        raise failures[0]
