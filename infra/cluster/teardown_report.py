"""The end of a stack: what ``pulumi destroy`` says is left of it, and what that costs.

Every other resource of the stack depends on the one here, so that Pulumi deletes it last; its deletion asks
Azure what still carries the stack's tag. What its provider logs Pulumi shows at once and, with the other
diagnostics, again at the end (seen with Pulumi 3.232). A question that fails is said and stops nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pulumi
from pulumi import dynamic

from launch.errors import RankliftError

if TYPE_CHECKING:
    from infra.preflight.usage import Account, Thing

__all__ = ["Farewell", "farewell", "farewell_provider"]

_SHOWN = 20
"""Things named one by one; ``fab account`` has them all."""


def farewell(
    props: Mapping[str, Any], environment: Mapping[str, str], say: Callable[[str, bool], None]
) -> None:
    """Asks what is left of the stack that ``props`` name and tells ``say``, with whether it is a warning."""
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
        say(f"what is left of stack {stack} could not be asked: {error}; `fab account` asks again", True)
        return
    for line in _lines(stack, found):
        say(line, bool(found.left))


def _lines(stack: str, found: Account) -> list[str]:
    whose, where = f"of stack {stack}", f"in subscription {found.subscription}"
    if not found.left and not found.kept:
        return [f"nothing {whose} is left {where}"]
    shown = [*found.left, *found.kept]
    lines = [f"left {whose} {where}: {_named(one)}" for one in shown[:_SHOWN]]
    if len(shown) > _SHOWN:
        lines.append(f"and {len(shown) - _SHOWN} more: `fab account --stack {stack}` names them")
    return lines


def _named(one: Thing) -> str:
    price = "at a price that is not known" if one.per_hour is None else f"{one.per_hour:.7g} USD per hour"
    marks = [f"{one.type} {one.name} in {one.group}", "free" if one.per_hour == 0 else price]
    marks += ["being deleted"] * one.deleting
    marks += ["kept on purpose (ranklift:retainData or storageAccountId)"] * one.kept
    return ", ".join(marks)


def farewell_provider() -> dynamic.ResourceProvider:
    """What says farewell.

    Pulumi stores the provider itself in the stack's state and runs it in another process, which may not find
    this project on its path. A class local to a function travels by value; it does little, and all that it
    needs beside is looked for when the time comes.
    """

    class FarewellProvider(dynamic.ResourceProvider):
        def create(self, props: dict[str, Any]) -> dynamic.CreateResult:
            from pulumi.dynamic import CreateResult

            return CreateResult(f"farewell-{props['stack']}", props)

        def diff(self, _id: str, olds: dict[str, Any], news: dict[str, Any]) -> dynamic.DiffResult:
            from pulumi.dynamic import DiffResult

            names = ("stack", "subscription", "retain")
            return DiffResult(changes=any(olds.get(name) != news.get(name) for name in names))

        def update(self, _id: str, _olds: dict[str, Any], news: dict[str, Any]) -> dynamic.UpdateResult:
            from pulumi.dynamic import UpdateResult

            return UpdateResult(news)

        def delete(self, _id: str, props: dict[str, Any]) -> None:
            import os
            import sys
            from pathlib import Path

            import pulumi

            def say(line: str, warning: bool) -> None:
                (pulumi.log.warn if warning else pulumi.log.info)(line)

            # The program's own folder, where azure.py would hide Microsoft's package of that name, gives way
            # to the project's.
            folders = [Path(entry or ".").resolve() for entry in sys.path]
            own = {folder for folder in folders if (folder / "farewell.py").is_file()}
            sys.path[:] = [str(folder.parent if folder in own else folder) for folder in folders]
            try:
                from infra.cluster.teardown_report import farewell

                farewell(props, os.environ, say)
            except Exception as error:  # noqa: BLE001 - the stack is gone by now: nothing may keep it
                say(f"what is left could not be asked ({error!r}); `fab account` asks again", True)

    return FarewellProvider()


class Farewell(dynamic.Resource, module="ranklift", name="Farewell"):
    """Deleted last, and then says what is left."""

    def __init__(self, stack: str, *, retain: bool, opts: pulumi.ResourceOptions | None = None) -> None:
        """Registers the farewell of ``stack``; with ``retain`` its data group stays on purpose."""
        super().__init__(
            farewell_provider(),
            "farewell",
            {
                "stack": stack,
                "subscription": pulumi.Config("azure-native").get("subscriptionId") or "",
                "retain": retain,
            },
            opts,
        )
