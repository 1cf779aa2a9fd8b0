"""Whether a subscription's quota has room for a cluster's nodes: decided from Azure's figures.

Quota counts vCPUs, by family of sizes and for the region as a whole; spot VMs count against one quota of the
region that is theirs alone (learn.microsoft.com "Use Spot VMs": quota pools of their own).
"""

from __future__ import annotations

from dataclasses import dataclass

from infra.config import ClusterConfig
from infra.figures import BY_HAND, Figures, Refusal
from infra.market import CORES, SPOT_CORES, Offer, ScaleSet, Usage, family_key, offer_of

__all__ = ["QUOTA_LINK", "QuotaLine", "quotas"]

QUOTA_LINK = "https://portal.azure.com/#view/Microsoft_Azure_Capacity/QuotaMenuBlade/~/myQuotas"
"""Where the portal lists quotas and takes requests for more."""


@dataclass(frozen=True, slots=True)
class QuotaLine:
    """One quota that the nodes count against, in vCPUs."""

    name: str
    label: str
    limit: int
    used: int
    left: int
    needed: int
    """What is asked for in addition to what the stack has."""
    after: int
    """Left afterwards; below 0: too little."""


def quotas(
    config: ClusterConfig, figures: Figures, offer: Offer | None
) -> tuple[list[QuotaLine], list[Refusal]]:
    """Each quota that the nodes count against, and why any of them speaks against the cluster.

    What the stack has already counts for nothing: it stays, or goes before others come in its place.
    """
    place, size = config.location, config.size.name
    if isinstance(figures.usages, Exception):
        return [], [Refusal("quota", f"{place}'s could not be asked: {figures.usages}", BY_HAND)]
    vcpus = config.size.vcpus if offer is None or offer.vcpus is None else offer.vcpus
    if vcpus is None:
        return [], [Refusal("quota", f"how many vCPUs a {size} has is not known", BY_HAND)]
    needs = _by_quota(config.spot, offer, vcpus * config.node_count)
    for name, held in _held(figures, config, offer, vcpus).items():
        if name in needs:
            needs[name] = max(0, needs[name] - held)
    known = {family_key(usage.name): usage for usage in figures.usages}
    lines = [_line(known[name], needed) for name, needed in needs.items() if name in known]
    refusals = [_too_little(config, line) for line in lines if line.needed and line.after < 0]
    family = None if offer is None else offer.family
    for name, needed in needs.items():
        if needed and name not in known:
            what = f"{family} ({size})" if name == family_key(family or "") else "vCPUs"
            refusals.append(Refusal("quota", f"Azure names none for {what} in {place}", BY_HAND))
    if offer is not None and offer.offered and family is None and not config.spot:
        problem = f"Azure's list of sizes does not say which one {size} counts against in {place}"
        refusals.append(Refusal("quota", problem, BY_HAND))
    return lines, refusals


def _by_quota(spot: bool, offer: Offer | None, vcpus: int) -> dict[str, int]:
    """Which quotas so many vCPUs count against, the narrowest first."""
    if spot:
        return {family_key(SPOT_CORES): vcpus}
    families = [] if offer is None or offer.family is None else [offer.family]
    return {family_key(name): vcpus for name in (*families, CORES)}


def _line(usage: Usage, needed: int) -> QuotaLine:
    left = usage.left
    return QuotaLine(usage.name, usage.label, usage.limit, usage.used, left, needed, left - needed)


def _held(figures: Figures, config: ClusterConfig, offer: Offer | None, vcpus: int) -> dict[str, int]:
    """What the stack's own nodes hold of each quota, so far as that is known."""
    has = figures.there
    if not isinstance(has, ScaleSet) or has.location != config.location:
        return {}
    if has.size.lower() == config.size.name.lower():
        return _by_quota(has.spot, offer, vcpus * has.capacity)
    if isinstance(figures.skus, Exception):
        return {}
    other = offer_of(figures.skus, has.size, has.location)
    return {} if other.vcpus is None else _by_quota(has.spot, other, other.vcpus * has.capacity)


def _too_little(config: ClusterConfig, line: QuotaLine) -> Refusal:
    return Refusal(
        "quota",
        f"{line.label} in {config.location}: {line.needed} are needed in addition, {line.left} are left "
        f"(limit {line.limit}, used {line.used})",
        f"ask for a limit of at least {line.used + line.needed} at {QUOTA_LINK}, or take fewer nodes",
    )
