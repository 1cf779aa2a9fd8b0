"""What the nodes' OS disks cost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from infra.preflight.availability import ScaleSet
from infra.preflight.decide import Cost, Plan
from infra.preflight.meters import ADDRESS, NAT, Meter
from tests.infra.azure_answers import PLACE, SIZE
from tests.infra.preflight.stack_figures import figures, plan


def os_disks(found: Plan) -> Cost:
    (disks,) = [cost for cost in found.costs if cost.part.what == "OS disk"]
    return disks


def test_an_ephemeral_disk_costs_nothing() -> None:
    disks = os_disks(plan(ephemeralOsDisk="true"))
    assert (disks.regular, disks.spot) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("settings", "tier"),
    [({}, "P15"), ({"osDiskGib": "64"}, "P6"), ({"osDiskGib": "257"}, "P20"), ({"osDiskGib": "4095"}, "P50")],
)
def test_another_costs_what_its_size_says(settings: dict[str, str], tier: str) -> None:
    meter = Meter("Storage", f"{tier} LRS Disk", "Premium SSD Managed Disks")
    prices = {NAT: 0.045, ADDRESS: 0.005, meter: 0.05}
    found = plan(figures(meters=prices), **settings)
    assert os_disks(found).regular == os_disks(found).spot == pytest.approx(4 * 0.05)
    assert found.regular_per_hour == pytest.approx(4 * 22.05 + 0.045 + 2 * 0.005)


@pytest.mark.parametrize(
    ("has", "expected"),
    [
        ({"disks": (256, 256)}, [(256, 2), (512, 2)]),
        ({"disks": (256, 512, 256)}, [(256, 2), (512, 2)]),
        ({"disks": (256,) * 6}, [(256, 4)]),  # the newest go
        ({"disks": (256, 256), "spot": True}, [(512, 4)]),  # all are made again
        ({"disks": (256, 256), "image": "a:b:c:1"}, [(512, 4)]),
    ],
)
def test_existing_disks_that_stay_keep_their_size(
    has: dict[str, Any], expected: list[tuple[int, int]]
) -> None:
    there = replace(ScaleSet(SIZE, 2, False, PLACE), **has)
    found = plan(figures(there=there), osDiskGib="512")
    disks = [cost.part for cost in found.costs if cost.part.what == "OS disk"]
    assert [(part.note, part.count) for part in disks] == [(f"{g} GiB each", n) for g, n in expected]


def test_a_disk_that_the_price_list_lacks_is_unknown() -> None:
    found = plan()
    assert os_disks(found).regular is None
    assert any(text.startswith("price of the OS disk:") for text in found.unknowns)
