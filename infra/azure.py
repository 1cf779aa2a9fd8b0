"""Clients of Azure's management API, or of the rehearsal's.

The Azure SDKs take half a second to import, so they are imported when a client is asked for.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from launch.errors import InputError

if TYPE_CHECKING:
    from azure.mgmt.compute import ComputeManagementClient
    from azure.mgmt.network import NetworkManagementClient

__all__ = ["ENDPOINT", "REMOVABLE", "Clients", "clients", "endpoint", "remove"]

ENDPOINT = "RANKLIFT_ARM_ENDPOINT"
"""Environment variable with the address of a rehearsal's ARM endpoint."""

REMOVABLE: Mapping[str, tuple[str, str, tuple[str, ...]]] = {
    "azure-native:compute:VirtualMachineScaleSet": (
        "compute",
        "virtual_machine_scale_sets",
        ("vmScaleSetName",),
    ),
    "azure-native:network:LoadBalancer": ("network", "load_balancers", ("loadBalancerName",)),
    "azure-native:network:NatGateway": ("network", "nat_gateways", ("natGatewayName",)),
    "azure-native:network:NetworkSecurityGroup": (
        "network",
        "network_security_groups",
        ("networkSecurityGroupName",),
    ),
    "azure-native:network:PublicIPAddress": ("network", "public_ip_addresses", ("publicIpAddressName",)),
    "azure-native:network:Subnet": ("network", "subnets", ("virtualNetworkName", "subnetName")),
    "azure-native:network:VirtualNetwork": ("network", "virtual_networks", ("virtualNetworkName",)),
}
"""What :func:`remove` can: Pulumi's type to client, group of operations and the inputs that name one."""


@dataclass(frozen=True, slots=True)
class Clients:
    """What the commands ask Azure with."""

    compute: ComputeManagementClient
    network: NetworkManagementClient


def endpoint(environment: Mapping[str, str]) -> str | None:
    """The rehearsal's ARM endpoint, or ``None`` when the commands are to talk to Azure.

    Requests to it carry no credential, and what it answers is believed: only this machine may be asked.

    >>> endpoint({"RANKLIFT_ARM_ENDPOINT": "http://127.0.0.1:8443"})
    'http://127.0.0.1:8443'

    Raises :class:`~launch.errors.InputError` for any other address than plain http on loopback.
    """
    url = environment.get(ENDPOINT)
    if not url:
        return None
    try:
        parts = urlsplit(url)
        host, _port = parts.hostname or "", parts.port  # a port that is none raises ValueError
        loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = False
    if not loopback or parts.scheme != "http" or parts.username is not None:
        raise InputError(
            ENDPOINT,
            url,
            "is no plain http address of this machine",
            "unset it, or take what fab rehearsal.env says",
        )
    return url.rstrip("/")


def clients(subscription_id: str, environment: Mapping[str, str] | None = None) -> Clients:
    """Clients for one subscription: of the rehearsal when ``RANKLIFT_ARM_ENDPOINT`` is set, else of Azure.

    Azure's are signed in by ``azure-identity``'s default chain: environment, managed identity, ``az login``.
    """
    from azure.mgmt.compute import ComputeManagementClient
    from azure.mgmt.network import NetworkManagementClient

    url = endpoint(os.environ if environment is None else environment)
    credential, options = _unsigned(url) if url else _signed()
    return Clients(
        compute=ComputeManagementClient(credential, subscription_id, **options),
        network=NetworkManagementClient(credential, subscription_id, **options),
    )


def remove(found: Clients, kind: str, inputs: Mapping[str, Any]) -> None:
    """Removes the resource of one of the :data:`REMOVABLE` kinds that Pulumi's ``inputs`` name.

    Returns when Azure has done it, or has no such thing. Raises ``azure.core.exceptions.AzureError``.
    """
    from azure.core.exceptions import ResourceNotFoundError

    client, operations, names = REMOVABLE[kind]
    path = [inputs[name] for name in ("resourceGroupName", *names)]
    try:
        getattr(getattr(found, client), operations).begin_delete(*path).result()
    except ResourceNotFoundError:
        return  # some kinds answer so, others as if it had been there


def _signed() -> tuple[Any, dict[str, Any]]:
    from azure.identity import DefaultAzureCredential

    return DefaultAzureCredential(), {}


def _unsigned(url: str) -> tuple[Any, dict[str, Any]]:
    from azure.core.credentials import AccessToken
    from azure.core.pipeline.policies import SansIOHTTPPolicy

    class Nobody:
        """The SDKs insist on a credential; with a policy of our own nobody asks it for a token."""

        def get_token(self, *scopes: str, **_options: Any) -> AccessToken:
            raise AssertionError(f"a token for {scopes} was asked for in a rehearsal")

    # A rehearsal that refuses the connection has ended: no retry brings it back.
    return Nobody(), {"base_url": url, "authentication_policy": SansIOHTTPPolicy(), "retry_connect": 0}
