"""The teardown report: what ``pulumi destroy`` leaves in the subscription, and what that costs.

Every other resource of the stack depends on the report's, so Pulumi deletes that one last; its deletion asks
Azure which resources still carry the stack's tag. Pulumi shows a provider's log at once and again at the end,
with the other diagnostics (seen with Pulumi 3.232). A failed query is logged and stops nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pulumi
from pulumi import dynamic

from infra.cluster.stored_provider import StoredProvider
from launch.errors import RankliftError

if TYPE_CHECKING:
    from infra.preflight.usage import Account, Thing

__all__ = ["TeardownReport", "TeardownReportProvider", "report_leftovers"]

_SHOWN = 20
"""Resources named one by one; ``fab account`` lists all."""


def report_leftovers(
    props: Mapping[str, Any], environment: Mapping[str, str], log: Callable[[str, bool], None]
) -> None:
    """Log what is left of the stack that ``props`` name, a line a resource; ``True`` marks warnings."""
    from infra.arm.rest import management, retail_prices
    from infra.arm.subscription import subscription_of
    from infra.naming import data_group_name
    from infra.preflight.usage import account

    stack = str(props["stack"])
    try:
        found = account(
            management(environment),
            retail_prices(environment),
            subscription_of(props.get("subscription"), environment),
            stack,
            kept_groups=[data_group_name(stack)] if props.get("retain") else (),
        )
    except RankliftError as error:
        log(f"stack {stack}: remaining resources not queried: {error}; `fab account` repeats the query", True)
        return
    for line in _lines(stack, found):
        log(line, bool(found.left))


def _lines(stack: str, found: Account) -> list[str]:
    whose, where = f"of stack {stack}", f"in subscription {found.subscription}"
    if not found.left and not found.kept:
        return [f"nothing {whose} is left {where}"]
    shown = [*found.left, *found.kept]
    lines = [f"left {whose} {where}: {_format(one)}" for one in shown[:_SHOWN]]
    if len(shown) > _SHOWN:
        lines.append(f"and {len(shown) - _SHOWN} more: `fab account --stack {stack}` lists them")
    return lines


def _format(one: Thing) -> str:
    from infra.preflight.prices import usd

    price = "price unknown" if one.per_hour is None else f"{usd(one.per_hour)} USD per hour"
    marks = [f"{one.type} {one.name} in {one.group}", "free" if one.per_hour == 0 else price]
    marks += ["being deleted"] * one.deleting
    marks += ["kept on purpose (ranklift:retainData or storageAccountId)"] * one.kept
    return ", ".join(marks)


class TeardownReportProvider(StoredProvider):
    """Logs the report when its resource is deleted."""

    def create(self, props: dict[str, Any]) -> dynamic.CreateResult:
        """Create nothing but the resource in the state."""
        return dynamic.CreateResult(f"teardown-report-{props['stack']}", props)

    def diff(self, _id: str, olds: dict[str, Any], news: dict[str, Any]) -> dynamic.DiffResult:
        """Return whether the report will be another one."""
        names = ("stack", "subscription", "retain")
        return dynamic.DiffResult(changes=any(olds.get(name) != news.get(name) for name in names))

    def update(self, _id: str, _olds: dict[str, Any], news: dict[str, Any]) -> dynamic.UpdateResult:
        """Keep the new properties for the report."""
        return dynamic.UpdateResult(news)

    def delete(self, _id: str, props: dict[str, Any]) -> None:
        """Log the report; never raises."""

        def log(line: str, warning: bool) -> None:
            (pulumi.log.warn if warning else pulumi.log.info)(line)

        try:
            report_leftovers(props, os.environ, log)
        except Exception as error:  # noqa: BLE001 - the stack is deleted by now: nothing may stop that
            log(f"remaining resources not queried ({error!r}); `fab account` lists them", True)


class TeardownReport(dynamic.Resource, module="ranklift", name="TeardownReport"):
    """The resource that is deleted last and logs the report."""

    def __init__(self, stack: str, *, retain: bool, opts: pulumi.ResourceOptions | None = None) -> None:
        """Register the report of ``stack``; with ``retain`` its data group is kept on purpose."""
        super().__init__(
            TeardownReportProvider(),
            "teardown-report",
            {
                "stack": stack,
                "subscription": pulumi.Config("azure-native").get("subscriptionId") or "",
                "retain": retain,
            },
            opts,
        )
