"""What Azure offers, grants and charges for a stack, and what it has already: the inputs of a plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from infra.arm.errors import AzureRefused, NotSignedIn
from infra.arm.rest import Rest, management, retail_prices
from infra.arm.subscription import KEY, subscription_of
from infra.config.cluster_config import ClusterConfig
from infra.config.schema import parse
from infra.naming import cluster_name, data_group_name
from infra.preflight import availability, marketplace, prices
from infra.preflight.decide import Plan, decide, staying_disks
from infra.preflight.existing import group_there, is_remembered, rights_there
from infra.preflight.inputs import Figures
from infra.preflight.meters import Meter
from infra.preflight.parts import machines_of, parts, server_name
from infra.preflight.refusal import NotGranted
from infra.preflight.storage_firewall import firewall_of
from launch.errors import InputError, RankliftError
from playbooks.cli import output
from playbooks.project import Stack
from playbooks.pulumi.partial import COUNT
from playbooks.ssh.fanout import ask_all

__all__ = ["answers_to", "check_image", "check_plan", "plan_of"]

T = TypeVar("T")
ANSWERS_S = 40.0
"""Limit of all queries together; each has its own, shorter limit."""


def check_plan(stack: Stack, nodes: int | None = None) -> Plan:
    """Return the plan of the stack as configured, or with ``nodes`` nodes, if Azure will grant it.

    Raises :class:`~infra.preflight.inputs.NotGranted` with every reason against it, before anything is
    created, and as :func:`plan_of`.
    """
    found = plan_of(stack, nodes)
    found.check()
    for text in found.warnings:
        output.progress(f"warning: {text}")
    return found


def check_image(stack: Stack) -> None:
    """Check that Azure can make a node of the configured image; report it when Azure does not answer.

    Raises :class:`~infra.preflight.refusal.NotGranted` with every reason against it.
    """
    config = parse(stack.settings())
    subscription = subscription_of(stack.settings().get(KEY), stack.environment)
    arm = management(stack.environment)
    try:
        found = marketplace.published(arm, subscription, config.location, config.image)
    except AzureRefused as error:
        output.progress(f"warning: whether the image can be used is unknown: {error}")
        return
    refusals = marketplace.against(found, config) if found is not None else ()
    if refusals:
        raise NotGranted(stack.name, refusals, there=None)


def plan_of(stack: Stack, nodes: int | None = None) -> Plan:
    """Return what the stack, or one with ``nodes`` nodes, will cost and whether Azure will grant it.

    Creates nothing. Raises :class:`~infra.arm.errors.NotSignedIn`, and :class:`~launch.errors.InputError` for
    a wrong configuration or when no subscription is chosen. The plan names whatever else is unknown.
    """
    config = parse(stack.settings() | ({} if nodes is None else {COUNT: str(nodes)}))
    subscription = subscription_of(stack.settings().get(KEY), stack.environment)
    inputs = _figures(stack, subscription, config)
    if not isinstance(inputs.skus, Exception):
        here = availability.offer_of(inputs.skus, config.size.name, config.location)
        if not here.available:
            output.progress(f"looking for regions that offer {config.size.name}")
            inputs = replace(inputs, elsewhere=_elsewhere(stack, subscription, config))
    return decide(stack.short_name, subscription, config, inputs)


def _figures(stack: Stack, subscription: str, config: ClusterConfig) -> Figures:
    """Return the inputs of :func:`~infra.preflight.decide.decide`, queried at once."""
    arm, shop = management(stack.environment), retail_prices(stack.environment)
    short, place = stack.short_name, config.location
    name, made = cluster_name(short), parts(short, config)
    meters = {f"the meter {part.meter.name}": part.meter for part in made if part.meter is not None}
    sizes = {machines.size for machines in machines_of(made)}
    questions: dict[str, Callable[[], Any]] = {
        "the quotas": lambda: availability.usages(arm, subscription, place),
        "the sizes": lambda: availability.offers(arm, subscription, place),
        "the image": lambda: marketplace.published(arm, subscription, place, config.image),
        "the scale set": lambda: availability.scale_set(arm, subscription, name, name),
        **{f"the price of {size}": _for_size(shop, size, place) for size in sizes},
        **{words: _for_meter(shop, meter, place) for words, meter in meters.items()},
    }
    server = server_name(made)
    if server is not None:
        questions["the server"] = lambda: availability.machine_size(arm, subscription, name, server)
    groups = [name, *([data_group_name(short)] if config.owns_data else [])]
    questions["the groups"] = lambda: _unknown_to_pulumi(
        stack,
        {one: found for one in groups if (found := group_there(arm, subscription, short, one)) is not None},
    )
    account = config.storage_account_id
    if account is not None:
        questions["the account"] = lambda: firewall_of(arm, account)
    registry = config.container_registry
    if account is not None or registry is not None:
        questions["the rights"] = lambda: _unknown_to_pulumi(
            stack,
            {
                one.rpartition("/")[2]: one
                for one in rights_there(arm, subscription, short, account, registry)
            },
        )
    given = answers_to(questions)
    there = given["the scale set"]
    if isinstance(there, availability.ScaleSet):  # its disks may be of other sizes
        stay = parts(short, config, staying_disks(there, config))
        others = {f"the meter {one.meter.name}": one.meter for one in stay if one.meter is not None}
        more = {words: meter for words, meter in others.items() if words not in meters}
        meters |= more
        given |= answers_to({words: _for_meter(shop, meter, place) for words, meter in more.items()})
    return Figures(
        prices={size: given[f"the price of {size}"] for size in sizes},
        meters={meter: given[words] for words, meter in meters.items()},
        usages=given["the quotas"],
        skus=given["the sizes"],
        there=there,
        server=given.get("the server"),
        kept=given["the groups"],
        rights=given.get("the rights", ()),
        firewall=given.get("the account"),
        image=given["the image"],
    )


def answers_to(questions: Mapping[str, Callable[[], Any]]) -> dict[str, Any]:
    """Return the answer to each question, or the :class:`~launch.errors.RankliftError` instead of it.

    Raises :class:`~infra.arm.errors.NotSignedIn` if any answer is that: no other is of use then.
    """
    given = ask_all(questions, timeout=ANSWERS_S)
    for answer in given.values():
        if isinstance(answer, NotSignedIn):
            raise answer
        if isinstance(answer, Exception) and not isinstance(answer, RankliftError):
            raise answer
    return given


def _for_size(shop: Rest, size: str, place: str) -> Callable[[], prices.Prices]:
    return lambda: prices.vm_prices(shop, size, place)


def _for_meter(shop: Rest, meter: Meter, place: str) -> Callable[[], float | None]:
    return lambda: prices.meter_price(shop, meter, place)


def _unknown_to_pulumi(stack: Stack, named: Mapping[str, T]) -> list[T]:
    """Return those whose names the stack's state does not have; read the state only when there are any."""
    if not named:
        return []
    try:
        state = stack.state()
    except InputError:  # Pulumi has no stack of that name
        state = {}
    return [one for name, one in named.items() if not is_remembered(state, name)]


def _elsewhere(stack: Stack, subscription: str, config: ClusterConfig) -> tuple[str, ...] | None:
    arm = management(stack.environment)
    found = answers_to({"": lambda: availability.regions_offering(arm, subscription, config.size.name)})[""]
    return None if isinstance(found, Exception) else tuple(found)
