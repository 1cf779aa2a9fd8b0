"""Which settings replace all nodes: as the program makes its properties of them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from infra.config.replacing import BY_PROGRAM, settings_of
from tests.infra.programs import CONFIGURATIONS, Program, programs

SCALE_SET = "azure-native:compute:VirtualMachineScaleSet nodes"


def at(program: Program, path: str) -> Any:
    """The value of a property like ``sku.name`` or ``tags["a"]``; None where there is none."""
    value: Any = program.resources[SCALE_SET]
    for name in (quoted or plain for quoted, plain in re.findall(r'\["([^"]+)"\]|([^.\[]+)', path)):
        value = value.get(name) if value is not None else None
    return value


@pytest.mark.parametrize("path", BY_PROGRAM)
def test_stacks_that_differ_in_a_property_differ_in_one_of_its_settings(path: str) -> None:
    differing = 0
    names = list(CONFIGURATIONS)
    for number, one in enumerate(names):
        for other in names[:number]:
            if at(programs()[one], path) != at(programs()[other], path):
                differing += 1
                settings = (CONFIGURATIONS[one], CONFIGURATIONS[other])
                assert any(settings[0].get(key) != settings[1].get(key) for key in BY_PROGRAM[path]), (
                    f"{one} and {other}"
                )
    assert differing, "no stack shows it"


def test_the_program_asks_for_the_replacement() -> None:
    for program in programs().values():
        assert program.options[SCALE_SET]["replaceOnChanges"] == list(BY_PROGRAM)


@pytest.mark.parametrize(
    ("properties", "settings"),
    [
        (["sku.name"], {"ranklift:vmSize"}),
        (["location"], {"ranklift:location"}),
        (['tags["ranklift-nfs"]'], {"ranklift:nfs"}),
        (["virtualMachineProfile.osProfile"], {"ranklift:adminUser", "ranklift:computerNamePrefix"}),
        (["sku.capacity"], set()),
        (["virtualMachineProfile.networkProfile"], set()),
    ],
)
def test_properties_lead_to_their_settings(properties: list[str], settings: set[str]) -> None:
    assert settings_of(properties) == settings
