"""What may stand in a stack's configuration."""

from datetime import date
from typing import Any

import pytest

from images.os_images import GalleryImage, default_image
from infra.config.cluster_config import ClusterConfig
from infra.config.schema import ConfigError, parse
from launch.errors import InputError

TODAY = date(2026, 9, 1)
GOOD = {
    "vmSize": "Standard_ND40rs_v2",
    "nodeCount": "4",
    "location": "southcentralus",
    "sshFrom": "203.0.113.7/32",
}


def read(**changed: Any) -> ClusterConfig:
    """The configuration of GOOD with changes; ``None`` takes a key away."""
    settings = {key: value for key, value in (GOOD | changed).items() if value is not None}
    return parse({f"ranklift:{key}": value for key, value in settings.items()}, today=TODAY)


def refused(**changed: Any) -> InputError:
    with pytest.raises(InputError) as error:
        read(**changed)
    assert not isinstance(error.value, ConfigError), error.value
    return error.value


def test_four_settings_are_enough() -> None:
    config = read()
    assert (config.size.name, config.node_count, config.slots) == ("Standard_ND40rs_v2", 4, 8)
    assert config.image == default_image("ubuntu-v100")
    assert (config.vnet_prefix, config.subnet_prefix) == ("10.0.0.0/16", "10.0.0.0/20")
    assert (config.access, config.spot, config.tags) == ("public", False, {})
    assert (config.admin_user, config.computer_name_prefix) == ("azureuser", "node")


def test_settings_of_other_programs_are_left_alone() -> None:
    settings = {f"ranklift:{key}": value for key, value in GOOD.items()}
    assert (
        parse({**settings, "azure-native:location": "westus", "other:nodeCount": "0"}, today=TODAY) == read()
    )


def test_another_cloud_is_refused_with_everything_else_that_is_wrong() -> None:
    settings = {f"ranklift:{key}": value for key, value in GOOD.items()} | {"ranklift:nodeCount": "0"}
    with pytest.raises(ConfigError) as caught:
        parse({**settings, "azure-native:environment": "china"}, today=TODAY)
    assert [error.key for error in caught.value.errors] == ["azure-native:environment", "ranklift:nodeCount"]
    assert "only the public one is supported" in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value", "problem", "remedy"),
    [
        ("vmSize", None, "is not set", "Standard_ND40rs_v2"),
        ("vmSize", "", "is not set", "Standard_ND40rs_v2"),
        ("vmSize", "Standard_ND40_v2", "not a known size", "Standard_ND40rs_v2"),
        ("vmSize", "Standard_NC24r", "SR-IOV", "Standard_ND40rs_v2"),
        ("vmSize", "Standard_ND96is_H100_v5", "no InfiniBand", "ranklift:allowWithoutInfiniBand"),
        ("vmSize", "Standard_NC24rs_v3", "retired since 2025-09-30", "Standard_ND40rs_v2"),
        ("nodeCount", None, "is not set", "number of nodes"),
        ("nodeCount", "0", "at least 1", "number of nodes"),
        ("nodeCount", "-3", "at least 1", "number of nodes"),
        ("nodeCount", "2.5", "not a whole number", "number of nodes"),
        ("nodeCount", "four", "not a whole number", "number of nodes"),
        ("nodeCount", "true", "not a whole number", "number of nodes"),
        ("nodeCount", True, "not a whole number", "number of nodes"),
        ("nodeCount", "101", "more than the 100", "ranklift:largeScaleSet"),
        ("nodeCount", "301", "more than the 300", "300 or less"),
        ("location", None, "is not set", "southcentralus"),
        ("location", "us-east-1", "not an Azure region", "az account list-locations"),
        ("location", "9west", "not an Azure region", "az account list-locations"),
        ("sshFrom", None, "is not set", "ranklift:access to private"),
        ("sshFrom", "0.0.0.0/0", "to the world", "203.0.113.7/32"),
        ("sshFrom", "::/0", "to the world", "203.0.113.7/32"),
        ("sshFrom", "8.0.0.0/7", "to the world", "203.0.113.7/32"),
        ("sshFrom", "203.0.113.7/0", "to the world", "203.0.113.7/32"),
        ("sshFrom", "203.0.113.7, 0.0.0.0/1", "to the world", "203.0.113.7/32"),
        ("sshFrom", "2001:db8::/64", "is IPv6", "203.0.113.7/32"),
        ("sshFrom", "203.0.113.7/24", "bits set", "203.0.113.0/24"),
        ("sshFrom", "203.0.113.300", "not a network", "203.0.113.7/32"),
        ("sshFrom", "*", "not a network", "203.0.113.7/32"),
        ("sshFrom", "Internet", "not a network", "203.0.113.7/32"),
        ("sshFrom", ",", "no network", "203.0.113.7/32"),
        ("sshFrom", "[1, 2]", "not a list of strings", "a, b"),
        ("access", "vpn", "neither public nor private", "public or private"),
        ("spot", "maybe", "neither true nor false", "true or false"),
        ("image", "ubuntu", "neither", "microsoft-dsvm:ubuntu-hpc:2204"),
        ("image", "microsoft-dsvm:ubuntu-hpc:2204:latest", "latest moves", "pin a version"),
        ("image", "microsoft-dsvm:ubuntu-hpc:2204:22.04.1", "a V100 needs nvidia-proprietary", "2204-v100"),
        ("vnetPrefix", "172.16.0.0/16", "overlaps 172.16.0.0/16", "10.0.0.0/16"),
        ("vnetPrefix", "172.16.200.0/24", "overlaps 172.16.0.0/16", "10.0.0.0/16"),
        ("vnetPrefix", "172.16.0.0/12", "overlaps 172.16.0.0/16", "10.0.0.0/16"),
        ("vnetPrefix", "0.0.0.0/0", "overlaps", "10.0.0.0/16"),
        ("vnetPrefix", "8.8.8.0/24", "not a private range", "10.0.0.0/8"),
        ("vnetPrefix", "127.0.0.0/8", "not a private range", "10.0.0.0/8"),
        ("vnetPrefix", "169.254.0.0/16", "not a private range", "10.0.0.0/8"),
        ("vnetPrefix", "fd00::/64", "is IPv6", "IPv4"),
        ("vnetPrefix", "10.0.0.0/30", "not between", "10.0.0.0/16"),
        ("vnetPrefix", "10.0.0.0/29", "has 3 addresses for nodes", "a /28 or a larger"),
        ("vnetPrefix", "10.0.0.1/16", "bits set", "10.0.0.0/16"),
        ("vnetPrefix", "ten", "not a network", "10.0.0.0/16"),
        ("tags", "team", "not a mapping", "{team: vision}"),
        ("tags", "[1]", "not a mapping", "{team: vision}"),
        ("tags", {f"t{n}": "" for n in range(50)}, "has 50 tags", "keep 41"),
        ("adminUser", "root", "refused by Azure", "azureuser"),
        ("adminUser", "Jane Doe", "not a Linux user name", "a-z"),
        ("computerNamePrefix", "Node_", "not a computer name prefix", "lower-case"),
        ("computerNamePrefix", "node-", "not a computer name prefix", "lower-case"),
        ("computerNamePrefix", "n" * 59, "not a computer name prefix", "58"),
    ],
)
def test_a_wrong_setting_is_refused_with_key_value_and_remedy(
    key: str, value: Any, problem: str, remedy: str
) -> None:
    error = refused(**{key: value})
    assert error.key == f"ranklift:{key}"
    assert str(error).startswith(f"ranklift:{key}")
    assert problem in error.problem
    assert remedy in error.remedy


