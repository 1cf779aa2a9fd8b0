"""Galleries, their images, and Image Builder, which makes versions of them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.rehearsal.arm.auth.test_roles import CONTRIBUTOR, IDENTITY, assign, make_identity
from tests.rehearsal.doubles import BASE, Endpoint

GALLERY = "providers/Microsoft.Compute/galleries/images"
IMAGE = f"{GALLERY}/images/hpc"
TEMPLATE = "providers/Microsoft.VirtualMachineImages/imageTemplates/hpc"


def image() -> dict[str, Any]:
    identifier = {"publisher": "p", "offer": "o", "sku": "s"}
    properties = {
        "osType": "Linux",
        "osState": "Generalized",
        "hyperVGeneration": "V2",
        "identifier": identifier,
    }
    return {"location": "westeurope", "properties": properties}


def template(**distribution: Any) -> dict[str, Any]:
    target = {
        "type": "SharedImage",
        "galleryImageId": f"{BASE}/{IMAGE}",
        "runOutputName": "out",
        "replicationRegions": ["westeurope"],
        **distribution,
    }
    source = {"type": "PlatformImage", "publisher": "p", "offer": "o", "sku": "s", "version": "1.0.0"}
    return {
        "location": "westeurope",
        "identity": {"type": "UserAssigned", "userAssignedIdentities": {f"{BASE}/{IDENTITY}": {}}},
        "properties": {
            "source": source,
            "customize": [{"type": "Shell", "name": "recipe", "inline": ["true"]}],
            "distribute": [target],
        },
    }


@pytest.fixture
def gallery(azure: Endpoint) -> Endpoint:
    """A gallery with an image definition, and an identity that may write to it."""
    principal = make_identity(azure)["principalId"]
    assert azure.settle("PUT", GALLERY, {"location": "westeurope"})["status"] == "Succeeded"
    assert azure.settle("PUT", IMAGE, image())["status"] == "Succeeded"
    assert assign(azure, principal, CONTRIBUTOR, f"{BASE}/{GALLERY}")[0] == 201
    return azure


def run(azure: Endpoint) -> Any:
    status, _, headers = azure.ask("POST", f"{TEMPLATE}/run")
    assert status == 202
    while True:
        answer = azure.ask("GET", headers["Azure-AsyncOperation"])[1]
        if answer["status"] != "InProgress":
            return answer


def test_a_run_makes_a_version_that_outlives_the_template(gallery: Endpoint) -> None:
    assert gallery.settle("PUT", TEMPLATE, template())["status"] == "Succeeded"
    assert "lastRunStatus" not in gallery.ask("GET", TEMPLATE)[1]["properties"]
    assert run(gallery)["status"] == "Succeeded"
    assert gallery.ask("GET", TEMPLATE)[1]["properties"]["lastRunStatus"]["runState"] == "Succeeded"
    (output,) = gallery.ask("GET", f"{TEMPLATE}/runOutputs")[1]["value"]
    version = output["properties"]["artifactId"]
    assert re.fullmatch(rf"{BASE}/{IMAGE}/versions/0\.\d+\.\d+", version)
    assert gallery.settle("DELETE", TEMPLATE)["status"] == "Succeeded"
    assert gallery.ask("GET", version)[0] == 200


def test_a_second_run_makes_another_version(gallery: Endpoint) -> None:
    gallery.settle("PUT", TEMPLATE, template())
    run(gallery)
    run(gallery)
    assert len(gallery.ask("GET", f"{IMAGE}/versions")[1]["value"]) == 2


def test_a_version_may_be_named(gallery: Endpoint) -> None:
    named = f"{BASE}/{IMAGE}/versions/1.2.3"
    gallery.settle("PUT", TEMPLATE, template(galleryImageId=named))
    run(gallery)
    assert gallery.ask("GET", named)[0] == 200


def test_what_is_inside_goes_first(gallery: Endpoint) -> None:
    gallery.settle("PUT", TEMPLATE, template())
    run(gallery)
    (version,) = gallery.ask("GET", f"{IMAGE}/versions")[1]["value"]
    assert gallery.settle("DELETE", GALLERY)["error"]["code"] == "CannotDeleteResource"
    assert gallery.settle("DELETE", IMAGE)["error"]["code"] == "CannotDeleteResource"
    for path in (version["id"], IMAGE, GALLERY):
        assert gallery.settle("DELETE", path)["status"] == "Succeeded", path


def test_the_identity_needs_the_right_to_write_versions(gallery: Endpoint) -> None:
    (assignment,) = gallery.subscription.of_type("Microsoft.Authorization/roleAssignments")
    gallery.ask("DELETE", str(assignment.id))
    refused = gallery.settle("PUT", TEMPLATE, template())
    assert refused["error"]["code"] == "ValidationFailed"
    assert f"Not authorized to access the resource: {BASE}/{IMAGE}" in refused["error"]["message"]


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        (f"{GALLERY}-1", {"location": "westeurope"}, "InvalidParameter"),
        (f"{IMAGE}/versions/latest", {"location": "westeurope"}, "InvalidParameter"),
        (TEMPLATE, {k: v for k, v in template().items() if k != "identity"}, "InvalidRequestContent"),
    ],
)
def test_what_cannot_be_is_refused(gallery: Endpoint, path: str, body: dict[str, Any], code: str) -> None:
    assert gallery.settle("PUT", path, body)["error"]["code"] == code


def test_a_template_is_replaced_and_not_changed(gallery: Endpoint) -> None:
    gallery.settle("PUT", TEMPLATE, template())
    changed = gallery.settle("PUT", TEMPLATE, template(runOutputName="other"))
    assert changed["error"]["code"] == "PropertyChangeNotAllowed"
