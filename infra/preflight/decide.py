"""The plan: whether Azure will grant a cluster and what it will cost, decided before anything is made.

Pure: :mod:`infra.preflight.availability` and :mod:`infra.preflight.prices` query, this decides, the ``plan``
task prints. A missing figure is the error that explains it, and never counts as zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import fsum

from infra.config.cluster_config import ClusterConfig
from infra.preflight.availability import Offer, ScaleSet, offer_of
from infra.preflight.inputs import Figures
from infra.preflight.marketplace import Published, against, described, reference, retiring, unknown
from infra.preflight.meters import Part
from infra.preflight.parts import NODE, machines_of, parts
from infra.preflight.prices import Prices
from infra.preflight.quota import QuotaLine, quotas
from infra.preflight.refusal import NotGranted, Refusal
from infra.preflight.stale import end_of, in_the_way, rights_in_the_way, time_over
from infra.preflight.storage_firewall import not_let_in

__all__ = ["Cost", "Plan", "decide", "staying_disks"]

_HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class Cost:
    """One line of the plan."""

    part: Part
    regular: float | None
    """USD per hour of all of them together at regular priority; ``None``: unknown; 0: free."""
    spot: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The resources to be made, their cost, and the reasons against them."""

    stack: str
    subscription: str
    location: str
    size: str
    spot: bool
    nodes: int
    there: int | None
    """Existing nodes of the stack; ``None``: unknown."""
    adding: int
    costs: tuple[Cost, ...]
    regular_per_hour: float | None
    """USD per hour of everything with a known price; ``None`` if the nodes' price is unknown."""
    spot_per_hour: float | None
    max_price: float | None
    quotas: tuple[QuotaLine, ...]
    offered: bool | None
    """Whether this subscription may use the size there; ``None``: unknown."""
    restricted: str | None
    zones: tuple[str, ...] | None
    image: str
    """What the nodes boot: a URN or a resource id."""
    image_is: str
    """What Azure's marketplace has of it, in words."""
    ends: datetime | None
    """When the nodes delete the existing scale set; ``None``: never, no scale set, or unknown."""
    hours_left: float | None
    """Hours until then; below 0: overdue."""
    unknowns: tuple[str, ...]
    """What is unknown, and why, a sentence each."""
    warnings: tuple[str, ...]
    """What the user has to do besides, a sentence each."""
    refusals: tuple[Refusal, ...]

    @property
    def per_hour(self) -> float | None:
        """USD per hour at the configured priority."""
        return self.spot_per_hour if self.spot else self.regular_per_hour

    @property
    def node_per_hour(self) -> float | None:
        """USD per hour of one node at the configured priority; ``None``: unknown."""
        for cost in self.costs:
            if cost.part.what == NODE:
                usd = cost.spot if self.spot else cost.regular
                return None if usd is None else round(usd / cost.part.count, 6)
        return None

    def check(self) -> None:
        """Raise :class:`NotGranted` if there are refusals."""
        if self.refusals:
            raise NotGranted(self.stack, self.refusals, self.there)


def decide(
    stack: str, subscription: str, config: ClusterConfig, figures: Figures, *, now: datetime | None = None
) -> Plan:
    """Return the plan for ``config``, with every reason against it."""
    now = now or datetime.now(UTC)
    has = figures.there if isinstance(figures.there, ScaleSet) else None
    made = parts(stack, config, staying_disks(has, config))
    costs = tuple(_cost(part, figures) for part in made)
    skus = figures.skus
    offer = None if isinstance(skus, Exception) else offer_of(skus, config.size.name, config.location)
    adding = config.node_count - (has.capacity if has is not None and _alike(has, config) else 0)
    lines, short = quotas(config, machines_of(made), figures)
    regular, spot = _sum(costs, spot=False), _sum(costs, spot=True)
    ends = end_of(has, config)
    kept = () if isinstance(figures.kept, Exception) else figures.kept
    firewall = figures.firewall
    closed = None if isinstance(firewall, Exception) else not_let_in(firewall, stack, subscription, config)
    refusals = [*in_the_way(kept, stack, config), *time_over(ends, config, now), *short]
    if adding > 0:
        refusals += _not_offered(config, figures, offer)
    refusals += [closed] if isinstance(closed, Refusal) else []
    refusals += [] if isinstance(figures.rights, Exception) else rights_in_the_way(figures.rights)
    unbootable, warnings = _image(config, figures, makes_nodes=adding > 0 or _replaces(has, config))
    refusals += unbootable
    warnings += [closed] if isinstance(closed, str) else []
    refusals += _too_dear(config, spot if config.spot else regular, figures)
    unknown_there = isinstance(figures.there, Exception)
    return Plan(
        stack=stack,
        subscription=subscription,
        location=config.location,
        size=config.size.name,
        spot=config.spot,
        nodes=config.node_count,
        there=None if unknown_there else has.capacity if has is not None else 0,
        adding=max(0, adding),
        costs=costs,
        regular_per_hour=regular,
        spot_per_hour=spot,
        max_price=config.max_price,
        quotas=tuple(lines),
        offered=None if offer is None else offer.available,
        restricted=None if offer is None else offer.restricted,
        zones=None if offer is None else offer.zones,
        image=reference(config.image),
        image_is=described(figures.image),
        ends=ends,
        hours_left=None if ends is None else (ends - now).total_seconds() / _HOUR_S,
        unknowns=tuple(_unknowns(config, figures, costs, offer)),
        warnings=tuple(warnings),
        refusals=tuple(refusals),
    )


