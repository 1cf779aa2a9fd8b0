"""What is there of a stack from before that its cluster would fail at: decided from figures, pure."""

from __future__ import annotations

from datetime import datetime, timedelta

from infra.config import ClusterConfig
from infra.market.figures import Refusal
from infra.market.kept import Kept
from infra.market.offers import ScaleSet

__all__ = ["data_in_the_way", "end_of", "time_over"]


def end_of(has: ScaleSet | None, config: ClusterConfig) -> datetime | None:
    """When the nodes delete the scale set that is there; ``None``: never, or not known, or it is made anew.

    ``ttlHours`` counts from the making of the scale set, whatever its capacity was since.
    """
    if has is None or has.created is None or config.ttl_hours is None or has.location != config.location:
        return None
    try:
        return has.created + timedelta(hours=config.ttl_hours)
    except OverflowError:  # later than the calendar goes
        return None


def time_over(ends: datetime | None, config: ClusterConfig, now: datetime) -> list[Refusal]:
    """Why no nodes are to be made in a scale set whose time is over: the first of them would delete it."""
    if ends is None or now < ends:
        return []
    problem = (
        f"the cluster's time was over at {ends.strftime('%Y-%m-%d %H:%M')} UTC (ranklift:ttlHours is "
        f"{config.ttl_hours:g} and counts from when the scale set was made): it would delete itself at once"
    )
    remedy = "run `fab down` and then `fab up` for a new time, or set a larger ranklift:ttlHours"
    return [Refusal("time", problem, remedy)]


def data_in_the_way(kept: Kept | None, config: ClusterConfig) -> list[Refusal]:
    """Why a stack cannot make its stored data anew beside that which was kept, and the ways on."""
    if kept is None or not config.owns_data:
        return []
    if kept.deleting:
        problem = f"resource group {kept.group} is still being deleted"
        return [Refusal("data", problem, "repeat the command when it is gone (`fab account` shows it)")]
    problem = (
        f"resource group {kept.group} is there already, with {', '.join(kept.things) or 'nothing in it'}, "
        "and Pulumi does not know it: it was kept by ranklift:retainData, or the stack's state was lost"
    )
    ways = [
        f"take another stack name, or `az group delete --name {kept.group}` when the data is no longer wanted"
    ]
    if kept.account is not None:
        nfs = " and ranklift:nfs to none" if config.nfs != "none" else ""
        retain = " and take ranklift:retainData out" if config.retain_data else ""
        ways.insert(
            0,
            f"to go on with the kept account set ranklift:storageAccountId to {kept.account}, "
            "ranklift:storage to privateEndpoint (or serviceEndpoint, if its firewall lets the nodes' subnet "
            "in)"
            f"{nfs}{retain}",
        )
    return [Refusal("data", problem, "; or ".join(ways))]
