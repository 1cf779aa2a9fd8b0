"""Prices from Azure's public price list.

The Azure Retail Prices API (learn.microsoft.com "Azure Retail Prices overview") needs no sign-in. It has list
prices in USD, without discounts. What it does not list is ``None``, never zero.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from infra.arm.rest import Rest
from infra.preflight.meters import Meter

__all__ = ["GLOBAL", "MONTH_H", "Prices", "meter_price", "usd", "vm_prices"]

GLOBAL = "Global"
"""Region of the meters that cost the same everywhere: NAT gateways, load balancers, private endpoints."""
MONTH_H = 730.0
"""Hours in a month of Azure's price lists."""

_API = "2023-01-01-preview"
_HOURLY = re.compile(r"1(/| )?Hour", re.IGNORECASE)
_MONTHLY = re.compile(r"1( Gi?B)?/Month", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Prices:
    """USD per hour of one Linux VM of a size in a region; ``None`` where the price list has no such meter."""

    regular: float | None = None
    spot: float | None = None


def vm_prices(rest: Rest, size: str, location: str) -> Prices:
    """Return the prices of a Linux VM of a size in a region.

    Raises :class:`~infra.arm.errors.AzureRefused` when the price list cannot be read.
    """
    filters = (
        f"serviceName eq 'Virtual Machines' and armRegionName eq '{location}' "
        f"and armSkuName eq '{size}' and priceType eq 'Consumption'"
    )
    items = [item for item in _price_list(rest, filters) if _is_linux(item, size)]
    return Prices(
        regular=_price(item for item in items if not _says(item, "spot")),
        spot=_price(item for item in items if _says(item, "spot")),
    )


def meter_price(rest: Rest, meter: Meter, location: str) -> float | None:
    """Return USD per hour of one unit of ``meter``; ``None`` if the region has no such meter.

    A price by the month counts as :data:`MONTH_H` hours, the first tier where there are several.
    """
    region = GLOBAL if meter.everywhere else location
    filters = (
        f"serviceName eq '{meter.service}' and armRegionName eq '{region}' "
        f"and meterName eq '{meter.name}' and priceType eq 'Consumption'"
    )
    return _price(
        item
        for item in _price_list(rest, filters)
        if item.get("meterName") == meter.name and meter.product in (None, item.get("productName"))
    )


def _price_list(rest: Rest, filters: str) -> Iterable[Mapping[str, Any]]:
    return rest.pages("/api/retail/prices", **{"api-version": _API, "$filter": filters})


def _is_linux(item: Mapping[str, Any], size: str) -> bool:
    """Whether the item is for Linux; only the product's name differs from that for Windows."""
    product = str(item.get("productName", "")).lower()
    return (
        str(item.get("armSkuName", "")).lower() == size.lower()
        and "windows" not in product
        and "cloud services" not in product
        and not _says(item, "low priority")
    )


def _says(item: Mapping[str, Any], word: str) -> bool:
    return any(word in str(item.get(key, "")).lower() for key in ("meterName", "skuName"))


def _price(items: Iterable[Mapping[str, Any]]) -> float | None:
    """Return the highest price that may apply: a plan should rather show too much than too little."""
    now = datetime.now(UTC)
    good = [item for item in items if _counts(item, now)]
    primary = [item for item in good if item.get("isPrimaryMeterRegion")]
    return max((_hourly(item) for item in primary or good), default=None)


def _counts(item: Mapping[str, Any], now: datetime) -> bool:
    """Whether the item is a current price in USD for all: not DevTest, not a reservation, not 0."""
    begins = str(item.get("effectiveStartDate") or "")
    try:
        later = bool(begins) and datetime.fromisoformat(begins).astimezone(UTC) > now
    except ValueError:
        later = False
    return (
        item.get("type", "Consumption") == "Consumption"
        and item.get("currencyCode", "USD") == "USD"
        and not item.get("tierMinimumUnits")
        and not later
        and isinstance(item.get("retailPrice"), int | float)
        and item["retailPrice"] > 0
        and (_unit(item, _HOURLY) or _unit(item, _MONTHLY))
    )


def _unit(item: Mapping[str, Any], kind: re.Pattern[str]) -> bool:
    return kind.fullmatch(str(item.get("unitOfMeasure", "")).strip()) is not None


def _hourly(item: Mapping[str, Any]) -> float:
    return float(item["retailPrice"]) / (1.0 if _unit(item, _HOURLY) else MONTH_H)


def usd(amount: float | None) -> str:
    """Return an amount of money; small ones with as many digits as they need.

    >>> usd(88.116), usd(2114.784), usd(0.045), usd(0.0), usd(None)
    ('88.12', '2,114.78', '0.045', 'free', 'unknown')
    """
    if amount is None:
        return "unknown"
    if amount == 0:
        return "free"
    return f"{amount:,.2f}" if amount >= 1 or round(amount, 2) == amount else f"{amount:.4f}".rstrip("0")
