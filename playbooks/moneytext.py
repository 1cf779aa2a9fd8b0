"""Plans and accounts for people: what is there or will be, what each part costs, what is not known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playbooks import render

if TYPE_CHECKING:
    from infra.preflight import Cost, Plan

__all__ = ["plan_tables", "usd"]

_DAY_H = 24


def usd(amount: float | None) -> str:
    """An amount of money; small ones with as many digits as they need.

    >>> usd(88.116), usd(2114.784), usd(0.045), usd(0.0), usd(None)
    ('88.12', '2,114.78', '0.045', 'free', 'unknown')
    """
    if amount is None:
        return "unknown"
    if amount == 0:
        return "free"
    return f"{amount:,.2f}" if amount >= 1 or round(amount, 2) == amount else f"{amount:.4f}".rstrip("0")


def plan_tables(plan: Plan) -> None:
    """The plan on stdout: parts and prices, quota, what is offered, what is unknown."""
    kind = "spot" if plan.spot else "regular"
    render.result(
        f"stack {plan.stack}: {plan.nodes} x {plan.size}, {kind}, in {plan.location} "
        f"(subscription {plan.subscription}); {_there(plan)}"
    )
    render.result("")
    rows: list[tuple[object, ...]] = [_row(cost) for cost in plan.costs]
    regular, spot = plan.regular_per_hour, plan.spot_per_hour
    rows.append(("", "", "all known, an hour", usd(regular), usd(spot), ""))
    rows.append(("", "", "all known, a day", usd(_day(regular)), usd(_day(spot)), ""))
    if plan.max_price is not None:
        rows.append(("", "", "ranklift:maxPrice, an hour", usd(plan.max_price), usd(plan.max_price), ""))
    render.table(("what", "count", "name", "USD/h regular", "USD/h spot", "note"), rows)
    if plan.quotas:
        render.result("")
        render.table(
            ("quota, in vCPUs", "limit", "used", "left", "needed", "left then"),
            [
                (line.label, line.limit, line.used, line.left, line.needed, _then(line.after))
                for line in plan.quotas
            ],
        )
    render.result("")
    render.result(f"offered there: {_offered(plan)}")
    for text in plan.unknowns:
        render.result(f"unknown: {text}")


def _row(cost: Cost) -> tuple[object, ...]:
    part = cost.part
    what = f"{part.what} {part.size}" if part.size else part.what
    return (what, part.count, part.name, usd(cost.regular), usd(cost.spot), part.note)


def _there(plan: Plan) -> str:
    if plan.there is None:
        return "how many are there already is unknown"
    if plan.there == 0:
        return "none is there yet"
    return f"{plan.there} there already, {plan.adding} to be added"


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
