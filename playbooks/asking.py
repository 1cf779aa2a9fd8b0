"""The questions behind a plan, all at once: prices, quotas, what is offered, what is there already."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from infra import azure, market, prices
from infra.config import ClusterConfig
from infra.figures import Figures
from infra.market import offer_of
from infra.naming import cluster_name
from infra.preflight import Plan, decide, wanted_meters
from infra.refusals import NotSignedIn
from infra.rest import Rest, management, retail_prices
from launch.errors import InputError, RankliftError
from playbooks import render
from playbooks.fanout import fan_out
from playbooks.project import Stack

__all__ = ["answers_to", "figures", "plan_of", "subscription_of"]

ANSWERS_S = 40.0
"""How long all questions together may take; each has its own, shorter limit."""
AZ_S = 20.0
_KEY = "azure-native:subscriptionId"
_VARIABLE = "ARM_SUBSCRIPTION_ID"


def plan_of(stack: Stack, config: ClusterConfig) -> Plan:
    """What ``config`` will cost and whether Azure will grant it; makes nothing.

    Raises :class:`~infra.refusals.NotSignedIn`, and :class:`~launch.errors.InputError` when no subscription
    is chosen. Whatever else could not be asked stands in the plan.
    """
    subscription = subscription_of(stack)
    asked = figures(stack, subscription, config)
    if not isinstance(asked.skus, Exception):
        here = offer_of(asked.skus, config.size.name, config.location)
        if not here.available:
            render.progress(f"looking for regions that offer {config.size.name}")
            asked = replace(asked, elsewhere=_elsewhere(stack, subscription, config))
    return decide(stack.name.rpartition("/")[2], subscription, config, asked)


def figures(stack: Stack, subscription: str, config: ClusterConfig) -> Figures:
    """All that :func:`~infra.preflight.decide` needs, asked side by side."""
    arm, shop = management(stack.environment), retail_prices(stack.environment)
    name, place = cluster_name(stack.name.rpartition("/")[2]), config.location
    meters = {f"the price of {m.name}": m for m in wanted_meters(stack.name.rpartition("/")[2], config)}
    questions: dict[str, Callable[[], Any]] = {
        "the quotas": lambda: market.usages(arm, subscription, place),
        "the sizes": lambda: market.offers(arm, subscription, place),
        "the scale set": lambda: market.scale_set(arm, subscription, name, name),
        "the price": lambda: prices.vm_prices(shop, config.size.name, place),
        **{words: _asking(shop, meter, place) for words, meter in meters.items()},
    }
    given = answers_to(questions)
    return Figures(
        prices=given["the price"],
        meters={meter: given[words] for words, meter in meters.items()},
        usages=given["the quotas"],
        skus=given["the sizes"],
        there=given["the scale set"],
    )


def answers_to(questions: Mapping[str, Callable[[], Any]]) -> dict[str, Any]:
    """The answer to each question, or the :class:`~launch.errors.RankliftError` that says why there is none.

    Raises :class:`~infra.refusals.NotSignedIn` when that is why: no other answer is of use then.
    """
    given = fan_out(lambda name: questions[name](), questions, what="the answer", timeout=ANSWERS_S)
    for answer in given.values():
        if isinstance(answer, NotSignedIn):
            raise answer
        if isinstance(answer, Exception) and not isinstance(answer, RankliftError):
            raise answer
    return dict(given)


def subscription_of(stack: Stack) -> str:
    """The subscription that the stack's resources are, or will be, in: where Pulumi finds it too.

    Raises :class:`~launch.errors.InputError` when none is chosen.
    """
    if azure.endpoint(stack.environment) is not None:
        from infra.rehearsal.folder import Folder

        record = Folder(stack.project).record()
        if record is not None:
            return record.subscription_id
    named = stack.settings().get(_KEY) or stack.environment.get(_VARIABLE) or _of_the_cli(stack.environment)
    if not named:
        remedy = f"run `az login`, set {_VARIABLE}, or `pulumi config set {_KEY} …`"
        raise InputError("subscription", None, "none is chosen", remedy)
    return str(named)


def _of_the_cli(environment: Mapping[str, str]) -> str | None:
    """What ``az account set`` chose; ``None`` without the program or a sign-in."""
    try:
        told = subprocess.run(
            ["az", "account", "show", "--output", "json"],
            env=dict(environment),
            cwd=Path.home(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=AZ_S,
            check=False,
        )
        return str(json.loads(told.stdout)["id"]) if told.returncode == 0 else None
    except (OSError, subprocess.TimeoutExpired, ValueError, KeyError):
        return None


def _asking(shop: Rest, meter: prices.Meter, place: str) -> Callable[[], float | None]:
    return lambda: prices.meter_price(shop, meter, place)


def _elsewhere(stack: Stack, subscription: str, config: ClusterConfig) -> tuple[str, ...] | None:
    arm = management(stack.environment)
    found = answers_to({"": lambda: market.regions_offering(arm, subscription, config.size.name)})[""]
    return None if isinstance(found, Exception) else tuple(found)
