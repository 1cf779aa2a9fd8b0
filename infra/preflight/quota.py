"""Whether a subscription's quota has room for a cluster: judged from Azure's figures.

Quota counts vCPUs, by family of sizes and for the region as a whole; spot VMs count against a quota of
their own in the region (learn.microsoft.com "Use Spot VMs": quota pools of their own).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from infra.config.cluster_config import ClusterConfig
from infra.preflight.availability import CORES, SPOT_CORES, Offer, ScaleSet, Usage, family_key, offer_of
from infra.preflight.inputs import Figures
from infra.preflight.parts import Machines
from infra.preflight.refusal import BY_HAND, Refusal

__all__ = ["QUOTA_LINK", "QuotaLine", "quotas"]

QUOTA_LINK = "https://portal.azure.com/#view/Microsoft_Azure_Capacity/QuotaMenuBlade/~/myQuotas"
"""The portal's page that lists quotas and takes requests for more."""


@dataclass(frozen=True, slots=True)
class QuotaLine:
    """One quota that the nodes count against, in vCPUs."""

    name: str
    label: str
    limit: int
    used: int
    left: int
    needed: int
    """vCPUs in addition to what the stack has."""
    after: int
    """vCPUs left afterwards; below 0: too few."""


def quotas(
    config: ClusterConfig, wanted: Sequence[Machines], figures: Figures
) -> tuple[list[QuotaLine], list[Refusal]]:
    """Return each quota that the VMs count against, and a refusal for each that is too small or unknown.

    VMs that the stack has already need none: they stay, or go before others replace them.
    """
    place = config.location
    if isinstance(figures.usages, Exception):
        return [], [Refusal("quota", f"not available for {place}: {figures.usages}", BY_HAND)]
    refusals: list[Refusal] = []
    needs: dict[str, int] = {}
    families: dict[str, str] = {}
    for machines in wanted:
        offer = _offer(figures, machines.size, place)
        vcpus = _vcpus(config, machines.size, offer)
        if vcpus is None:
            problem = f"the number of vCPUs of a {machines.size} is unknown"
            refusals.append(Refusal("quota", problem, BY_HAND))
            continue
        if offer is not None and offer.offered and offer.family is None and not machines.spot:
            problem = f"Azure's list of sizes names none for {machines.size}"
            refusals.append(Refusal("quota", f"{problem} in {place}", BY_HAND))
        for name in _names(machines.spot, offer):
            needs[family_key(name)] = needs.get(family_key(name), 0) + vcpus * machines.count
            families[family_key(name)] = name
    for name, held in _held(config, figures).items():
        if name in needs:
            needs[name] = max(0, needs[name] - held)
    known = {family_key(usage.name): usage for usage in figures.usages}
    lines = [_line(known[name], needed) for name, needed in needs.items() if name in known]
    refusals += [_too_little(config, line) for line in lines if line.after < 0]
    refusals += [
        Refusal("quota", f"Azure lists none for {families[name]} in {place}", BY_HAND)
        for name, needed in needs.items()
        if needed and name not in known
    ]
    return lines, refusals


def _offer(figures: Figures, size: str, place: str) -> Offer | None:
    return None if isinstance(figures.skus, Exception) else offer_of(figures.skus, size, place)


def _vcpus(config: ClusterConfig, size: str, offer: Offer | None) -> int | None:
    if offer is not None and offer.vcpus is not None:
        return offer.vcpus
    return config.size.vcpus if size.lower() == config.size.name.lower() else None


def _names(spot: bool, offer: Offer | None) -> list[str]:
    """Return the quotas that a VM counts against, the narrowest first; the SKUs have the family's name."""
    if spot:
        return [SPOT_CORES]
    return [CORES] if offer is None or offer.family is None else [offer.family, CORES]


def _line(usage: Usage, needed: int) -> QuotaLine:
    left = usage.left
    return QuotaLine(usage.name, usage.label, usage.limit, usage.used, left, needed, left - needed)


def _held(config: ClusterConfig, figures: Figures) -> dict[str, int]:
    """Return the vCPUs of each quota that the stack's own VMs have, as far as known."""
    has = []
    if isinstance(figures.there, ScaleSet) and figures.there.location == config.location:
        has.append(Machines(figures.there.size, figures.there.capacity, figures.there.spot))
    if isinstance(figures.server, str):
        has.append(Machines(figures.server, 1, spot=False))
    held: dict[str, int] = {}
    for machines in has:
        offer = _offer(figures, machines.size, config.location)
        for name in _names(machines.spot, offer):
            vcpus = _vcpus(config, machines.size, offer) or 0
            held[family_key(name)] = held.get(family_key(name), 0) + vcpus * machines.count
    return held


def _too_little(config: ClusterConfig, line: QuotaLine) -> Refusal:
    return Refusal(
        "quota",
        f"{line.label} in {config.location}: {line.needed} more are needed, {line.left} are left "
        f"(limit {line.limit}, used {line.used})",
        f"ask for a limit of at least {line.used + line.needed} at {QUOTA_LINK}, or use fewer nodes",
    )
