"""Nodes that boot plain Ubuntu make themselves at their first boot, where there is a recipe for them."""

import pytest

from images.cloud_init import NodeSetup, cloud_config
from infra.config.bare_image import boot_steps, is_plain
from tests.infra.config.test_schema import read, refused

JAMMY = "Canonical:0001-com-ubuntu-server-jammy:22_04-lts-gen2:22.04.202510230"
NOBLE = "Canonical:ubuntu-24_04-lts:server:24.04.202609040"


@pytest.mark.parametrize(
    ("image", "size"), [(JAMMY, "Standard_ND40rs_v2"), (NOBLE, "Standard_ND96isr_H100_v5")]
)
def test_a_plain_image_brings_its_recipe(image: str, size: str) -> None:
    config = read(image=image, vmSize=size)
    steps = boot_steps(config)
    assert [step.name for step in steps][:3] == ["10-prepare", "20-kernel", "30-ofed"]
    setup = NodeSetup(
        user=config.admin_user,
        computer_name_prefix=config.computer_name_prefix,
        subnet_prefix=config.subnet_prefix,
        host_public_key="ssh-ed25519 AAAA",
        user_public_key="ssh-ed25519 AAAAuser",
        host_private_key="PRIVATE",
        cluster_private_key="PRIVATE",
        steps=steps,
    )
    assert "recipe" in cloud_config(setup), "and Azure takes a text of that length"


def test_an_image_with_drivers_is_left_as_it_is() -> None:
    for config in (read(), read(vmSize="Standard_ND96isr_H100_v5")):
        assert not is_plain(config.image)
        assert boot_steps(config) == ()


@pytest.mark.parametrize(
    ("settings", "problem", "remedy"),
    [
        ({"image": "Canonical:ubuntu-20_04-lts:server:20.04.1"}, "without a recipe", "22.04 or 24.04"),
        ({"image": NOBLE}, "no source gives a file", "use Ubuntu 22.04"),
        ({"image": NOBLE, "vmSize": "Standard_ND96isr_MI300X_v5"}, "need ROCm", "2204-rocm"),
    ],
)
def test_a_node_that_would_be_without_drivers_is_refused(
    settings: dict[str, str], problem: str, remedy: str
) -> None:
    error = refused(**settings)
    assert error.key == "ranklift:image"
    assert problem in error.problem
    assert remedy in error.remedy
