"""The security rule of the nodes' metrics."""

from infra.cluster.network import security_rules
from infra.config.schema import parse

PUBLIC = {
    "vmSize": "Standard_ND40rs_v2",
    "nodeCount": "4",
    "location": "southcentralus",
    "sshFrom": "203.0.113.7",
}


def test_in_an_existing_network_the_metrics_are_the_nodes_subnets_alone() -> None:
    given = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/hub"
    network = {"ranklift:vnetId": given, "ranklift:subnetPrefix": "10.9.0.0/24"}
    settings = {f"ranklift:{key}": value for key, value in PUBLIC.items()} | {"ranklift:metricsPort": "9500"}
    assert "allow-metrics" in [rule.name for rule in security_rules(parse(settings))]
    assert "allow-metrics" not in [rule.name for rule in security_rules(parse(settings | network))]
