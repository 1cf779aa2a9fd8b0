"""Images of the rehearsed marketplace, as Microsoft's client and the project's own query see them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
from azure.core.exceptions import ResourceNotFoundError

from images.os_images import KnownImage, default_image, known_images, parse_image
from infra.arm.rest import Rest
from infra.preflight.marketplace import Published, published
from rehearsal.arm.core.models import check, model
from rehearsal.faults.arm_faults import ArmFaults
from rehearsal.faults.fault_kinds import fault_spec
from tests.rehearsal.bodies import SCALE_SET, build, scale_set
from tests.rehearsal.doubles import SUBSCRIPTION_ID, TOKEN, Endpoint, RecordingMachines, endpoint

PLACE = "westeurope"
IMAGE = default_image("ubuntu-v100")
PATH = (
    f"/subscriptions/{SUBSCRIPTION_ID}/providers/Microsoft.Compute/locations/{PLACE}/publishers/"
    f"{IMAGE.publisher}/artifacttypes/vmimage/offers/{IMAGE.offer}/skus/{IMAGE.sku}/versions"
)
ALMA = parse_image("almalinux:almalinux-hpc:9-hpc-gen2:9.6.2025061201")


@pytest.fixture
def faults() -> ArmFaults:
    return ArmFaults()


@pytest.fixture
def azure(recorded: RecordingMachines, faults: ArmFaults) -> Iterator[Endpoint]:
    with endpoint(recorded, faults) as running:
        yield running


def published_by(azure: Endpoint, image: Any) -> Published:
    found = published(Rest(azure.url, lambda: TOKEN), SUBSCRIPTION_ID, PLACE, image)
    assert found is not None
    return found


def booting(capacity: int, image: Any = IMAGE) -> dict[str, Any]:
    """A change of a scale set that boots ``capacity`` nodes of an image."""
    reference = {
        "publisher": image.publisher,
        "offer": image.offer,
        "sku": image.sku,
        "version": image.version,
    }
    plan = image.plan and {part: getattr(image.plan, part) for part in ("name", "product", "publisher")}
    return {
        "sku": {"name": "Standard_ND40rs_v2", "tier": "Standard", "capacity": capacity},
        "properties": {"virtualMachineProfile": {"storageProfile": {"imageReference": reference}}},
        **({"plan": plan} if plan else {}),
    }


def test_microsofts_client_and_model_read_a_version(azure: Endpoint) -> None:
    images = azure.clients().compute.virtual_machine_images
    names = (PLACE, IMAGE.publisher, IMAGE.offer, IMAGE.sku)
    shown = images.get(*names, IMAGE.version)
    assert (shown.name, shown.hyper_v_generation, shown.architecture) == (IMAGE.version, "V2", "x64")
    assert shown.image_deprecation_status.image_state == "Active"
    body = azure.ask("GET", f"{PATH}/{IMAGE.version}")[1]
    assert check(model("compute.VirtualMachineImage"), body)["properties"] == body["properties"]
    assert [one.name for one in images.list(*names)] == ["22.04.2026100101", "22.04.2026110101"]


@pytest.mark.parametrize("known", [one for one in known_images() if one.rule], ids=lambda one: one.rule)
def test_every_default_image_can_be_booted_by_what_is_known_of_it(azure: Endpoint, known: KnownImage) -> None:
    image = parse_image(known.urn)
    found = published_by(azure, image)
    assert (found.found, found.known, found.architecture) == (True, False, known.cpu_arch)
    assert found.plan == image.plan


def test_the_sku_for_arm_is_for_arm_and_an_old_name_for_generation_1(azure: Endpoint) -> None:
    assert published_by(azure, parse_image("microsoft-dsvm:ubuntu-hpc:2404-gb:1.0")).architecture == "Arm64"
    assert published_by(azure, parse_image("almalinux:almalinux-hpc:9-hpc:9.6.1")).generation == "V1"


def test_a_purchase_plan_and_whether_its_terms_are_accepted(azure: Endpoint, faults: ArmFaults) -> None:
    found = published_by(azure, ALMA)
    assert (found.plan, found.accepted) == (ALMA.plan, True)
    faults.set(fault_spec("terms"))
    assert published_by(azure, ALMA).accepted is False


def test_a_region_that_azure_does_not_have_has_no_images(azure: Endpoint) -> None:
    status, printed, _ = azure.ask("GET", f"{PATH.replace(PLACE, 'moon')}/1.0")
    assert (status, printed["error"]["code"]) == (400, "NoRegisteredProviderFound")


def test_a_version_that_is_gone_is_not_found_and_others_are_listed(
    azure: Endpoint, faults: ArmFaults
) -> None:
    faults.set(fault_spec("image"))
    with pytest.raises(ResourceNotFoundError, match="Artifact: VMImage was not found"):
        azure.clients().compute.virtual_machine_images.get(
            PLACE, IMAGE.publisher, IMAGE.offer, IMAGE.sku, IMAGE.version
        )
    gone = published_by(azure, IMAGE)
    assert gone == Published(found=False, versions=("22.04.2026110101", "22.04.2026100101"))
    assert all(published_by(azure, dataclasses.replace(IMAGE, version=one)).found for one in gone.versions)


@pytest.mark.parametrize(("gib", "taken"), [(63, False), (64, True), (None, True), (256, True)])
def test_an_os_disk_is_not_smaller_than_its_image(azure: Endpoint, gib: int | None, taken: bool) -> None:
    build(azure, 0)
    body = scale_set(1)
    reference = booting(1)["properties"]["virtualMachineProfile"]["storageProfile"]["imageReference"]
    disk = {"createOption": "FromImage", **({"diskSizeGB": gib} if gib else {})}
    storage = {"imageReference": reference, "osDisk": disk}
    body["properties"]["virtualMachineProfile"]["storageProfile"] = storage
    answer = azure.settle("PUT", SCALE_SET, body)
    if taken:
        assert answer["status"] == "Succeeded"
        return
    assert answer["error"]["code"] == "OperationNotAllowed"
    assert "63 GB is smaller than the size of the corresponding disk in the VM image: 64 GB" in str(answer)


@pytest.mark.parametrize(
    ("kind", "image", "code"),
    [
        ("image", IMAGE, "PlatformImageNotFound"),
        ("deprecated", IMAGE, "ImageVersionDeprecated"),
        ("terms", ALMA, "ResourcePurchaseValidationFailed"),
    ],
)
def test_no_new_node_boots_it_then(
    azure: Endpoint, recorded: RecordingMachines, faults: ArmFaults, kind: str, image: Any, code: str
) -> None:
    build(azure, 1)
    faults.set(fault_spec(kind))
    assert azure.settle("PATCH", SCALE_SET, booting(2, image))["error"]["code"] == code
    assert azure.settle("PATCH", SCALE_SET, booting(0, image))["status"] == "Succeeded"
    faults.clear()
    assert azure.settle("PATCH", SCALE_SET, booting(2, image))["status"] == "Succeeded"
    assert len(recorded.booted()) == 3


def test_the_newest_version_boots_while_others_are_gone(azure: Endpoint, faults: ArmFaults) -> None:
    build(azure, 1)
    faults.set(fault_spec("image"))
    newest = dataclasses.replace(IMAGE, version=published_by(azure, IMAGE).versions[0])
    assert azure.settle("PATCH", SCALE_SET, booting(2, newest))["status"] == "Succeeded"
