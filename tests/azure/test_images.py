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

PROGRAM = ("-C", "images/build")
TEMPLATES = "/resourceGroups/ranklift-images-images/providers/Microsoft.VirtualMachineImages/imageTemplates"
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
    workplace.pulumi(*PROGRAM, "stack", "init", "images")
    for key, value in SETTINGS.items():
        workplace.pulumi(*PROGRAM, "config", "set", key, value, "-s", "images")
    return workplace


def test_a_wrong_setting_is_shown_without_a_traceback_and_nothing_is_made(program: Workplace) -> None:
    program.pulumi(*PROGRAM, "config", "set", "version", "latest", "-s", "images")
    ran = program.pulumi(*PROGRAM, "up", "--yes", "-s", "images", status=None)
    assert ran.status != 0
    assert "ranklift-images:version = 'latest': is not valid" in ran.out + ran.err
    assert "Traceback" not in ran.out
    assert "ranklift-images-images" not in program.groups()
    program.pulumi(*PROGRAM, "config", "set", "version", "1.0.0", "-s", "images")


def test_makes_gallery_rights_and_template_and_says_the_image(program: Workplace) -> None:
    program.pulumi(*PROGRAM, "up", "--yes", "--skip-preview", "-s", "images")
    image = program.pulumi(*PROGRAM, "stack", "output", "image", "-s", "images").out.strip()
    assert parse_image(image) == GalleryImage(image)
    assert image.endswith("/galleries/ranklift_images/images/ND40rs.v2.ubuntu22.04/versions/1.0.0")
    template = program.azure(f"{TEMPLATES}/ND40rs.v2.ubuntu22.04-1.0.0")
    assert template["properties"]["distribute"][0]["galleryImageId"] == image
    assert template["properties"]["autoRun"] == {"state": "Enabled"}


def test_an_unchanged_program_changes_nothing(program: Workplace) -> None:
    program.pulumi(*PROGRAM, "preview", "--expect-no-changes", "-s", "images")


def test_a_cluster_can_be_told_the_image_once_the_template_has_run(program: Workplace) -> None:
    record = program.record
    image = program.pulumi(*PROGRAM, "stack", "output", "image", "-s", "images").out.strip()
    path = image.partition(record.subscription_id)[2]
    with pytest.raises(urllib.error.HTTPError, match="404"):
        program.azure(path)
    # On Azure the template runs by itself (autoRun), which takes an hour or more; emulated, it is told to.
    template = program.pulumi(*PROGRAM, "stack", "output", "template", "-s", "images").out.strip()
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
    program.pulumi(*PROGRAM, "destroy", "--yes", "--skip-preview", "-s", "images")
    assert "ranklift-images-images" not in program.groups()
    assert program.azure("/resources")["value"] == []
