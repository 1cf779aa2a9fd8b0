"""Whether Azure's marketplace still has the image that the nodes boot, and whether they can boot it."""

from __future__ import annotations

from typing import Any

import pytest

from images.os_images import MarketplaceImage, parse_image
from infra.arm.errors import AzureRefused
from infra.preflight.availability import ScaleSet, scale_set
from infra.preflight.decide import Plan, decide
from infra.preflight.marketplace import Published, published
from tests.infra import azure_answers
from tests.infra.azure_answers import PLACE, SIZE, SUBSCRIPTION, Azure, error, forbidden
from tests.infra.preflight.stack_figures import config, figures

URN = "microsoft-dsvm:ubuntu-hpc:2204-v100:22.04.2025082501"
ALMA = "almalinux:almalinux-hpc:9-hpc-v100-gen2:9.6.2025061201"
OWN = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/galleries/a/images/b/versions/1.0.0"
PLAN = {"publisher": "almalinux", "name": "9-hpc-v100-gen2", "product": "almalinux-hpc"}


def published_by(azure: Azure, urn: str = URN) -> Published:
    found = published(azure.rest, SUBSCRIPTION, PLACE, parse_image(urn))
    assert found is not None
    return found


def plan(azure: Azure, there: ScaleSet | None = None, **settings: str) -> Plan:
    urn = settings.get("image", URN)
    return decide("dev", "s-1", config(**settings), figures(image=published_by(azure, urn), there=there))


def lines(azure: Azure, **settings: str) -> list[str]:
    return [str(refusal) for refusal in plan(azure, None, **settings).refusals]


def test_one_query_of_the_version_is_enough_for_an_image_that_is_there() -> None:
    azure = Azure()
    found = published_by(azure)
    assert (found.found, found.generation, found.architecture, found.plan) == (True, "V2", "x64", None)
    (url,) = azure.asked
    path = "publishers/microsoft-dsvm/artifacttypes/vmimage/offers/ubuntu-hpc/skus/2204-v100/versions"
    assert f"/providers/Microsoft.Compute/locations/{PLACE}/{path}/22.04.2025082501?" in url
    assert lines(Azure()) == []


def test_an_image_of_ones_own_is_no_marketplaces() -> None:
    azure = Azure()
    assert published(azure.rest, SUBSCRIPTION, PLACE, parse_image(OWN)) is None
    assert azure.asked == []
    found = decide("dev", "s-1", config(image=OWN), figures())
    assert (found.image, found.image_is) == (OWN, "your own, not queried")


def test_of_a_version_that_is_gone_the_newest_one_is_named() -> None:
    azure = Azure(image=None, versions=["22.04.2025082501", "22.04.2026022301", "22.04.2026013001", "9.1"])
    found = plan(azure)
    (refusal,) = found.refusals
    assert refusal.about == "image"
    assert refusal.problem == (
        f"Azure does not have {URN} in {PLACE}; the newest is 22.04.2026022301, before it 22.04.2026013001, "
        "22.04.2025082501, 9.1"
    )
    assert refusal.remedy == ("set ranklift:image to microsoft-dsvm:ubuntu-hpc:2204-v100:22.04.2026022301")
    assert found.image_is == "not there"


def test_of_a_sku_without_versions_that_is_said() -> None:
    assert lines(Azure(image=None)) == [
        f"image: Azure has no version of {URN} in {PLACE}; set ranklift:image to one that it has"
    ]


def test_a_sku_that_azure_does_not_know_has_no_versions() -> None:
    azure = Azure(image=None)
    azure.instead["/versions"] = error(404, "NotFound", "Artifact: VMImage was not found.")
    assert published_by(azure) == Published(found=False)


@pytest.mark.parametrize(
    ("properties", "problem"),
    [
        ({"hyperVGeneration": "V1"}, "is for Hyper-V generation V1, and Standard_ND40rs_v2 boots V2 alone"),
        ({"architecture": "Arm64"}, "is for Arm64, and Standard_ND40rs_v2 is x64"),
        (
            {"imageDeprecationStatus": {"imageState": "Deprecated"}},
            "is deprecated: Azure makes no new VM of it",
        ),
        (
            {
                "imageDeprecationStatus": {
                    "imageState": "Deprecated",
                    "alternativeOption": {"type": "Plan", "value": "2404-v100"},
                }
            },
            "is deprecated: Azure makes no new VM of it (2404-v100 is named in its place)",
        ),
        (
            {"plan": PLAN},
            "has the purchase plan almalinux:almalinux-hpc:9-hpc-v100-gen2, and the nodes would",
        ),
    ],
    ids=["generation", "architecture", "deprecated", "alternative", "plan"],
)
def test_an_image_that_the_nodes_cannot_boot_is_refused(properties: dict[str, Any], problem: str) -> None:
    (line,) = lines(Azure(image=azure_answers.image(**properties)))
    assert line.startswith(f"image: {URN} in {PLACE} {problem}")


def test_the_image_of_the_size_is_named_where_another_was_chosen() -> None:
    deprecated = Azure(image=azure_answers.image(imageDeprecationStatus={"imageState": "Deprecated"}))
    (line,) = lines(deprecated)
    assert line.endswith("; set ranklift:image to another")
    newer = "microsoft-dsvm:ubuntu-hpc:2204-v100:22.04.2026013001"
    (line,) = lines(deprecated, image=newer)
    assert line.endswith(f"; set ranklift:image to another, or remove it for {URN}, the one of the size")


