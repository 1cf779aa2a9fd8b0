"""A given network that is not what the configuration takes it for is refused before anything is in it."""

from dataclasses import replace

import pytest

from infra.cluster.existing_network import SubnetFacts, VnetFacts, problem
from infra.config.cluster_config import ClusterConfig
from tests.infra.config.test_schema import read
from tests.infra.programs import SUBNET, VNET

TRAINING = SubnetFacts("training", ("10.40.8.0/24",), ("Microsoft.Storage",))
FACTS = VnetFacts("southcentralus", ("10.40.0.0/16", "fd00::/48"), (TRAINING,))
OWN = "ranklift-dev"


def in_vnet(prefix: str = "10.40.0.0/22", **settings: str) -> ClusterConfig:
    return read(vnetId=VNET, subnetPrefix=prefix, **settings)


def in_subnet(prefix: str = "10.40.8.0/24", **settings: str) -> ClusterConfig:
    return read(subnetId=SUBNET, subnetPrefix=prefix, **settings)


@pytest.mark.parametrize("config", [in_vnet(), in_subnet(), in_subnet(nfs="files")])
def test_a_network_that_fits_is_taken(config: ClusterConfig) -> None:
    assert problem(config, FACTS, OWN) is None
    assert problem(config, replace(FACTS, dns_servers=("10.40.0.4",)), OWN) is None


def test_the_own_subnet_is_no_neighbour() -> None:
    own = SubnetFacts(OWN, ("10.40.0.0/22",))
    assert problem(in_vnet(), replace(FACTS, subnets=(TRAINING, own)), OWN) is None
    assert problem(in_vnet(), replace(FACTS, subnets=(TRAINING, own)), "ranklift-prod") is not None


def test_the_case_of_a_name_does_not_count() -> None:
    assert problem(in_subnet(), replace(FACTS, subnets=(replace(TRAINING, name="Training"),)), OWN) is None


@pytest.mark.parametrize(
    ("config", "facts", "key", "says", "remedy"),
    [
        (in_vnet(), replace(FACTS, location="westeurope"), "vnetId", "is in westeurope", "southcentralus"),
        (in_subnet(), replace(FACTS, location=""), "subnetId", "is in no region", "southcentralus"),
        (in_vnet("10.50.0.0/22"), FACTS, "subnetPrefix", "which has 10.40.0.0/16", "free part"),
        (in_vnet("10.40.8.128/25"), FACTS, "subnetPrefix", "the subnet training has", "that is free"),
        (in_subnet("10.40.9.0/24"), FACTS, "subnetPrefix", "which is 10.40.8.0/24", "set it to that"),
        (in_subnet(), replace(FACTS, subnets=()), "subnetId", "does not exist", "subnets are: none"),
        (
            in_subnet(storage="serviceEndpoint"),
            replace(FACTS, subnets=(replace(TRAINING, services=("Microsoft.Sql",)),)),
            "subnetId",
            "no service endpoint for Microsoft.Storage",
            "ranklift:storage to privateEndpoint",
        ),
        (
            in_vnet(storage="privateEndpoint"),
            replace(FACTS, dns_servers=("10.40.0.4", "10.40.0.5")),
            "storage",
            "servers of its own: 10.40.0.4, 10.40.0.5",
            "set it to serviceEndpoint",
        ),
        (
            in_subnet(nfs="files"),
            replace(FACTS, subnets=(replace(TRAINING, services=()),)),
            "subnetId",
            "no service endpoint for Microsoft.Storage",
            "--service-endpoints Microsoft.Storage",
        ),
    ],
)
def test_one_that_does_not_is_refused(
    config: ClusterConfig, facts: VnetFacts, key: str, says: str, remedy: str
) -> None:
    error = problem(config, facts, OWN)
    assert error is not None
    assert error.key == f"ranklift:{key}"
    assert says in error.problem
    assert remedy in error.remedy


def test_a_private_endpoint_needs_no_service_endpoint() -> None:
    bare = replace(FACTS, subnets=(replace(TRAINING, services=()),))
    assert problem(in_subnet(storage="privateEndpoint", nfs="files"), bare, OWN) is None
