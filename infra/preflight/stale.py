"""Leftovers of a stack that its cluster would fail at: judged from answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from infra.arm.pulumi_state import SCALE_SET, resources
from infra.config.cluster_config import ClusterConfig
from infra.naming import IDLE_TAG, TTL_TAG, data_group_name
from infra.preflight.availability import ScaleSet, moment
from infra.preflight.existing import Kept
from infra.preflight.refusal import Refusal
from launch.moments import utc

__all__ = [
    "End",
    "end_of",
    "end_remembered",
    "idle_minutes_remembered",
    "in_the_way",
    "rights_in_the_way",
    "time_over",
]

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class End:
    """The time at which the nodes delete their scale set."""

    at: datetime
    ttl_hours: float
    """As the scale set's tag has it, which counts; the configuration may differ by now."""

    def __str__(self) -> str:
        return f"{utc(self.at, seconds=False)} (ranklift:ttlHours is {self.ttl_hours:g})"


def end_remembered(state: Mapping[str, Any]) -> End | None:
    """Return the end of the scale set in Pulumi's ``state``, which may be gone by now.

    ``None``: it has no end, or the state lacks its creation time.
    """
    made, tags = _scale_set_remembered(state)
    try:
        hours = float(tags[TTL_TAG])
    except (KeyError, TypeError, ValueError):
        return None
    at = _after(moment(made), hours)
    return None if at is None else End(at, hours)


def idle_minutes_remembered(state: Mapping[str, Any]) -> float | None:
    """Return the minutes without a job after which the nodes of the scale set in Pulumi's ``state`` delete
    themselves; ``None`` where they do not."""
    _, tags = _scale_set_remembered(state)
    try:
        minutes = float(tags[IDLE_TAG])
    except (KeyError, TypeError, ValueError):
        return None
    return minutes if 0 < minutes < float("inf") else None


def _scale_set_remembered(state: Mapping[str, Any]) -> tuple[Any, Mapping[str, Any]]:
    """Return when the scale set was created, and its tags; nothing where there is none."""
    for one in resources(state):
        if one.get("type") == SCALE_SET and not one.get("delete"):  # else it is being replaced
            return (one.get("outputs") or {}).get("timeCreated"), (one.get("inputs") or {}).get("tags") or {}
    return None, {}


def _after(made: datetime | None, hours: float | None) -> datetime | None:
    if made is None or hours is None:
        return None
    try:
        return made + timedelta(hours=hours)
    except (OverflowError, ValueError):  # later than dates go, or not a number of hours
        return None


def end_of(has: ScaleSet | None, config: ClusterConfig) -> datetime | None:
    """Return when the nodes delete the existing scale set; ``None``: never, unknown, or it is replaced.

    ``ttlHours`` counts from the creation of the scale set, whatever its capacity was since.
    """
    if has is None or has.location != config.location:
        return None
    return _after(has.created, config.ttl_hours)


def time_over(ends: datetime | None, config: ClusterConfig, now: datetime) -> list[Refusal]:
    """Return why no nodes can be added to a scale set whose time is over: the first would delete it."""
    if ends is None or now < ends:
        return []
    problem = (
        f"the cluster's lifetime ended at {utc(ends, seconds=False)} (ranklift:ttlHours is "
        f"{config.ttl_hours:g} and counts from when the scale set was made): it would delete itself at once"
    )
    remedy = "run `fab down` and then `fab up` for a new time, or set a larger ranklift:ttlHours"
    return [Refusal("time", problem, remedy)]


def in_the_way(groups: Sequence[Kept], stack: str, config: ClusterConfig) -> list[Refusal]:
    """Return why a stack cannot be made beside existing groups that Pulumi's state lacks."""
    found: list[Refusal] = []
    for group in groups:
        if group.owner != stack:
            found.append(_of_another(group))
        elif group.group == data_group_name(stack):
            found.append(_data_in_the_way(group, config))
        elif not group.deleting:  # Azure refuses until that is done, and the command retries
            found.append(_nodes_in_the_way(group, stack))
    return found


def rights_in_the_way(rights: Sequence[str]) -> list[Refusal]:
    """Return why the nodes cannot get rights beside those that a lost state left."""
    if not rights:
        return []
    problem = (
        "ranklift:storageAccountId, ranklift:containerRegistry: role assignments of this stack are there "
        "already, and Pulumi's state here lacks them: the stack's state was lost, or is kept elsewhere"
    )
    remedy = f"`az role assignment delete --ids {' '.join(rights)}`, unless the stack's nodes work with them"
    return [Refusal("state", problem, remedy)]


def _of_another(group: Kept) -> Refusal:
    whose = f"carries the tag of stack {group.owner}" if group.owner else "carries no stack's tag"
    problem = f"resource group {group.group} already exists and {whose}: it is not this stack's"
    return Refusal("state", problem, "use another stack name")


def _nodes_in_the_way(group: Kept, stack: str) -> Refusal:
    shown = ", ".join(group.things[:_SHOWN]) or "nothing in it"
    if len(group.things) > _SHOWN:
        shown += f" and {len(group.things) - _SHOWN} more"
    problem = (
        f"resource group {group.group} already exists, with {shown}, and Pulumi's state here lacks it: the "
        "stack's state was lost, or is kept elsewhere, perhaps by a colleague"
    )
    ways = (
        "continue where its state is (`pulumi login`, `pulumi stack import`), or use another stack name; "
        f"or, if nobody needs it (`fab account --stack {stack}` lists all of it with its price), "
        f"`az group delete --name {group.group}`"
    )
    return Refusal("state", problem, ways)


def _data_in_the_way(kept: Kept, config: ClusterConfig) -> Refusal:
    """Return why a stack cannot make storage beside that which was kept, and the remedies."""
    if kept.deleting:
        problem = f"resource group {kept.group} is still being deleted"
        return Refusal("data", problem, "repeat the command when it is gone (`fab account` shows it)")
    problem = (
        f"resource group {kept.group} already exists, with {', '.join(kept.things) or 'nothing in it'}, "
        "and Pulumi's state lacks it: it was kept by ranklift:retainData, or the stack's state was lost"
    )
    ways = [
        f"use another stack name, or `az group delete --name {kept.group}` when the data is no longer needed"
    ]
    if kept.account is not None:
        nfs = " and ranklift:nfs to none" if config.shared is not None else ""
        retain = " and remove ranklift:retainData" if config.retain_data else ""
        ways.insert(
            0,
            f"to use the kept account set ranklift:storageAccountId to {kept.account}, "
            "ranklift:storage to privateEndpoint (or serviceEndpoint, if its firewall lets the nodes' subnet "
            "in)"
            f"{nfs}{retain}",
        )
    return Refusal("data", problem, "; or ".join(ways))
