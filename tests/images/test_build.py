"""The program that makes an image: what it asks Azure for, and what it refuses before it asks."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from azure.mgmt.imagebuilder import models

from images.build.config import KEY, parse
from images.os_images import MarketplaceImage
from images.steps import steps
from launch.errors import InputError
from tests.images.image_template import Build, image_template

ROOT = Path(__file__).parents[2]
V100 = {
    "size": "Standard_ND40rs_v2",
    "location": "southcentralus",
    "base": "Canonical:0001-com-ubuntu-server-jammy:22_04-lts-gen2:22.04.1",
    "version": "1.2.3",
    "tags": '{"team": "vision"}',
}
GB200 = V100 | {
    "size": "Standard_ND128isr_NDR_GB200_v6",
    "base": "Canonical:ubuntu-24_04-lts:server-arm64:24.04.1",
}
OTHER = V100 | {"base": "almalinux:almalinux-x86_64:9-gen2:9.1", "minutes": "600", "mpi": "openmpi"}
VARIANTS = {"v100": V100, "gb200": GB200, "other": OTHER}


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    ran = subprocess.run(
        [sys.executable, "-m", "tests.images.recorded_build"],
        input=json.dumps(VARIANTS),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def only(recorded: dict[str, Any], variant: str, kind: str) -> dict[str, Any]:
    (found,) = [made for name, made in recorded[variant]["resources"].items() if f":{kind} " in name]
    return dict(found)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_template_is_the_recipes(variant: str, recorded: dict[str, Any]) -> None:
    config = parse({KEY + key: value for key, value in VARIANTS[variant].items()})
    inputs = only(recorded, variant, "VirtualMachineImageTemplate")
    (identity,) = inputs["identity"]["userAssignedIdentities"]
    build = Build(
        base=config.base,
        location=config.location,
        identity_id=identity,
        image_version_id=recorded[variant]["outputs"]["image"],
        vm_size=config.build_size,
        disk_gib=config.disk_gib,
        minutes=config.minutes,
        tags=inputs["tags"],
    )
    wanted = image_template(steps(config.recipe), build)
    properties = wanted["properties"]
    # What the SDK adds by itself:
    for shell in inputs["customize"]:
        assert shell.pop("sha256Checksum") == ""
    assert inputs["distribute"][0].pop("excludeFromLatest") is False
    assert {key: inputs[key] for key in properties} == properties
    assert inputs["location"] == wanted["location"]


def test_the_machine_that_is_started_is_one_that_microsofts_models_know(recorded: dict[str, Any]) -> None:
    inputs = only(recorded, "v100", "VirtualMachineImageTemplate")
    template = models.ImageTemplate({"location": inputs["location"], "properties": inputs})
    assert template.properties is not None
    assert len(template.properties.customize or []) == len(inputs["customize"])
    assert template.properties.vm_profile is not None
    assert template.properties.vm_profile.vm_size == "Standard_D8s_v5"


@pytest.mark.parametrize(("variant", "architecture"), [("v100", "x64"), ("gb200", "Arm64")])
def test_the_definition_says_what_its_images_boot_on(
    variant: str, architecture: str, recorded: dict[str, Any]
) -> None:
    inputs = only(recorded, variant, "GalleryImage")
    assert (inputs["hyperVGeneration"], inputs["osType"], inputs["osState"]) == ("V2", "Linux", "Generalized")
    assert inputs["architecture"] == architecture


def test_the_builder_may_write_images_into_its_own_group_and_nothing_else(recorded: dict[str, Any]) -> None:
    (permission,) = only(recorded, "v100", "RoleDefinition")["permissions"]
    assert all(action.startswith("Microsoft.Compute/") for action in permission["actions"])
    assert not any("*" in action for action in permission["actions"])
    (scope,) = only(recorded, "v100", "RoleDefinition")["assignableScopes"]
    assert only(recorded, "v100", "RoleAssignment")["scope"] == scope
    assert scope.count("/") == 4  # a resource group, not the subscription


def test_what_has_versions_goes_with_its_resource_group(recorded: dict[str, Any]) -> None:
    kept = {name for name, options in recorded["v100"]["options"].items() if options["retainOnDelete"]}
    assert {name.rpartition(":")[2].split()[0] for name in kept} == {"Gallery", "GalleryImage"}


def test_everything_that_takes_tags_has_them(recorded: dict[str, Any]) -> None:
    for name, made in recorded["v100"]["resources"].items():
        if not any(kind in name for kind in (":Role", ":NodeImage ")):
            assert made["tags"] == {"team": "vision", "ranklift-images-stack": "dev"}, name


def test_says_which_image_a_cluster_is_to_take(recorded: dict[str, Any]) -> None:
    image = recorded["v100"]["outputs"]["image"]
    assert image.endswith("/versions/1.2.3")
    assert "az image builder show" in recorded["v100"]["outputs"]["progress"]


@pytest.mark.parametrize(
    ("changed", "key", "problem"),
    [
        ({"size": ""}, "size", "not set"),
        ({"size": "Standard_ND96isr_MI300X_v5"}, "size", "ROCm"),
        ({"size": "Standard_A0"}, "size", "not a known size"),
        ({"version": "latest"}, "version", "not valid"),
        ({"version": "1.02.3"}, "version", "not valid"),
        ({"base": "Canonical:ubuntu-24_04-lts:server:24.04.1"}, "base", "Ubuntu 22.04"),
        ({"base": "Canonical:0001-com-ubuntu-server-jammy:22_04-lts:22.04.1"}, "base", "generation 1"),
        ({"base": "Canonical:0001-com-ubuntu-server-jammy:22_04-lts-arm64:22.04.1"}, "base", "not for x64"),
        ({"base": "Canonical:ubuntu-24_04-lts:server:latest"}, "base", "latest moves"),
        (
            {"base": "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/images/i"},
            "base",
            "market",
        ),
        ({"minutes": "10"}, "minutes", "must be at least 30"),
        ({"diskGib": "plenty"}, "diskGib", "not a whole number"),
        ({"mpi": "mvapich"}, "mpi", "not valid"),
        ({"ubuntu": "24.04", "mpi": "hpcx"}, "mpi", "no source"),
        ({"tags": "[1]"}, "tags", "not a mapping"),
        ({"sizes": "x"}, "sizes", "unknown setting"),
    ],
)
def test_what_cannot_become_an_image_is_refused(changed: dict[str, str], key: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem) as refused:
        parse({KEY + name: value for name, value in (V100 | changed).items()})
    assert refused.value.key == KEY + key


def test_takes_any_other_publishers_base_as_it_is() -> None:
    config = parse({KEY + key: value for key, value in OTHER.items()})
    assert config.base == MarketplaceImage("almalinux", "almalinux-x86_64", "9-gen2", "9.1")
