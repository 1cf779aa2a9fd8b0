"""Which settings replace all nodes: as the program makes its properties of them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

import pytest

from infra.config.cluster_config import ClusterConfig
from infra.config.replacing import (
    BY_PROGRAM,
    MADE_BY,
    refuse_rename,
    replacing_changes,
    replacing_settings,
    settings_of,
)
from infra.config.schema import parse
from launch.errors import InputError
from tests.infra.cluster.test_component import PROGRAM, ROOT
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


PLAIN = CONFIGURATIONS["v100-plain"]
CHANGES = {
    "adminUser": "someone",
    "computerNamePrefix": "worker",
    "ephemeralOsDisk": "true",
    "image": "microsoft-dsvm:ubuntu-hpc:2204-v100:22.04.2026013001",
    "location": "westeurope",
    "metricsPort": "9400",
    "nfs": "vm",
    "spot": "true",
    "vmSize": "Standard_ND96asr_v4",
    "zone": "2",
}
OLDER = {"adminUser": "azureuser", "location": "southcentralus", "vmSize": "Standard_ND40rs_v2"}
"""What of the outputs of a stack without :data:`MADE_BY` shows how its nodes were made."""


def configured(**settings: str) -> ClusterConfig:
    return parse({f"ranklift:{key}": value for key, value in {**PLAIN, **settings}.items()})


def test_the_record_has_every_setting_that_replaces_the_nodes() -> None:
    everything = [*BY_PROGRAM, "location"]
    settings = {key.removeprefix("ranklift:") for key in settings_of(everything)}
    assert set(replacing_settings(configured())) == settings == set(CHANGES)


@pytest.mark.parametrize("setting", CHANGES)
def test_an_update_that_changes_one_is_known_by_the_record(setting: str) -> None:
    outputs: dict[str, object] = {**OLDER, MADE_BY: replacing_settings(configured())}
    assert replacing_changes(outputs, configured()) == set()
    changed = replacing_changes(outputs, configured(**{setting: CHANGES[setting]}))
    also = {"image"} if setting == "vmSize" else set()  # each size has its own
    assert changed == {setting} | also


def test_an_update_that_changes_others_replaces_nothing() -> None:
    outputs = {MADE_BY: replacing_settings(configured())}
    others = configured(nodeCount="9", ttlHours="4", osDiskGib="512", sshFrom="10.9.8.7")
    assert replacing_changes(outputs, others) == set()


def test_a_record_from_before_a_setting_was_known_had_it_unset() -> None:
    outputs = {
        MADE_BY: {
            name: value for name, value in replacing_settings(configured()).items() if name != "metricsPort"
        }
    }
    assert replacing_changes(outputs, configured()) == set()
    assert replacing_changes(outputs, configured(metricsPort="9400")) == {"metricsPort"}


def test_a_stack_that_was_never_complete_keeps_nothing() -> None:
    assert replacing_changes({}, configured()) == set(CHANGES)


@pytest.mark.parametrize(
    ("outputs", "settings", "changed"),
    [
        (OLDER, {}, set()),
        (OLDER, {"nodeCount": "5"}, set()),
        (OLDER, {"nfs": "vm"}, {"nfs"}),
        ({**OLDER, "nfsMount": "10.0.0.5:/export/shared"}, {"nfs": "vm"}, set()),
        ({**OLDER, "nfsMount": "10.0.0.5:/export/shared"}, {}, {"nfs"}),
        (OLDER, {"adminUser": "someone"}, {"adminUser"}),
        (OLDER, {"metricsPort": "9400"}, {"metricsPort"}),
        (OLDER, {"vmSize": "Standard_ND96asr_v4"}, {"vmSize"}),
    ],
)
def test_a_stack_of_an_earlier_version_shows_by_its_outputs_what_changes(
    outputs: dict[str, object], settings: dict[str, str], changed: set[str]
) -> None:
    assert replacing_changes(outputs, configured(**settings)) == changed


def test_an_update_of_a_renamed_stack_would_replace_all_of_it_and_is_refused() -> None:
    refuse_rename({}, "prod")
    refuse_rename({"stack": "prod"}, "prod")
    with pytest.raises(InputError) as caught:
        refuse_rename({"stack": "dev"}, "prod")
    assert str(caught.value) == (
        "stack = 'prod': was dev when its resources got their names: an update would replace all of them; "
        "give it that name back: `pulumi stack rename dev --stack prod`"
    )


def test_the_program_asks_what_the_stack_was_called() -> None:
    program = PROGRAM.replace("return {}", "return {'outputs': {'stack': 'old'}}")
    settings = {"ranklift:vmSize": "Standard_HB120rs_v3", "ranklift:nodeCount": "1"}
    settings |= {"ranklift:location": "southcentralus", "ranklift:sshFrom": "203.0.113.7/32"}
    ran = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={"PULUMI_CONFIG": json.dumps(settings)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "stack = 'dev': was old when its resources got their names" in ran.stderr, ran.stderr
