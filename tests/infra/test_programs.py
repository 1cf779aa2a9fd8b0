"""What twelve stacks ask Azure for, against Microsoft's own models and against what was reviewed.

The golden plans are written anew by ``WRITE_GOLDEN=1 pytest tests/infra/test_programs.py``; their diff is
what a reviewer reads.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from rehearsal.arm.core.errors import ArmError
from rehearsal.arm.core.models import check
from rehearsal.arm.core.resource_type import GROUP, ResourceType
from rehearsal.arm.resource_types import RESOURCE_TYPES
from rehearsal.provider.translate import body, resource_id
from tests.infra.programs import CONFIGURATIONS, Program, masked, programs

GOLDEN = Path(__file__).parent / "golden" / "plans"


@pytest.fixture(params=CONFIGURATIONS)
def program(request: pytest.FixtureRequest) -> Program:
    return programs()[request.param]


def kind(token: str) -> ResourceType:
    found = RESOURCE_TYPES.by_token(token)
    assert found is not None, f"{token}: no model of it is known"
    return found


def request_body(token: str, inputs: dict[str, Any]) -> dict[str, Any]:
    """What the provider sends for these inputs."""
    known = kind(token)
    return body(known, resource_id(known, "s", inputs), inputs)


def test_there_are_twelve_with_every_size_family_and_every_setting() -> None:
    assert len(CONFIGURATIONS) == 12
    sizes = " ".join(settings["vmSize"] for settings in CONFIGURATIONS.values())
    for family in (
        "ND40rs_v2",
        "ND96asr_v4",
        "A100_v4",
        "H100_v5",
        "H200_v5",
        "MI300X_v5",
        "GB200",
        "GB300",
        "HB",
    ):
        assert family in sizes
    used = {key for settings in CONFIGURATIONS.values() for key in settings}
    assert used >= {
        "access",
        "containerRegistry",
        "ephemeralOsDisk",
        "idleStopMinutes",
        "image",
        "maxPrice",
        "nfs",
        "nfsSizeGib",
        "retainData",
        "spot",
        "storage",
        "storageAccountId",
        "subnetId",
        "ttlHours",
        "vnetId",
        "zone",
    }
    assert {settings["nodeCount"] for settings in CONFIGURATIONS.values()} >= {"1", "300"}


def test_microsofts_models_take_every_request_body(program: Program) -> None:
    for token, inputs in program.azure:
        check(kind(token).model, request_body(token, inputs))


def test_the_models_refuse_what_they_do_not_know(program: Program) -> None:
    for token, inputs in program.azure:
        sent = request_body(token, inputs)
        with pytest.raises(ArmError, match="invented"):
            check(kind(token).model, sent | {"invented": True})
        if "properties" in sent:
            with pytest.raises(ArmError, match="invented"):
                check(kind(token).model, sent | {"properties": sent["properties"] | {"invented": True}})


def test_every_name_in_a_body_is_one_that_the_inputs_had(program: Program) -> None:
    """Nothing is lost on the way from the program to the request."""
    for token, inputs in program.azure:
        known = kind(token)
        ids = set(known.inputs)
        wanted = sorted(str(v) for key, value in inputs.items() if key not in ids for v in leaves(value))
        assert sorted(str(v) for v in leaves(request_body(token, inputs))) == wanted, token


def leaves(value: Any) -> list[Any]:
    """Everything in ``value`` that is no container; a map of empty maps counts by its keys."""
    if isinstance(value, dict):
        return [leaf for key, part in value.items() for leaf in (leaves(part) if part != {} else [key])]
    return [leaf for part in value for leaf in leaves(part)] if isinstance(value, list) else [value]


def test_the_plan_is_the_one_that_was_reviewed(program: Program) -> None:
    plan = {
        "settings": dict(program.settings),
        "resources": masked(dict(program.resources)),
        "outputs": {key: "[secret]" if key in program.secrets else v for key, v in program.outputs.items()},
    }
    for name in [name for name in plan["resources"] if not name.startswith("azure-native:")]:
        del plan["resources"][name]
    text = yaml.safe_dump(plan, sort_keys=True, width=110)
    golden = GOLDEN / f"{program.name}.yaml"
    if os.environ.get("WRITE_GOLDEN"):
        golden.write_text(text, "utf-8")
    assert text == golden.read_text("utf-8")


def test_no_plan_is_left_of_a_configuration_that_is_gone() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == set(CONFIGURATIONS)


def test_the_group_is_what_everything_else_is_made_in(program: Program) -> None:
    groups = {inputs["resourceGroupName"] for token, inputs in program.azure if kind(token) is GROUP}
    for token, inputs in program.azure:
        assert inputs.get("resourceGroupName", "corporate") in groups | {"corporate"}, token
