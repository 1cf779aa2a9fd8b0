"""The size catalogue."""

from dataclasses import fields
from datetime import date

import pytest

from catalogue.size import Size
from catalogue.sizes import catalogue, lookup, refusal
from launch.errors import InputError

TODAY = date(2026, 9, 1)

# name, GPUs, InfiniBand adapters, Gb/s of each, SR-IOV
INFINIBAND = [
    ("Standard_NC24r", 4, 1, 56, False),
    ("Standard_NC24rs_v2", 4, 1, 56, False),
    ("Standard_ND24rs", 4, 1, 56, False),
    ("Standard_NC24rs_v3", 4, 1, 56, True),
    ("Standard_ND40rs_v2", 8, 1, 100, True),
    ("Standard_ND96asr_v4", 8, 8, 200, True),
    ("Standard_ND96amsr_A100_v4", 8, 8, 200, True),
    ("Standard_ND96isr_H100_v5", 8, 8, 400, True),
    ("Standard_ND96isr_H200_v5", 8, 8, 400, True),
    ("Standard_ND96isr_MI300X_v5", 8, 8, 400, True),
    ("Standard_ND128isr_NDR_GB200_v6", 4, 4, 400, True),
    ("Standard_ND128isr_GB300_v6", 4, 4, 800, True),
    ("Standard_HC44rs", 0, 1, 100, True),
    ("Standard_HB60rs", 0, 1, 100, True),
    ("Standard_HB120rs_v2", 0, 1, 200, True),
    ("Standard_HB120rs_v3", 0, 1, 200, True),
    ("Standard_HB176rs_v4", 0, 1, 400, True),
    ("Standard_HX176rs", 0, 1, 400, True),
]

PICKED_BY_MISTAKE = [
    "Standard_NC24s_v3",
    "Standard_ND96is_H100_v5",
    "Standard_ND96is_H200_v5",
    "Standard_NC24ads_A100_v4",
    "Standard_NC48ads_A100_v4",
    "Standard_NC96ads_A100_v4",
    "Standard_NC40ads_H100_v5",
    "Standard_NC80adis_H100_v5",
    "Standard_NC128ds_RTXPRO6000BSE_v6",
    "Standard_NC16as_T4_v3",
    "Standard_NV36ads_A10_v5",
    "Standard_NV12s_v3",
    "Standard_NV32as_v4",
    "Standard_ND24s",
    "Standard_NC24",
]

FIT = [
    "Standard_ND40rs_v2",
    "Standard_ND96asr_v4",
    "Standard_ND96amsr_A100_v4",
    "Standard_ND96isr_H100_v5",
    "Standard_ND96isr_H200_v5",
    "Standard_ND96isr_MI300X_v5",
    "Standard_ND128isr_NDR_GB200_v6",
    "Standard_ND128isr_GB300_v6",
    "Standard_HC44rs",
    "Standard_HB120rs_v2",
    "Standard_HB120rs_v3",
    "Standard_HB176rs_v4",
    "Standard_HX176rs",
]


@pytest.mark.parametrize(("name", "gpus", "hcas", "gbps", "sriov"), INFINIBAND)
def test_knows_every_infiniband_size(name: str, gpus: int, hcas: int, gbps: int, sriov: bool) -> None:
    size = lookup(name)
    assert (size.name, size.gpus, size.hcas, size.hca_gbps, size.sriov) == (name, gpus, hcas, gbps, sriov)


def test_refuses_every_other_size_of_the_catalogue() -> None:
    assert [size.name for size in catalogue() if refusal(size, TODAY) is None] == FIT


@pytest.mark.parametrize("name", PICKED_BY_MISTAKE)
def test_says_of_sizes_without_infiniband_that_they_have_none(name: str) -> None:
    refused = refusal(lookup(name), TODAY)
    assert refused is not None
    assert "has no InfiniBand" in refused.reason


@pytest.mark.parametrize("size", [s for s in catalogue() if refusal(s, TODAY)], ids=lambda size: size.name)
def test_offers_a_size_that_is_itself_fit(size: Size) -> None:
    refused = refusal(size, TODAY)
    assert refused is not None
    assert refusal(lookup(refused.instead), TODAY) is None


@pytest.mark.parametrize(
    ("name", "reason", "waivable"),
    [
        ("Standard_NC24r", "SR-IOV", False),
        ("Standard_NC24rs_v3", "is retired since 2025-09-30", False),
        ("Standard_NC24s_v3", "has no InfiniBand and is retired", False),
        ("Standard_ND96is_H100_v5", "has no InfiniBand", True),
        ("Standard_NC16as_T4_v3", "no known number of slots", False),
    ],
)
def test_gives_the_reason_and_whether_it_can_be_waived(name: str, reason: str, waivable: bool) -> None:
    refused = refusal(lookup(name), TODAY)
    assert refused is not None
    assert reason in refused.reason
    assert refused.waivable is waivable


def test_a_size_is_fit_until_the_day_it_retires() -> None:
    size = lookup("Standard_NC24rs_v3")
    assert refusal(size, date(2025, 9, 29)) is None
    assert refusal(size, date(2025, 9, 30)) is not None


@pytest.mark.parametrize("name", ["standard_nd40rs_v2", "STANDARD_ND40RS_V2"])
def test_reads_names_in_any_case_and_writes_them_azures_way(name: str) -> None:
    assert lookup(name).name == "Standard_ND40rs_v2"


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("Standard_ND40rs_v3", "Standard_ND40rs_v2"),
        ("ND40rs_v2", "Standard_ND40rs_v2"),
        ("Standard_ND96isr_H100", "Standard_ND96isr_H100_v5"),
        ("Standard_D4s_v5", "Standard_NC24s_v3"),
        ("quantum", "use one of Standard_NC24rs_v3, Standard_ND40rs_v2"),
        ("Standard_NC*as_T4_v3", "did you mean"),
    ],
)
def test_offers_the_nearest_names_for_an_unknown_one(typed: str, meant: str) -> None:
    with pytest.raises(InputError) as refused:
        lookup(typed)
    assert refused.value.key == "ranklift:vmSize"
    assert meant in refused.value.remedy


@pytest.mark.parametrize("name", FIT)
def test_a_fit_size_has_slots(name: str) -> None:
    size = lookup(name)
    assert size.slots == (size.gpus or size.vcpus)
    assert size.slots


def test_every_figure_has_its_source() -> None:
    own = {"name", "image", "instead", "note", "sources"}
    for size in catalogue():
        blank = Size(name=size.name, rdma=False)
        figures = {one.name for one in fields(Size) if getattr(size, one.name) != getattr(blank, one.name)}
        assert figures - own <= set(size.sources), size.name
        assert all(size.sources.values())


def test_names_are_unique() -> None:
    names = [size.name.lower() for size in catalogue()]
    assert len(names) == len(set(names))


def test_only_the_v100_boots_the_v100_image() -> None:
    assert {size.gpu for size in catalogue() if size.image == "ubuntu-v100"} == {"V100"}
    assert all(size.image == "ubuntu-v100" for size in catalogue() if size.gpu == "V100")


def test_no_default_image_claims_to_run_on_arm() -> None:
    assert all(size.image is None for size in catalogue() if size.cpu_arch == "Arm64")
