"""The image program on the emulated Azure: an id that a cluster takes, and nothing left when it goes."""

from __future__ import annotations

import shutil
import time
import urllib.error
import urllib.request

import pytest

from images.os_images import GalleryImage, parse_image
from tests.e2e.workplace import ROOT, Workplace

pytestmark = pytest.mark.azure

STACK = "rehearsal-images"
PROGRAM = ("-C", "images/build")
GROUP = f"ranklift-images-{STACK}"
TEMPLATES = f"/resourceGroups/{GROUP}/providers/Microsoft.VirtualMachineImages/imageTemplates"
SETTINGS = {
    "size": "Standard_ND40rs_v2",
    "location": "southcentralus",
    "base": "Canonical:0001-com-ubuntu-server-jammy:22_04-lts-gen2:22.04.1",
    "version": "1.0.0",
}


@pytest.fixture(scope="module")
def program(workplace: Workplace) -> Workplace:
    """The program in the operator's project, with a stack."""
    folder = workplace.project / "images/build"
    shutil.copytree(
        ROOT / "images/build", folder, ignore=shutil.ignore_patterns("__pycache__", "Pulumi.*.yaml")
    )
    workplace.pulumi(*PROGRAM, "stack", "init", STACK)
    for key, value in SETTINGS.items():
        workplace.pulumi(*PROGRAM, "config", "set", key, value, "-s", STACK)
    return workplace


def test_a_wrong_setting_is_shown_without_a_traceback_and_nothing_is_made(program: Workplace) -> None:
    program.pulumi(*PROGRAM, "config", "set", "version", "latest", "-s", STACK)
    ran = program.pulumi(*PROGRAM, "up", "--yes", "-s", STACK, status=None)
    assert ran.status != 0
    assert "ranklift-images:version = 'latest': is not valid" in ran.out + ran.err
    assert "Traceback" not in ran.out
    assert GROUP not in program.groups()
    program.pulumi(*PROGRAM, "config", "set", "version", "1.0.0", "-s", STACK)


def test_makes_gallery_rights_and_template_though_azure_does_not_know_role_and_identity_at_once(
    program: Workplace,
) -> None:
    program.fab("rehearsal.fault", "replication", "--count", "2")
    ran = program.fab("image.build", "--stack", STACK)
    for code in ("RoleDefinitionDoesNotExist", "PrincipalNotFound"):
        assert f"builder-right: Azure does not find yet what was just made ({code}); retrying" in ran.err
    image = program.pulumi(*PROGRAM, "stack", "output", "image", "-s", STACK).out.strip()
    assert parse_image(image) == GalleryImage(image)
    assert image.endswith("/galleries/ranklift_rehearsal_images/images/ND40rs.v2.ubuntu22.04/versions/1.0.0")
    template = program.azure(f"{TEMPLATES}/ND40rs.v2.ubuntu22.04-1.0.0")
    assert template["properties"]["distribute"][0]["galleryImageId"] == image
    assert template["properties"]["autoRun"] == {"state": "Enabled"}


def test_another_version_is_made_though_image_builder_does_not_see_the_right_at_once(
    program: Workplace,
) -> None:
    program.pulumi(*PROGRAM, "config", "set", "version", "1.0.1", "-s", STACK)
    program.fab("rehearsal.fault", "replication", "--count", "1")
    ran = program.fab("image.build", "--stack", STACK)
    assert "template: Azure does not find yet what was just made (ValidationFailed); retrying" in ran.err
    assert [one["name"] for one in program.azure(TEMPLATES)["value"]] == ["ND40rs.v2.ubuntu22.04-1.0.1"]


def test_an_unchanged_program_changes_nothing(program: Workplace) -> None:
    program.pulumi(*PROGRAM, "preview", "--expect-no-changes", "-s", STACK)


def test_a_cluster_can_be_told_the_image_once_the_template_has_run(program: Workplace) -> None:
    record = program.record
    image = program.pulumi(*PROGRAM, "stack", "output", "image", "-s", STACK).out.strip()
    path = image.partition(record.subscription_id)[2]
    with pytest.raises(urllib.error.HTTPError, match="404"):
        program.azure(path)
    # On Azure the template runs by itself (autoRun), which takes an hour or more; emulated, it is told to.
    template = program.pulumi(*PROGRAM, "stack", "output", "template", "-s", STACK).out.strip()
    run = f"/subscriptions/{record.subscription_id}{TEMPLATES}/{template}/run"
    program.ask("POST", run, version="2024-02-01")
    deadline = time.monotonic() + 60
    while True:
        try:
            version = program.azure(path)
            break
        except urllib.error.HTTPError:
            assert time.monotonic() < deadline
            time.sleep(0.2)
    assert version["id"] == image


def test_nothing_is_left_when_it_goes(program: Workplace) -> None:
    program.pulumi(*PROGRAM, "destroy", "--yes", "--skip-preview", "-s", STACK)
    assert GROUP not in program.groups()
    assert program.azure("/resources")["value"] == []