def _alike(has: ScaleSet, config: ClusterConfig) -> bool:
    """Whether the existing nodes can stay in the configured cluster."""
    return (
        has.size.lower() == config.size.name.lower()
        and has.spot == config.spot
        and has.location == config.location
    )


def _replaces(has: ScaleSet | None, config: ClusterConfig) -> bool:
    """Whether the nodes are made again, for another image than the existing ones have."""
    return bool(has and has.image and has.image.lower() != reference(config.image).lower())


def staying_disks(has: ScaleSet | None, config: ClusterConfig) -> tuple[int, ...]:
    """Return the GiB of the existing OS disks that stay in the configured cluster."""
    return has.disks if has is not None and _alike(has, config) and not _replaces(has, config) else ()


def _image(config: ClusterConfig, figures: Figures, *, makes_nodes: bool) -> tuple[list[Refusal], list[str]]:
    """Return what is against the image; while no node is made, as warnings."""
    if not isinstance(figures.image, Published):
        return [], []
    late = retiring(figures.image, config)
    warnings = [late] if late else []
    found = against(figures.image, config)
    if makes_nodes:
        return found, warnings
    return [], [*warnings, *(f"no further node can be made: {one.problem}; {one.remedy}" for one in found)]


# -- price ------------------------------------------------------------------------------------------------


def _cost(part: Part, figures: Figures) -> Cost:
    if part.size is not None:
        found = figures.prices.get(part.size)
        each = found if isinstance(found, Prices) else Prices()
        # Only the nodes can be spot VMs; servers never are.
        spot = each.spot if part.what == NODE else each.regular
        return Cost(part, _times(each.regular, part.count), _times(spot, part.count))
    if part.meter is not None:
        known = figures.meters.get(part.meter)
        usd = _times(None if isinstance(known, Exception) else known, part.count * part.units)
        return Cost(part, usd, usd)
    free = 0.0 if part.billing == "free" else None
    return Cost(part, free, free)


def _times(price: float | None, count: int) -> float | None:
    return None if price is None else price * count


def _sum(costs: Sequence[Cost], *, spot: bool) -> float | None:
    """Return the sum of known prices; ``None`` without the nodes' price, the largest by far."""
    each = [(cost, cost.spot if spot else cost.regular) for cost in costs]
    if any(usd is None for cost, usd in each if cost.part.billing == "vm"):
        return None
    return fsum(usd for _, usd in each if usd is not None)  # sum() adds otherwise since Python 3.12


def _too_dear(config: ClusterConfig, price: float | None, figures: Figures) -> list[Refusal]:
    limit = config.max_price
    if limit is None:
        return []
    kind = "spot" if config.spot else "regular"
    if price is None:
        why = (
            str(figures.prices)
            if isinstance(figures.prices, Exception)
            else "the price list has no entry for it"
        )
        problem = f"the {kind} price of {config.size.name} in {config.location} is unknown ({why})"
        remedy = f"remove ranklift:maxPrice ({limit:g} USD per hour) to continue without the price"
        return [Refusal("price", problem, remedy)]
    if price <= limit:
        return []
    problem = f"{price:.7g} USD per hour is more than ranklift:maxPrice allows, {limit:g} USD per hour"
    return [Refusal("price", problem, "use fewer nodes, spot nodes or another size, or raise it")]


