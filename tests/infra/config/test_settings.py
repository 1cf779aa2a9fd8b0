"""The settings that a plain cluster does without: each alone, and what does not go together."""

from typing import Any

import pytest

from infra.config.limits import spot_price
from infra.config.schema import ConfigError
from infra.naming import OWN_TAGS, STOPPED_TAG, own_uuid, storage_name
from tests.infra.config.test_schema import read, refused

GROUP = "/subscriptions/s/resourceGroups/g/providers"
VNET = f"{GROUP}/Microsoft.Network/virtualNetworks/v"
OPERATOR = "00000000-0000-0000-0000-00000000000b"
SUBNET = f"{VNET}/subnets/n"
ACCOUNT = f"{GROUP}/Microsoft.Storage/storageAccounts/a"
GIVEN = {"vnetId": VNET, "subnetPrefix": "10.1.0.0/24"}
OWN_SUBNET = {"subnetId": SUBNET, "subnetPrefix": "10.1.0.0/24"}


def test_without_them_nothing_is_asked_for() -> None:
    config = read()
    assert (config.storage, config.shared, config.retain_data, config.partial) == (
        "none",
        None,
        False,
        "remove",
    )
    absent = (
        config.max_price,
        config.ttl_hours,
        config.idle_stop_minutes,
        config.storage_account_id,
        config.vnet_id,
        config.subnet_id,
        config.zone,
    )
    assert set(absent) == {None}
    assert not config.ephemeral_os_disk
    assert config.os_disk_gib == 256
    assert not config.needs_identity


def test_pulling_from_a_registry_takes_an_identity() -> None:
    registry = "/subscriptions/s/resourceGroups/g/providers/Microsoft.ContainerRegistry/registries/corp"
    config = read(containerRegistry=registry)
    assert config.container_registry == registry
    assert config.needs_identity


@pytest.mark.parametrize(
    ("key", "value", "problem", "remedy"),
    [
        ("maxPrice", "0", "not above 0", "like 98.50"),
        ("maxPrice", "-1", "not above 0", "like 98.50"),
        ("maxPrice", "cheap", "not a price", "like 98.50"),
        ("maxPrice", "nan", "not a price", "like 98.50"),
        ("maxPrice", "inf", "not a price", "like 98.50"),
        ("maxPrice", True, "not a price", "like 98.50"),
        ("maxPrice", "٩٨", "not a price", "like 98.50"),
        ("maxPrice", "1_000", "not a price", "like 98.50"),
        ("maxPrice", "1e999", "not a price", "like 98.50"),
        ("nodeCount", "9" * 5000, "more than the 300 nodes", "set it to 300 or less"),
        ("nodeCount", "٣", "not a whole number", "set it"),
        ("osDiskGib", "63", "less than the 64 GiB of the image", "64 or more GiB, like 256"),
        ("osDiskGib", "4096", "more than Azure's largest OS disk, 4095 GiB", "64 or more GiB, like 256"),
        ("osDiskGib", "9" * 5000, "more than Azure's largest", "64 or more"),
        ("osDiskGib", "٢٥٦", "not a whole number", "64 or more"),
        ("osDiskGib", "256.5", "not a whole number", "64 or more"),
        ("idleStopMinutes", "9" * 5000, "more than a year", "5 or more"),
        ("idleStopMinutes", "525601", "more than a year", "5 or more"),
        ("idleStopMinutes", "٣٠", "not a whole number", "5 or more"),
        ("maxPrice", "1e7", "more than 1000000 USD per hour", "like 98.50"),
        ("ttlHours", "0", "not above 0", "like 48"),
        ("ttlHours", "1e-9", "is below 0.1", "like 48"),
        ("ttlHours", "0.09", "is below 0.1", "like 48"),
        ("ttlHours", "1e300", "is more than ten years", "like 48"),
        ("ttlHours", "two days", "not a number of hours", "like 48"),
        ("idleStopMinutes", "4", "too short", "5 or more"),
        ("monitor", "true", "needs ranklift:metricsPort", "set ranklift:metricsPort as well"),
        ("monitor", "yes please", "neither true nor false", "true or false"),
        ("metricsPort", "80", "not a port that an ordinary user may serve", "1024 to 65535"),
        ("metricsPort", "65536", "not a port that an ordinary user may serve", "1024 to 65535"),
        ("metricsPort", "http", "not a whole number", "1024 to 65535"),
        ("idleStopMinutes", "-30", "too short", "5 or more"),
        ("idleStopMinutes", "7.5", "not a whole number", "5 or more"),
        ("idleStopMinutes", True, "not a whole number", "5 or more"),
        ("storage", "blob", "none of none, serviceEndpoint, privateEndpoint", "or privateEndpoint"),
        ("nfs", "netapp", "none of none, files, vm", "or vm"),
        ("partial", "some", "neither keep nor remove", "keep or remove"),
        ("zone", "0", "not an availability zone", "1, 2 or 3"),
        ("zone", "1,2", "not an availability zone", "1, 2 or 3"),
        ("retainData", "yes", "neither true nor false", "true or false"),
        ("ephemeralOsDisk", "1", "neither true nor false", "true or false"),
        ("vnetId", "my-network", "not the id of a Microsoft.Network/virtualNetworks", "virtualNetworks/…"),
        ("vnetId", SUBNET, "not the id of a Microsoft.Network/virtualNetworks", "virtualNetworks/…"),
        ("subnetId", VNET, "not the id of a Microsoft.Network/virtualNetworks/subnets", "subnets/…"),
        ("storageAccountId", VNET, "not the id of a Microsoft.Storage/storageAccounts", "storageAccounts/…"),
        (
            "containerRegistry",
            "corp",
            "not the id of a Microsoft.ContainerRegistry/registries",
            "registries/…",
        ),
        ("dataOperators", "me@example.com", "is not an object id", "az ad signed-in-user show"),
        ("datastores", "x", "is not a mapping of names to containers", "write big: https://"),
        ("dataDiskGib", "0", "is not from 1 to 1000000", "from 1 on"),
        ("dataDownloads", "many", "is not a whole number", "from 1 on"),
        ("dataRateMBps", "-5", "is not from 1 to 1000000", "from 1 on"),
    ],
)
def test_a_wrong_one_is_refused_with_key_value_and_remedy(
    key: str, value: Any, problem: str, remedy: str
) -> None:
    error = refused(**{key: value})
    assert error.key == f"ranklift:{key}"
    assert str(value)[:40] in str(error)
    assert problem in error.problem
    assert remedy in error.remedy


