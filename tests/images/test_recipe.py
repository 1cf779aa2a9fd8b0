"""What each size is given."""

import pytest

from catalogue.sizes import catalogue
from images.recipe import Mpi, Ofed, Ubuntu, recipe_for
from launch.errors import InputError


def test_knows_every_size_that_a_cluster_is_built_of() -> None:
    wanted = {size.name for size in catalogue() if size.slots and not size.retired and not size.is_family}
    wanted -= {"Standard_NC24s_v3"}  # gone
    assert wanted - {one.name for one in catalogue() if one.drivers_known} == set()


@pytest.mark.parametrize("name", ["Standard_NC24s_v3", "Standard_NC24r", "Standard_NC*as_T4_v3"])
def test_refuses_a_size_whose_drivers_are_unknown(name: str) -> None:
    with pytest.raises(InputError, match="is not a size whose drivers are known"):
        recipe_for(name.replace("*", "16"))


def test_a_v100_gets_proprietary_modules_and_cuda_12() -> None:
    recipe = recipe_for("Standard_ND40rs_v2")
    assert (recipe.driver_package, recipe.cuda) == ("cuda-drivers", "12.9")
    assert recipe.nccl is not None
    assert recipe.nccl.endswith("+cuda12.9")
    assert "cuda12" in recipe.mpi_file.url


@pytest.mark.parametrize(
    "size", ["Standard_ND96asr_v4", "Standard_ND96isr_H100_v5", "Standard_ND96isr_H200_v5"]
)
def test_newer_gpus_get_open_modules_and_cuda_13(size: str) -> None:
    recipe = recipe_for(size)
    assert (recipe.driver_package, recipe.cuda, recipe.fabric_manager) == ("nvidia-open", "13.0", True)


def test_arm_gets_what_is_made_for_it() -> None:
    recipe = recipe_for("Standard_ND128isr_GB300_v6")
    assert recipe.ubuntu == "24.04"
    assert recipe.ofed_file is not None
    assert recipe.ofed_file.url.endswith("_arm64.deb")
    assert "aarch64" in recipe.mpi_file.url
    assert recipe.keyring is not None
    assert "/sbsa/" in recipe.keyring.url


def test_every_file_of_a_recipe_is_pinned_to_a_version() -> None:
    for one in catalogue():
        try:
            recipe = recipe_for(one.name)
        except InputError:
            continue
        for file in (recipe.ofed_file, recipe.keyring, recipe.mpi_file):
            assert file is None or (file.url.startswith("https://") and "latest" not in file.url)
            assert file is None or file.version in file.url


@pytest.mark.parametrize(
    ("size", "ubuntu", "ofed", "mpi", "key", "problem"),
    [
        ("Standard_ND96isr_MI300X_v5", None, None, None, "size", "ROCm"),
        ("Standard_NC24rs_v3", None, None, None, "size", "ConnectX-3"),
        ("Standard_A0", None, None, None, "size", "not a known size"),
        ("Standard_ND40rs_v2", "24.04", None, "hpcx", "mpi", "no source"),
        ("Standard_ND128isr_GB300_v6", "22.04", None, None, "mpi", "no source"),
        ("Standard_ND128isr_GB300_v6", None, "mlnx", None, "ofed", "no source"),
        ("Standard_NC24ads_A100_v4", None, "doca", None, "ofed", "no InfiniBand"),
        ("Standard_NC24ads_A100_v4", None, None, "hpcx", "mpi", "wants OFED"),
    ],
)
def test_what_no_source_gives_is_refused(
    size: str, ubuntu: Ubuntu | None, ofed: Ofed | None, mpi: Mpi | None, key: str, problem: str
) -> None:
    with pytest.raises(InputError, match=problem) as refused:
        recipe_for(size, ubuntu=ubuntu, ofed=ofed, mpi=mpi)
    assert refused.value.key == key
