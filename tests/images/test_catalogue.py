"""Which image a node boots."""

import pytest

from images.catalogue import GalleryImage, MarketplaceImage, default_image, parse_image
from launch.errors import InputError

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