@pytest.mark.parametrize("key", ["nodeCount", "idleStopMinutes", "nfsSizeGib", "osDiskGib"])
@pytest.mark.parametrize("written", ["٣٠٠", "３００"])  # noqa: RUF001 - other digits than ours are the matter
def test_a_whole_number_is_written_in_the_digits_that_everybody_reads(key: str, written: str) -> None:
    error = refused(**{"nfs": "files", key: written})
    assert (error.key, error.problem) == (f"ranklift:{key}", "is not a whole number")


@pytest.mark.parametrize("key", ["maxPrice", "ttlHours", "idleStopMinutes"])
def test_a_limit_that_was_left_empty_is_no_absent_one(key: str) -> None:
    error = refused(**{key: ""})
    assert (error.key, error.problem) == (f"ranklift:{key}", "is not set")


@pytest.mark.parametrize(
    ("settings", "key", "problem", "remedy"),
    [
        ({"storageAccountId": ACCOUNT}, "storageAccountId", "storage is none", "set ranklift:storage"),
        ({"nfsSizeGib": "200"}, "nfsSizeGib", "nfs is none", "set ranklift:nfs"),
        ({"dataOperators": OPERATOR}, "dataOperators", "that the stack makes", "set ranklift:storage"),
        (
            {"dataOperators": OPERATOR, "storage": "serviceEndpoint", "storageAccountId": ACCOUNT},
            "dataOperators",
            "that the stack makes",
            "assign",
        ),
        (
            {"datastores": {"big": "https://acme.blob.core.windows.net/sets?sig=x"}},
            "datastores.big",
            "holds a SAS",
            "leave the query out",
        ),
        (
            {"datastores": {"big": "wasbs://x"}},
            "datastores.big",
            "does not name a container",
            "write wasbs://",
        ),
        ({"datastores": {"a b": "x"}}, "datastores.a b", "is not a datastore's name", "use letters"),
        ({"datastores": {"big": 3}}, "datastores.big", "is not the address", "write big:"),
        ({"nfs": "files", "nfsSizeGib": "99"}, "nfsSizeGib", "not a size", "100 to 102400"),
        ({"nfs": "files", "nfsSizeGib": "1 TB"}, "nfsSizeGib", "not a whole number", "100 to 102400"),
        ({"retainData": "true"}, "retainData", "nothing is stored", "set ranklift:storage or ranklift:nfs"),
        (
            {"retainData": "true", "storage": "serviceEndpoint", "storageAccountId": ACCOUNT},
            "retainData",
            "never deleted",
            "remove it",
        ),
        (GIVEN | {"subnetId": SUBNET}, "vnetId", "beside ranklift:subnetId", "remove ranklift:vnetId"),
        ({"vnetId": VNET}, "subnetPrefix", "not set", "a range in it that is free"),
        ({"subnetId": SUBNET}, "subnetPrefix", "not set", "that subnet's range"),
        ({"subnetPrefix": "10.1.0.0/24"}, "subnetPrefix", "neither ranklift:vnetId", "ranklift:vnetPrefix"),
        (GIVEN | {"vnetPrefix": "10.0.0.0/16"}, "vnetPrefix", "one that exists", "remove it"),
        (GIVEN | {"subnetPrefix": "172.16.4.0/24"}, "subnetPrefix", "overlaps 172.16.0.0/16", "10.0.0.0"),
        (GIVEN | {"subnetPrefix": "10.1.0.0/29"}, "subnetPrefix", "3 addresses for nodes", "a /28"),
        (
            OWN_SUBNET
            | {"subnetPrefix": "10.1.0.0/28", "nodeCount": "10", "nfs": "vm"}
            | {"storage": "privateEndpoint"},
            "subnetPrefix",
            "need 12",
            "larger range",
        ),
        (
            {"ephemeralOsDisk": "true", "vmSize": "Standard_HB120rs_v3"},
            "ephemeralOsDisk",
            "none is known",
            "remove it",
        ),
        (
            {"ephemeralOsDisk": "true", "vmSize": "Standard_ND96isr_H100_v5", "osDiskGib": "512"},
            "osDiskGib",
            "for a managed disk",
            "take one of them out",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(
    settings: dict[str, str], key: str, problem: str, remedy: str
) -> None:
    error = refused(**settings)
    assert error.key == f"ranklift:{key}"
    assert problem in error.problem
    assert remedy in error.remedy


def test_mismatches_come_at_once() -> None:
    with pytest.raises(ConfigError) as error:
        read(nfsSizeGib="200", retainData="true", vnetId=VNET)
    assert {each.key for each in error.value.errors} == {
        "ranklift:nfsSizeGib",
        "ranklift:retainData",
        "ranklift:subnetPrefix",
    }


def test_a_given_networks_own_range_is_the_nodes() -> None:
    for settings in (GIVEN, OWN_SUBNET):
        assert read(**settings).subnet_prefix == "10.1.0.0/24"


@pytest.mark.parametrize(
    ("settings", "needed"),
    [
        ({"storage": "serviceEndpoint"}, True),
        ({"ttlHours": "0.5"}, True),
        ({"idleStopMinutes": 30}, True),
        ({"nfs": "files"}, False),
        ({"maxPrice": "12"}, False),
        ({"spot": "true"}, False),
    ],
)
def test_only_what_asks_azure_for_something_needs_an_identity(settings: dict[str, Any], needed: bool) -> None:
    assert read(**settings).needs_identity is needed


def test_a_spot_nodes_price_is_its_part_of_the_clusters() -> None:
    config = read(maxPrice="98.50", spot="true")
    assert spot_price(config.max_price, config.node_count) == 24.625
    assert spot_price(0.00001, 300) == 0, "rounded down: all nodes together stay below the limit"


def test_the_programs_own_tags_are_not_the_users() -> None:
    for tag in OWN_TAGS:
        assert "is already in use" in refused(tags={tag.upper(): "x"}).problem


def test_room_is_left_for_the_tag_with_which_older_nodes_say_why_they_stopped() -> None:
    assert STOPPED_TAG in OWN_TAGS


def test_storage_accounts_of_two_subscriptions_have_two_names() -> None:
    names = {
        storage_name(stack, sub, use) for stack in ("dev", "Dev") for sub in "ab" for use in ("blob", "nfs")
    }
    assert len(names) == 8
    for name in {storage_name("A_very-long.stack-name", "s"), *names}:
        assert 3 <= len(name) <= 24
        assert name.isalnum()
        assert name == name.lower()


def test_own_uuids_do_not_depend_on_the_case_of_the_subscription() -> None:
    assert own_uuid("dev", "ABC", "role") == own_uuid("dev", "abc", "role") != own_uuid("dev", "abc", "data")
