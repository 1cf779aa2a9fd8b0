"""Plans and accounts as tables: what exists or will, what each part costs, what is unknown."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from infra.preflight.prices import MONTH_H, usd
from launch.moments import cell, utc
from playbooks.cli import output

if TYPE_CHECKING:
    from infra.preflight.decide import Cost, Plan
    from infra.preflight.usage import Account, Thing

__all__ = ["print_account", "print_left", "print_plan"]

_DAY_H = 24


def print_plan(plan: Plan) -> None:
    """Print a plan: parts and prices, quota, what is offered, what is unknown."""
    kind = "spot" if plan.spot else "regular"
    output.result(
        f"stack {plan.stack}: {plan.nodes} x {plan.size}, {kind}, in {plan.location} "
        f"(subscription {plan.subscription}); {_there(plan)}"
    )
    output.result("")
    rows: list[tuple[object, ...]] = [_row(cost) for cost in plan.costs]
    regular, spot = plan.regular_per_hour, plan.spot_per_hour
    rows.append(("all known, an hour", usd(regular), usd(spot), ""))
    rows.append(("all known, a day", usd(_day(regular)), usd(_day(spot)), ""))
    if plan.max_price is not None:
        rows.append(("ranklift:maxPrice, an hour", usd(plan.max_price), usd(plan.max_price), ""))
    columns = ("price, in USD/h", "regular", "spot", "name and note")
    output.table(columns, rows, needed=len(columns), folds="name and note")
    if plan.quotas:
        output.result("")
        output.table(
            ("quota, in vCPUs", "limit", "used", "left", "needed", "left then"),
            [
                (line.label, line.limit, line.used, line.left, line.needed, _then(line.after))
                for line in plan.quotas
            ],
            rank=("quota, in vCPUs", "left then", "needed", "left", "limit", "used"),
        )
    output.result("")
    output.result(f"offered there: {_offered(plan)}")
    output.result(f"image: {plan.image}: {plan.image_is}")
    if plan.ends is not None and plan.hours_left is not None:
        left = f"{plan.hours_left:.1f} hours left, until" if plan.hours_left > 0 else "over since"
        output.result(f"lifetime (ranklift:ttlHours): {left} {utc(plan.ends, seconds=False)}")
    for text in plan.unknowns:
        output.result(f"unknown: {text}")
    for text in plan.warnings:
        output.result(f"warning: {text}")


def _row(cost: Cost) -> tuple[object, ...]:
    part = cost.part
    count = f"{part.count} x " if part.count > 1 else ""
    what = " ".join(filter(None, (part.what, part.size)))
    return (count + what, usd(cost.regular), usd(cost.spot), ", ".join(filter(None, (part.name, part.note))))


def _there(plan: Plan) -> str:
    if plan.there is None:
        return "number of existing nodes unknown"
    if plan.there == 0:
        return "no nodes exist"
    return f"existing: {plan.there}, to be added: {plan.adding}"


def _day(amount: float | None) -> float | None:
    return None if amount is None else amount * _DAY_H


def _then(after: int) -> str:
    return str(after) if after >= 0 else f"{-after} too few"


def _offered(plan: Plan) -> str:
    if plan.offered is None:
        return "unknown"
    if plan.restricted:
        return f"no ({plan.restricted})"
    if not plan.offered:
        return "no"
    return f"yes, in zones {', '.join(plan.zones)}" if plan.zones else "yes, without zones"


def print_account(found: Account) -> None:
    """Print an account: what exists by stack, since when, and what it costs."""
    where = f"in subscription {found.subscription}"
    if not found.things:
        whose = "any stack" if found.stack is None else f"stack {found.stack}"
        output.result(f"nothing of {whose} exists {where}")
        return
    _things(found)
    for one in found.others:
        output.result(f"in a stack's group, but not a stack's: {_kind(one)} {one.name} in {one.group}")


def print_left(found: Account) -> None:
    """Print what a teardown has left, and why."""
    whose, where = f"stack {found.stack}", f"in subscription {found.subscription}"
    if not found.left and not found.kept:
        output.result(f"nothing of {whose} is left {where}")
    else:
        if found.left:
            output.result(f"left of {whose} {where}:")
        else:
            why = "(ranklift:retainData or storageAccountId)"
            output.result(f"nothing of {whose} is left {where} but what is kept on purpose {why}:")
        _things(found)
    for one in found.others:
        output.result(f"not the stack's, but in its group {one.group}: {_kind(one)} {one.name}")
    for group in (one for one in found.things if one.type == "resource group" and not one.deleting):
        when = "to end what is kept too" if group.kept else "to end it where Pulumi does not"
        output.result(f"{when}: az group delete --name {group.name}")


def _things(found: Account) -> None:
    rows: list[tuple[object, ...]] = [
        (
            one.stack,
            _kind(one),
            one.name,
            one.group,
            cell(one.created, seconds=False) or "unknown",
            usd(one.per_hour),
            usd(one.per_month),
            _note(one),
        )
        for one in found.things
        if one.stack is not None
    ]
    total = found.per_hour or None
    if total is None and all(one.per_hour == 0 for one in found.things if one.stack is not None):
        total = 0.0
    month = None if total is None else total * MONTH_H
    rows.append(("", "all known", "", "", "", usd(total), usd(month), "and what is billed by use"))
    output.table(
        ("stack", "what", "name", "group", "since (UTC)", "USD/h", "USD/month", "note"),
        rows,
        rank=("what", "name", "USD/h", "USD/month", "note", "since (UTC)", "stack", "group"),
        needed=5,
        folds="note",
    )


def _kind(one: Thing) -> str:
    """Return a type of Azure's in plain words.

    >>> from infra.preflight.usage import Thing
    >>> _kind(Thing(id="", type="Microsoft.Network/natGateways", name="", group=""))
    'nat gateway'
    >>> _kind(Thing(id="", type="Microsoft.Monitor/accounts", name="", group=""))
    'Azure Monitor workspace'
    """
    if one.type.lower() == "microsoft.monitor/accounts":
        return "Azure Monitor workspace"
    last = one.type.rpartition("/")[2]
    words = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", last).split()
    return _singular(" ".join(word if word == "IP" else word.lower() for word in words))


def _singular(words: str) -> str:
    """Return the singular.

    >>> [_singular(one) for one in ("identities", "addresses", "caches", "IP prefixes", "databases", "redis")]
    ['identity', 'address', 'cache', 'IP prefix', 'database', 'redis']
    """
    for plural, one in (("ies", "y"), ("sses", "ss"), ("xes", "x"), ("ss", "ss"), ("is", "is"), ("us", "us")):
        if words.endswith(plural):
            return words.removesuffix(plural) + one
    return words.removesuffix("s")


def _note(one: Thing) -> str:
    marks = [
        ("is being deleted", one.deleting),
        ("kept", one.kept),
        ("not in this project's state", one.in_state is False),
        (one.note, bool(one.note)),
    ]
    return "; ".join(text for text, holds in marks if holds)