def test_what_azure_leaves_out_of_its_answer_refuses_nothing() -> None:
    left_out = dict.fromkeys(("hyperVGeneration", "architecture", "imageDeprecationStatus"))
    assert lines(Azure(image=azure_answers.image(**left_out))) == []


def test_an_image_that_will_be_deprecated_is_a_warning() -> None:
    status = {
        "imageState": "ScheduledForDeprecation",
        "scheduledDeprecationTime": "2027-05-14T00:00:00+00:00",
    }
    found = plan(Azure(image=azure_answers.image(imageDeprecationStatus=status)))
    assert found.refusals == ()
    assert found.warnings == (
        f"image {URN} will be deprecated on 2027-05-14: Azure makes no new VM of it from then on",
    )
    assert found.image_is == "V2, x64, no purchase plan, ScheduledForDeprecation"


class TestPurchasePlans:
    def test_one_whose_terms_are_accepted_is_taken(self) -> None:
        azure = Azure(image=azure_answers.image(plan=PLAN))
        found = plan(azure, image=ALMA)
        assert (found.refusals, found.image_is) == ((), "V2, x64, purchase plan 9-hpc-v100-gen2")
        names = "publishers/almalinux/offers/almalinux-hpc/plans/9-hpc-v100-gen2/agreements/current"
        path = f"/Microsoft.MarketplaceOrdering/offerTypes/virtualmachine/{names}?api-version=2021-01-01"
        assert path in azure.asked[-1]

    def test_azure_may_write_its_names_in_another_case(self) -> None:
        azure = Azure(image=azure_answers.image(plan=PLAN | {"publisher": "AlmaLinux"}))
        assert lines(azure, image=ALMA) == []

    def test_one_whose_terms_are_not_is_refused_with_the_command(self) -> None:
        azure = Azure(image=azure_answers.image(plan=PLAN), accepted=False)
        assert lines(azure, image=ALMA) == [
            f"image: the terms of {ALMA} are not accepted in this subscription; read and accept them: "
            f"`az vm image terms accept --urn {ALMA}`"
        ]

    def test_one_that_azure_does_not_have_is_refused(self) -> None:
        (line,) = lines(Azure(), image=ALMA)
        assert "has no purchase plan, and the nodes would state the purchase plan almalinux:alma" in line

    def test_terms_that_may_not_be_read_are_unknown(self) -> None:
        azure = Azure(image=azure_answers.image(plan=PLAN))
        azure.instead["/agreements/"] = forbidden("Microsoft.MarketplaceOrdering/x/read")
        found = plan(azure, image=ALMA)
        assert found.refusals == ()
        (text,) = [
            text for text in found.unknowns if text.startswith(f"whether the terms of image {ALMA} are")
        ]
        assert "lacks the right Microsoft.MarketplaceOrdering/x/read" in text


class TestWhileTheClusterIsThere:
    """Azure boots no new node of an image that is gone; those that are there go on."""

    GONE = Azure(image=None, versions=["22.04.2026022301"])

    def test_a_cluster_that_makes_no_node_is_only_warned(self) -> None:
        found = plan(self.GONE, ScaleSet(SIZE, 4, False, PLACE, image=URN.upper()))
        assert found.refusals == ()
        (warning,) = found.warnings
        assert warning.startswith(f"no further node can be made: Azure does not have {URN}")

    @pytest.mark.parametrize(
        "there",
        [ScaleSet(SIZE, 3, False, PLACE, image=URN), ScaleSet(SIZE, 4, False, PLACE, image="a:b:c:1")],
        ids=["grows", "another image"],
    )
    def test_one_that_makes_some_is_refused(self, there: ScaleSet) -> None:
        assert [refusal.about for refusal in plan(self.GONE, there).refusals] == ["image"]

    @pytest.mark.parametrize(
        ("reference", "image"),
        [
            (dict(zip(("publisher", "offer", "sku", "version"), URN.split(":"), strict=True)), URN),
            ({"id": OWN}, OWN),
            ({}, None),
        ],
    )
    def test_its_image_is_read_from_the_scale_set(self, reference: dict[str, str], image: str | None) -> None:
        body = azure_answers.scale_set(3)
        body["properties"]["virtualMachineProfile"]["storageProfile"] = {"imageReference": reference}
        found = scale_set(Azure(there=body).rest, SUBSCRIPTION, "g", "s")
        assert found is not None
        assert found.image == image


def test_a_marketplace_that_does_not_answer_is_unknown_and_refuses_nothing() -> None:
    azure = Azure()
    azure.instead["/artifacttypes/"] = error(500, "InternalError", "later")
    image = parse_image(URN)
    assert isinstance(image, MarketplaceImage)
    with pytest.raises(AzureRefused, match="later") as raised:
        published(azure.rest, SUBSCRIPTION, PLACE, image)
    found = decide("dev", "s-1", config(), figures(image=raised.value))
    assert (found.refusals, found.image_is) == ((), "unknown")
    assert [text for text in found.unknowns if text.startswith(f"whether Azure has image {URN}: Azure")]


def test_a_rehearsal_says_that_it_knows_no_versions() -> None:
    azure = Azure(image=azure_answers.image() | {"tags": {"RehearsalDoesNotKnowOffer": "True"}})
    found = plan(azure)
    assert found.refusals == ()
    assert [text for text in found.unknowns if "the rehearsal has no listing of the marketplace" in text]
