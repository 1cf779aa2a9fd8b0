"""Which image a node boots."""

import pytest

from catalogue.sizes import lookup
from images.os_images import (
    GalleryImage,
    MarketplaceImage,
    default_image,
    known_images,
    parse_image,
    unfit,
)
from launch.errors import InputError
from tests.images.contents import contents

SIZES = {
    "V100": lookup("Standard_ND40rs_v2"),
    "A100": lookup("Standard_ND96asr_v4"),
    "H100": lookup("Standard_ND96isr_H100_v5"),
    "MI300X": lookup("Standard_ND96isr_MI300X_v5"),
    None: lookup("Standard_HB120rs_v3"),
}
GALLERY = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/galleries/mine/images/hpc"


@pytest.mark.parametrize("rule", ["ubuntu", "ubuntu-v100", "ubuntu-rocm"])
def test_every_default_is_pinned_and_can_be_given_by_hand(rule: str) -> None:
    image = default_image(rule)
    assert parse_image(image.urn) == image


def test_a_v100_gets_the_image_with_the_drivers_it_needs() -> None:
    assert default_image("ubuntu-v100").sku == "2204-v100"


@pytest.mark.parametrize(
    ("publisher", "needs"),
    [("almalinux", True), ("AlmaLinux", True), ("microsoft-dsvm", False), ("azure-hpc", False)],
)
def test_only_some_publishers_need_a_plan(publisher: str, needs: bool) -> None:
    assert (MarketplaceImage(publisher, "offer", "sku", "1").plan is not None) is needs


@pytest.mark.parametrize(
    "image",
    [
        f"{GALLERY}/versions/1.2.3",
        "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/images/mine",
        GALLERY.lower() + "/versions/1.2.3",
    ],
)
def test_an_own_image_is_taken_by_its_id(image: str) -> None:
    parsed = parse_image(image)
    assert parsed == GalleryImage(image)
    assert parsed.plan is None


@pytest.mark.parametrize(
    ("image", "problem"),
    [
        ("microsoft-dsvm:ubuntu-hpc:2204:latest", "latest moves"),
        ("microsoft-dsvm:ubuntu-hpc:2204:Latest", "latest moves"),
        ("microsoft-dsvm:ubuntu-hpc:2204", "neither"),
        ("ubuntu", "neither"),
        ("a:b:c:d:e", "neither"),
        ("a::c:d", "neither"),
        (GALLERY, "names no version"),
        (GALLERY + "/versions/latest", "names no version"),
        ("/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/d", "neither"),
    ],
)
def test_what_is_no_fixed_image_is_refused(image: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem) as refused:
        parse_image(image, "ranklift:image")
    assert (refused.value.key, refused.value.value) == ("ranklift:image", image)


def test_every_known_image_has_a_source_and_those_without_a_version_are_no_default() -> None:
    assert all(known.source for known in known_images())
    assert [known for known in known_images() if known.rule and known.urn.count(":") < 3] == []


@pytest.mark.parametrize("rule", ["ubuntu", "ubuntu-v100"])
def test_says_what_a_default_image_holds(rule: str) -> None:
    held = contents(default_image(rule))
    assert held is not None
    assert held["cuda"].startswith("12." if rule == "ubuntu-v100" else "13.")
    assert held["ofed"].startswith("DOCA ")


def test_what_the_rocm_image_holds_is_not_known() -> None:
    assert contents(default_image("ubuntu-rocm")) is None


def test_no_version_for_arm_is_known_so_that_none_is_made_up() -> None:
    (arm,) = [known for known in known_images() if known.cpu_arch == "Arm64"]
    assert arm.urn == "microsoft-dsvm:ubuntu-hpc:2404-gb"


@pytest.mark.parametrize(
    ("urn", "problem"),
    [
        ("microsoft-dsvm:ubuntu-hpc:2404-gb:24.04.2026010101", None),
        (
            "microsoft-dsvm:ubuntu-hpc:2404:24.04.2026010101",
            "is for x64, and Standard_ND128isr_NDR_GB200_v6 is Arm64: use microsoft-dsvm:ubuntu-hpc:2404-gb",
        ),
        ("somebody:some:image:1", None),
    ],
)
def test_an_image_for_another_processor_is_told_apart(urn: str, problem: str | None) -> None:
    assert unfit(parse_image(urn), lookup("Standard_ND128isr_NDR_GB200_v6")) == problem


