"""This project's resources in a subscription, found by their tag, and what they cost.

All groups are searched. A resource without a stack's tag is not this project's, and is listed only if it lies
in a stack's group.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from math import fsum
from typing import Any

from infra.arm.errors import NotSignedIn
from infra.arm.pulumi_state import resources
from infra.arm.rest import Rest
from infra.arm.types import api_version
from infra.naming import STACK_TAG
from infra.preflight.availability import moment
from infra.preflight.billing import Charge, charge_of, details_path
from infra.preflight.meters import Meter
from infra.preflight.prices import MONTH_H, Prices, meter_price, vm_prices
from launch.errors import RankliftError

__all__ = ["GROUP", "Account", "Runner", "Thing", "account", "compared", "find", "one_by_one"]

GROUP = "resource group"
_API = api_version("Microsoft.Resources")

Runner = Callable[[Mapping[str, Callable[[], Any]]], Mapping[str, Any]]
"""Runs several queries, side by side if it can; an answer may be the error of its query."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thing:
    """A resource or a resource group."""

    id: str
    type: str
    """Azure's, e.g. ``Microsoft.Network/natGateways``, or :data:`GROUP`."""
    name: str
    group: str
    location: str = ""
    stack: str | None = None
    """The stack it belongs to; ``None``: none, it only lies in a stack's group."""
    created: datetime | None = None
    """``None``: unknown."""
    deleting: bool = False
    kept: bool = False
    """It is kept on purpose: ``ranklift:retainData``."""
    per_hour: float | None = None
    """USD; ``None``: unknown, 0: free."""
    note: str = ""
    in_state: bool | None = None
    """Whether Pulumi's state has it or its group; ``None``: not compared."""

    @property
    def per_month(self) -> float | None:
        """USD in a month of Azure's price lists."""
        return None if self.per_hour is None else self.per_hour * MONTH_H


@dataclass(frozen=True, slots=True)
class Account:
    """The resources found in a subscription."""

    subscription: str
    stack: str | None
    """The stack searched for; ``None``: all."""
    things: tuple[Thing, ...]

    @property
    def left(self) -> tuple[Thing, ...]:
        """Resources of stacks that are not kept on purpose."""
        return tuple(one for one in self.things if one.stack is not None and not one.kept)

    @property
    def kept(self) -> tuple[Thing, ...]:
        """Resources kept on purpose."""
        return tuple(one for one in self.things if one.kept)

    @property
    def others(self) -> tuple[Thing, ...]:
        """Resources in a stack's group that belong to no stack."""
        return tuple(one for one in self.things if one.stack is None)

    @property
    def per_hour(self) -> float:
        """USD per hour for all resources of stacks with a known price."""
        return fsum(one.per_hour or 0.0 for one in self.things if one.stack is not None)


def account(
    arm: Rest,
    shop: Rest,
    subscription: str,
    stack: str | None = None,
    *,
    kept_groups: Collection[str] = (),
    ask: Runner | None = None,
) -> Account:
    """Return all resources with the tag of ``stack``, or of any stack, and their prices.

    Raises :class:`~infra.arm.errors.AzureRefused` when the resources cannot be listed. A price that cannot be
    queried is unknown, with the reason in the resource's note.
    """
    run = ask or one_by_one
    base = f"/subscriptions/{subscription}"
    listed = _answers(
        run,
        {
            # The list's filter by tag would leave the tags out of its answer (learn.microsoft.com
            # resources/list), so all are listed and filtered here.
            "resources": lambda: list(
                arm.pages(f"{base}/resources", **{"api-version": _API, "$expand": "createdTime"})
            ),
            "groups": lambda: list(arm.pages(f"{base}/resourcegroups", **{"api-version": _API})),
        },
        strict=True,
    )
    found = find(listed["resources"], listed["groups"], stack, kept_groups)
    return Account(subscription, stack, _priced(arm, shop, found, run))


def find(
    resources: Iterable[Mapping[str, Any]],
    groups: Iterable[Mapping[str, Any]],
    stack: str | None = None,
    kept_groups: Collection[str] = (),
) -> tuple[Thing, ...]:
    """Return what belongs to ``stack``, or to any stack, and what lies in its groups; groups first.

    Azure's list of resources can lag behind that of groups: a resource in no listed group is gone.
    """
    kept = {name.lower() for name in kept_groups}
    known = [_thing(one, GROUP) for one in groups]
    there = {group.name.lower() for group in known}
    wanted = [group for group in known if _is_wanted(group, stack)]
    own = {group.name.lower() for group in wanted}
    lying = [_thing(one, str(one.get("type", ""))) for one in resources]
    for one in lying:
        if one.group.lower() in there and (
            _is_wanted(one, stack) or (one.stack is None and one.group.lower() in own)
        ):
            wanted.append(one)
    return tuple(
        replace(one, kept=True) if one.stack is not None and one.group.lower() in kept else one
        for one in wanted
    )