@pytest.mark.parametrize(
    ("tags", "key", "problem"),
    [
        ('{"a/b": "x"}', "ranklift:tags.a/b", "not a tag name"),
        ({"": "x"}, "ranklift:tags.", "not a tag name"),
        ({"n" * 513: "x"}, "ranklift:tags." + "n" * 513, "not a tag name"),
        ({"team": "x" * 257}, "ranklift:tags.team", "257 characters"),
        ({"team": ["x"]}, "ranklift:tags.team", "not a string"),
        ({"Ranklift-Stack": "mine"}, "ranklift:tags.Ranklift-Stack", "is already in use"),
        ({"team": "a", "Team": "b"}, "ranklift:tags.Team", "is already in use"),
    ],
)
def test_tags_keep_to_azures_limits(tags: object, key: str, problem: str) -> None:
    error = refused(tags=tags)
    assert (error.key, problem in error.problem) == (key, True)


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("vmsize", "vmSize"),
        ("node_count", "nodeCount"),
        ("nodesCount", "nodeCount"),
        ("sshfrom", "sshFrom"),
        ("tag", "tags"),
    ],
)
def test_a_misspelt_key_is_refused_with_the_one_meant(key: str, meant: str) -> None:
    error = refused(**{key: "1"})
    assert error.remedy == f"did you mean ranklift:{meant}?"


def test_an_unknown_key_is_refused_with_all_that_there_are() -> None:
    assert "adminUser, allowWithoutInfiniBand" in refused(zzz="1").remedy


@pytest.mark.parametrize("key", ["partial", "image", "vmSize"])
def test_an_encrypted_setting_is_refused_without_its_ciphertext(key: str) -> None:
    assert str(refused(**{key: {"secure": "v1:CIPHER"}})) == (
        f"ranklift:{key}: is encrypted; `fab config set {key} VALUE`, without --secret: settings "
        "hold no secrets"
    )