def test_the_image_for_arm_is_none_for_others() -> None:
    found = unfit(parse_image("microsoft-dsvm:ubuntu-hpc:2404-gb:24.04.2026010101"), SIZES["A100"])
    assert found is not None
    assert found.startswith(
        "is for Arm64, and Standard_ND96asr_v4 is x64: use microsoft-dsvm:ubuntu-hpc:2204"
    )
    assert "2404-gb" not in found


@pytest.mark.parametrize(
    ("urn", "gpu", "fits"),
    [
        ("microsoft-dsvm:ubuntu-hpc:2204:1", "V100", False),
        ("microsoft-dsvm:ubuntu-hpc:2204:1", "A100", True),
        ("Microsoft-DSVM:Ubuntu-HPC:2204-V100:1", "V100", True),
        ("microsoft-dsvm:ubuntu-hpc:2204:1", "MI300X", False),
        ("microsoft-dsvm:ubuntu-hpc:2404-rocm:1", "MI300X", True),
        ("microsoft-dsvm:ubuntu-hpc:2404-rocm:1", "H100", False),
        ("azure-hpc:azurelinux-hpc:3:1", "V100", False),
        ("somebody:some:image:1", "V100", True),
        ("microsoft-dsvm:ubuntu-hpc:2204-rocm:1", None, True),
    ],
)
def test_an_image_without_a_driver_for_the_gpus_is_told_apart(urn: str, gpu: str | None, fits: bool) -> None:
    assert (unfit(parse_image(urn), SIZES[gpu]) is None) is fits


@pytest.mark.parametrize(
    ("urn", "fits"),
    [
        ("almalinux:almalinux-hpc:8_10-hpc-gen2:8.10.2025061201", False),
        ("AlmaLinux:almalinux-x86_64:8-gen2:8.10.2025061201", False),
        ("RedHat:RHEL:8_10:8.10.2024101615", False),
        ("OpenLogic:CentOS-HPC:7_9-gen2:7.9.2022040101", False),
        ("microsoft-dsvm:ubuntu-hpc:1804:18.04.2022121201", False),
        ("Debian:debian-10:10-gen2:0.20240703.1797", False),
        ("SUSE:sles-15-sp5:gen2:2024.08.27", False),
        ("Oracle:Oracle-Linux:ol88-lvm-gen2:8.8.3", False),
        ("Debian:debian-12:12-gen2:0.20260801.2559", True),
        ("SUSE:sles-16-0-x86-64:gen2:2026.02.10", True),
        ("Oracle:Oracle-Linux:ol94-lvm-gen2:9.4.2", True),
        ("almalinux:almalinux-hpc:9-hpc-gen2:9.6.2025061201", True),
        ("almalinux:almalinux-x86_64:10-gen2:10.0.2025061201", True),
        ("microsoft-dsvm:ubuntu-hpc:2004:20.04.2024043001", True),
        ("azure-hpc:azurelinux-hpc:3:3.20260801.01", True),
        ("somebody:some:image:1.0.0", True),
        ("almalinux:almalinux-hpc:9-hpc-gen2:mine", True),
    ],
)
@pytest.mark.parametrize("gpu", [None, "A100"])
def test_an_image_too_old_for_the_watch_and_sshd_is_told_apart(urn: str, gpu: str | None, fits: bool) -> None:
    result = unfit(parse_image(urn), SIZES[gpu])
    assert (result is None) is fits
    assert fits or "older than the Python 3.8 and OpenSSH 8.2 that nodes need: use release" in str(result)


def test_nobody_knows_what_an_own_image_holds() -> None:
    assert unfit(GalleryImage(GALLERY), SIZES["V100"]) is None


@pytest.mark.parametrize(
    ("urn", "problem"),
    [
        ("microsoft-dsvm:aks-hpc:ubuntu-2204:0.3.1", None),
        ("microsoft-dsvm:aks-hpc:2204:19.10.2023", None),
        ("microsoft-dsvm:ubuntu-2004:2004-gen2:19.01.21", None),
        ("microsoft-dsvm:ubuntu-1804:1804-gen2:23.01.06", "is release 18 of microsoft-dsvm"),
        ("microsoft-dsvm:ubuntu-hpc:1804:18.04.2021120101", "is release 18 of microsoft-dsvm"),
    ],
)
def test_versions_are_releases_where_the_offer_counts_them_so(urn: str, problem: str | None) -> None:
    result = unfit(parse_image(urn), None)
    assert (result or "").startswith(problem) if problem else result is None


def test_what_an_image_without_a_known_release_holds_is_not_known() -> None:
    image = parse_image("microsoft-dsvm:ubuntu-hpc:2404:24.04.2026010101")
    assert isinstance(image, MarketplaceImage)
    assert contents(image) is None