def compared(found: Account, states: Mapping[str, Mapping[str, Any]]) -> Account:
    """Return the account with ``in_state`` set from ``states``, Pulumi's states by stack.

    The state of a stack that Pulumi lacks is empty; a stack missing in ``states`` is not compared.

    A resource in a group of the state counts as known: Azure makes some by itself, like a VM's disk, with the
    tags of the VM.
    """
    known = {
        stack: {str(one.get("id") or "").lower() for one in resources(state)}
        for stack, state in states.items()
    }

    def look(one: Thing) -> Thing:
        if one.stack not in known:
            return one
        ids, group = known[one.stack], "/".join(one.id.lower().split("/")[:5])
        return replace(one, in_state=bool(ids & {one.id.lower(), group}))

    return replace(found, things=tuple(map(look, found.things)))


def one_by_one(questions: Mapping[str, Callable[[], Any]]) -> Mapping[str, Any]:
    """A :data:`Runner` without threads."""
    answers: dict[str, Any] = {}
    for name, ask in questions.items():
        try:
            answers[name] = ask()
        except RankliftError as error:
            answers[name] = error
    return answers


def _answers(
    run: Runner, questions: Mapping[str, Callable[[], Any]], *, strict: bool = False
) -> Mapping[str, Any]:
    answers = run(questions)
    for answer in answers.values():
        if isinstance(answer, NotSignedIn) or (strict and isinstance(answer, Exception)):
            raise answer
    return answers


def _is_wanted(one: Thing, stack: str | None) -> bool:
    return one.stack is not None and stack in (None, one.stack)


def _thing(entry: Mapping[str, Any], kind: str) -> Thing:
    # Azure compares the names of tags without case, their values with it.
    tags = {str(name).lower(): str(value) for name, value in (entry.get("tags") or {}).items()}
    identifier = str(entry.get("id", ""))
    parts = identifier.split("/")
    state = str(
        entry.get("provisioningState") or (entry.get("properties") or {}).get("provisioningState") or ""
    )
    return Thing(
        id=identifier,
        type=kind,
        name=str(entry.get("name") or parts[-1]),
        group=parts[4] if len(parts) > 4 else "",  # noqa: PLR2004 - /subscriptions/S/resourceGroups/G
        location=str(entry.get("location") or ""),
        stack=tags.get(STACK_TAG.lower()),
        created=moment(entry.get("createdTime")),
        deleting=state.lower() == "deleting",
    )


def _priced(arm: Rest, shop: Rest, found: Sequence[Thing], run: Runner) -> tuple[Thing, ...]:
    mine = [one for one in found if one.stack is not None and one.type != GROUP]
    paths = {one.id: path for one in mine if (path := details_path(one.id, one.type))}
    details = _answers(
        run, {key: partial(arm.get, path, **{"api-version": api}) for key, (path, api) in paths.items()}
    )
    charges = {one.id: charge_of(one.type, details.get(one.id)) for one in mine}
    places = {one.id: one.location.lower().replace(" ", "") for one in mine}
    questions: dict[str, Callable[[], Any]] = {}
    for key, charge in charges.items():
        questions |= _price_questions(shop, charge, places[key])
    prices = _answers(run, questions)
    return tuple(
        _with_price(one, charges[one.id], prices, places[one.id])
        if one.id in charges
        else replace(one, per_hour=0.0 if one.type == GROUP else None)
        for one in found
    )


def _price_questions(shop: Rest, charge: Charge, place: str) -> dict[str, Callable[[], Any]]:
    questions: dict[str, Callable[[], Any]] = {}
    size, meter = charge.size, charge.meter
    if size is not None:
        questions[_key(size, place)] = lambda: vm_prices(shop, size, place)
    if meter is not None:
        questions[_key(meter, place)] = lambda: meter_price(shop, meter, place)
    return questions


def _key(what: str | Meter, place: str) -> str:
    return f"{what} in {place}"


def _with_price(one: Thing, charge: Charge, prices: Mapping[str, Any], place: str) -> Thing:
    if charge.size is None and charge.meter is None:
        return replace(one, per_hour=0.0 if charge.free else None, note=charge.note)
    known = prices.get(_key(charge.size or charge.meter or "", place))
    if isinstance(known, Exception):
        return replace(one, note=f"no answer from the price list: {known}")
    each = (known.spot if charge.spot else known.regular) if isinstance(known, Prices) else known
    if each is None:
        return replace(one, note=f"{charge.note}: the price list has no entry".removeprefix(": "))
    return replace(one, per_hour=each * charge.units, note=charge.note)