def test_an_encrypted_part_of_a_setting_is_refused_and_a_tag_of_that_name_is_not() -> None:
    refusal = refused(tags={"team": {"secure": "v1:CIPHER"}})
    assert (refusal.key, refusal.problem, refusal.value) == ("ranklift:tags", "is encrypted", None)
    tags = {"secure": "true", "team": "a"}
    assert read(tags=tags).tags == tags


def test_all_errors_come_at_once() -> None:
    with pytest.raises(ConfigError) as error:
        read(vmSize="nonsense", nodeCount="0", sshFrom="0.0.0.0/0", colour="red")
    keys = {each.key for each in error.value.errors}
    assert keys == {f"ranklift:{key}" for key in ("vmSize", "nodeCount", "sshFrom", "colour")}
    assert len(str(error.value).splitlines()) == 4


def test_a_missing_size_does_not_hide_a_wrong_image() -> None:
    with pytest.raises(ConfigError) as error:
        read(vmSize=None, image="ubuntu")
    assert [each.key for each in error.value.errors] == ["ranklift:vmSize", "ranklift:image"]


def test_a_large_scale_set_is_asked_for_by_name() -> None:
    assert read(nodeCount="300", largeScaleSet="true").node_count == 300
    assert "more than the 300" in refused(nodeCount="301", largeScaleSet="true").problem
    assert read(nodeCount=100).node_count == 100


def test_a_size_without_infiniband_is_taken_when_that_is_said() -> None:
    config = read(vmSize="Standard_NC96ads_A100_v4", allowWithoutInfiniBand="true")
    assert (config.slots, config.image) == (4, default_image("ubuntu"))


def test_a_retired_size_is_refused_whatever_is_said() -> None:
    error = refused(vmSize="Standard_NC24s_v3", allowWithoutInfiniBand="true")
    assert "allowWithoutInfiniBand" not in error.remedy


def test_a_private_cluster_needs_no_operators_network() -> None:
    assert read(access="private", sshFrom=None).ssh_from == ()
    assert read(access="private", sshFrom="10.9.0.0/24").ssh_from == ("10.9.0.0/24",)
    assert "to the world" in refused(access="private", sshFrom="0.0.0.0/0").problem


@pytest.mark.parametrize("size", ["Standard_ND128isr_NDR_GB200_v6", "Standard_ND128isr_GB300_v6"])
def test_an_arm_size_needs_an_image(size: str) -> None:
    assert refused(vmSize=size).key == "ranklift:image"
    assert read(vmSize=size, image="microsoft-dsvm:ubuntu-hpc:2404-gb:24.04.1").image


def test_amd_gpus_get_amds_image() -> None:
    assert read(vmSize="Standard_ND96isr_MI300X_v5").image == default_image("ubuntu-rocm")


def test_an_image_too_old_for_nodes_is_refused_by_name_with_what_to_take() -> None:
    error = refused(image="almalinux:almalinux-hpc:8_10-hpc-v100-gen2:8.10.2025061201")
    assert (error.key, error.value) == (
        "ranklift:image",
        "almalinux:almalinux-hpc:8_10-hpc-v100-gen2:8.10.2025061201",
    )
    assert "Python 3.8 and OpenSSH 8.2" in error.problem
    assert error.remedy == "use release 9 or newer, or remove image for the default of the size"


def test_an_image_of_ones_own_replaces_the_default() -> None:
    own = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/galleries/a/images/b/versions/1.0.0"
    assert read(image=own).image == GalleryImage(own)


@pytest.mark.parametrize(
    "given",
    [
        "203.0.113.7, 198.51.100.0/24",
        '["203.0.113.7", "198.51.100.0/24"]',
        ["203.0.113.7", "198.51.100.0/24"],
    ],
)
def test_several_networks_may_connect(given: object) -> None:
    assert read(sshFrom=given).ssh_from == ("203.0.113.7/32", "198.51.100.0/24")


def test_tags_are_read_as_pulumi_hands_them_over() -> None:
    assert read(tags='{"team": "vision", "year": 2026}').tags == {"team": "vision", "year": "2026"}


@pytest.mark.parametrize(
    ("prefix", "subnet"),
    [
        ("10.8.0.0/16", "10.8.0.0/20"),
        ("192.168.4.0/24", "192.168.4.0/24"),
        ("172.17.0.0/16", "172.17.0.0/20"),
    ],
)
def test_the_nodes_get_the_first_part_of_the_network(prefix: str, subnet: str) -> None:
    assert read(vnetPrefix=prefix).subnet_prefix == subnet


def test_a_region_may_be_written_as_the_portal_shows_it() -> None:
    assert read(location="West Europe").location == "westeurope"
