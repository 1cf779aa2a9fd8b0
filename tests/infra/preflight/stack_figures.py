"""What the tests of the preflight know of a stack: settings, quotas, prices, and a plan made of them."""

from __future__ import annotations

from datetime import date
from typing import Any

from infra.arm.errors import AzureRefused
from infra.config.cluster_config import ClusterConfig
from infra.config.schema import parse
from infra.preflight.availability import Usage
from infra.preflight.decide import Plan, decide
from infra.preflight.inputs import Figures
from infra.preflight.meters import ADDRESS, NAT
from infra.preflight.prices import Prices
from tests.infra.azure_answers import FAMILY, PLACE, SIZE, sku

SETTINGS = {"vmSize": SIZE, "nodeCount": "4", "location": PLACE, "sshFrom": "203.0.113.7"}
PRICES = Prices(22.0, 4.0)
OFFLINE = AzureRefused("prices.azure.com does not answer: Network is unreachable")


def config(**settings: str) -> ClusterConfig:
    given = {f"ranklift:{key}": value for key, value in (SETTINGS | settings).items()}
    return parse(given, today=date(2026, 1, 1))


def quotas(family: int = 200, cores: int = 400, spot: int = 200, used: int = 0) -> list[Usage]:
    return [
        Usage("cores", "Total Regional vCPUs", cores, used),
        Usage("lowPriorityCores", "Total Regional Low-priority vCPUs", spot, used),
        Usage(FAMILY, "Standard NDSv2 Family vCPUs", family, used),
    ]


def figures(**changed: Any) -> Figures:
    if "prices" in changed and not isinstance(changed["prices"], dict):
        changed["prices"] = {SIZE: changed["prices"]}
    good = {
        "prices": {SIZE: PRICES},
        "meters": {NAT: 0.045, ADDRESS: 0.005},
        "usages": quotas(),
        "skus": [sku()],
    }
    return Figures(**{**good, **changed})


def plan(figures_: Figures | None = None, /, **settings: str) -> Plan:
    return decide("dev", "s-1", config(**settings), figures_ or figures())


def against(found: Plan) -> list[str]:
    return [one.about for one in found.refusals]