# -- offers ----------------------------------------------------------------------------------------------


def _not_offered(config: ClusterConfig, figures: Figures, offer: Offer | None) -> list[Refusal]:
    name, place = config.size.name, config.location
    if offer is None:
        problem = f"whether {place} offers {name} is unknown: {figures.skus}"
        return [Refusal("size", problem, "correct the cause, or run `pulumi up`, which skips this check")]
    if not offer.available:
        if offer.restricted == "NotAvailableForSubscription":
            why = "is closed to this subscription (NotAvailableForSubscription)"
            ask = "ask Azure's support to open it"
        elif offer.restricted:
            why = f"is not sold to this kind of subscription ({offer.restricted})"
            ask = "use another subscription"
        else:
            why, ask = "is not offered", "use another size"
        return [Refusal("size", f"{name} {why} in {place}", f"{ask}{_other_places(figures.elsewhere)}")]
    refusals = []
    if config.zone is not None and config.zone not in offer.zones:
        closed = "is closed to this subscription" if config.zone in offer.closed_zones else "does not have it"
        open_zones = ", ".join(offer.zones) or "none"
        problem = f"zone {config.zone} of {place} {closed}: {name} is in {open_zones}"
        refusals.append(Refusal("zone", problem, "set ranklift:zone to one of those, or remove it"))
    if config.spot and offer.spot is False:
        problem = f"{name} is not offered as spot (LowPriorityCapable is False)"
        refusals.append(Refusal("size", problem, "set ranklift:spot to false, or use another size"))
    if config.size.rdma and offer.rdma is False:
        problem = (
            f"Azure's list has {name} without it in {place} (RdmaEnabled is False), the catalogue with it"
        )
        refusals.append(
            Refusal("InfiniBand", problem, "use another region or size, and report the catalogue's error")
        )
    return refusals


def _other_places(regions: Sequence[str] | None) -> str:
    if regions is None:
        return ""
    if not regions:
        return "; no region offers it to this subscription"
    return f", or set ranklift:location to one that offers it: {', '.join(regions)}"


# -- unknowns --------------------------------------------------------------------------------------------


def _unknowns(
    config: ClusterConfig, figures: Figures, costs: Sequence[Cost], offer: Offer | None
) -> list[str]:
    found: list[str] = []
    for machines in machines_of(cost.part for cost in costs):
        prices = figures.prices.get(machines.size) or Prices()
        if isinstance(prices, Exception):
            found.append(f"price of {machines.size}: {prices}")
            continue
        is_node = machines.size == config.size.name
        kinds = [("regular", prices.regular), *([("spot", prices.spot)] if is_node else [])]
        found += [
            f"{kind} price of {machines.size}: the price list has no entry for {config.location}"
            for kind, usd in kinds
            if usd is None
        ]
    for cost in costs:
        whose = f"price of the {cost.part.what} {cost.part.name}".rstrip()
        if cost.part.meter is not None and cost.regular is None:
            found.append(f"{whose}: {figures.meters.get(cost.part.meter) or 'the price list has no entry'}")
        elif cost.part.billing == "unknown":
            found.append(f"{whose}: {cost.part.note}")
    if isinstance(figures.there, Exception):
        found.append(f"existing nodes: {figures.there}; all count as new")
    elif figures.there is not None and figures.there.created is None and config.ttl_hours is not None:
        found.append("end of the cluster's lifetime: Azure does not report when the scale set was created")
    if isinstance(figures.kept, Exception):
        found.append(f"resources of the stack that Pulumi's state lacks: {figures.kept}")
    found += unknown(figures.image, config)
    if isinstance(figures.rights, Exception):
        found.append(f"earlier rights of the stack on what it is given: {figures.rights}")
    if isinstance(figures.firewall, Exception):
        found.append(f"whether the storage account admits the nodes: {figures.firewall}")
    if offer is not None and not offer.known:
        found.append(
            f"whether {config.location} offers {config.size.name}: the rehearsal has no figures; Azure "
            "itself may refuse it"
        )
    if offer is not None and offer.offered and offer.rdma is None and config.size.rdma:
        found.append(f"InfiniBand: Azure's list of sizes lacks RdmaEnabled for {config.size.name}")
    return list(dict.fromkeys(found))
