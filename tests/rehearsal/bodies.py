"""ARM bodies of a small cluster."""

from __future__ import annotations

import base64
from typing import Any

from tests.rehearsal.doubles import BASE, Endpoint

NETWORK = "providers/Microsoft.Network"
VNET = f"{NETWORK}/virtualNetworks/net"
SUBNET_ID = f"{BASE}/{VNET}/subnets/nodes"
BALANCER = f"{NETWORK}/loadBalancers/lb"
POOL_ID = f"{BASE}/{BALANCER}/backendAddressPools/nodes"
ADDRESS = f"{NETWORK}/publicIPAddresses/ip"
SCALE_SET = "providers/Microsoft.Compute/virtualMachineScaleSets/nodes"


def vnet(**subnet: Any) -> dict[str, Any]:
    properties = {"addressPrefix": "10.0.0.0/20", "defaultOutboundAccess": False, **subnet}
    return {
        "location": "westeurope",
        "properties": {
            "addressSpace": {"addressPrefixes": ["10.0.0.0/16"]},
            "subnets": [{"name": "nodes", "properties": properties}],
        },
    }


def address() -> dict[str, Any]:
    return {
        "location": "westeurope",
        "sku": {"name": "Standard"},
        "properties": {"publicIPAllocationMethod": "Static"},
    }


def balancer(low: int = 50000, high: int = 50499) -> dict[str, Any]:
    frontend = f"{BASE}/{BALANCER}/frontendIPConfigurations/public"
    return {
        "location": "westeurope",
        "sku": {"name": "Standard"},
        "properties": {
            "frontendIPConfigurations": [
                {"name": "public", "properties": {"publicIPAddress": {"id": f"{BASE}/{ADDRESS}"}}}
            ],
            "backendAddressPools": [{"name": "nodes"}],
            "inboundNatRules": [
                {
                    "name": "ssh",
                    "properties": {
                        "frontendIPConfiguration": {"id": frontend},
                        "backendAddressPool": {"id": POOL_ID},
                        "protocol": "Tcp",
                        "frontendPortRangeStart": low,
                        "frontendPortRangeEnd": high,
                        "backendPort": 22,
                    },
                }
            ],
        },
    }


def scale_set(capacity: int = 3) -> dict[str, Any]:
    configuration = {
        "name": "ip",
        "properties": {
            "subnet": {"id": SUBNET_ID},
            "loadBalancerBackendAddressPools": [{"id": POOL_ID}],
        },
    }
    return {
        "location": "westeurope",
        "sku": {"name": "Standard_ND40rs_v2", "tier": "Standard", "capacity": capacity},
        "properties": {
            "orchestrationMode": "Uniform",
            "singlePlacementGroup": True,
            "overprovision": False,
            "upgradePolicy": {"mode": "Manual"},
            "virtualMachineProfile": {
                "osProfile": {
                    "computerNamePrefix": "node",
                    "adminUsername": "azureuser",
                    "customData": base64.b64encode(b"#cloud-config\n").decode(),
                    "linuxConfiguration": {
                        "disablePasswordAuthentication": True,
                        "ssh": {
                            "publicKeys": [
                                {
                                    "path": "/home/azureuser/.ssh/authorized_keys",
                                    "keyData": "ssh-ed25519 AAAA u",
                                }
                            ]
                        },
                    },
                },
                "networkProfile": {
                    "networkInterfaceConfigurations": [
                        {
                            "name": "eth0",
                            "properties": {
                                "primary": True,
                                "enableAcceleratedNetworking": True,
                                "ipConfigurations": [configuration],
                            },
                        }
                    ]
                },
            },
        },
    }


def build(azure: Endpoint, capacity: int = 3) -> None:
    """The whole cluster, each write waited for."""
    assert azure.ask("PUT", BASE, {"location": "westeurope"})[0] == 201
    for path, body in (
        (ADDRESS, address()),
        (VNET, vnet()),
        (BALANCER, balancer()),
        (SCALE_SET, scale_set(capacity)),
    ):
        assert azure.settle("PUT", path, body)["status"] == "Succeeded", path
