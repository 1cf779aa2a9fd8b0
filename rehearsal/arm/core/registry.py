"""Every resource type that the emulation knows, by ARM type and by Pulumi's token."""

from __future__ import annotations

from collections.abc import Mapping

from rehearsal.arm.auth.identity_types import IDENTITY
from rehearsal.arm.compute.compute_types import COMPUTE
from rehearsal.arm.core.resource_type import Kind
from rehearsal.arm.network.network_types import NETWORK
from rehearsal.arm.storage.storage_types import STORAGE

__all__ = ["GROUP", "KINDS", "Kind", "kind_of", "kind_of_token", "known_tokens"]

GROUP = Kind(
    "Microsoft.Resources/resourceGroups",
    "resources.ResourceGroup",
    "azure-native:resources:ResourceGroup",
    ("resourceGroupName",),
    patch_model="resources.ResourceGroupPatchable",
    immutable=("managedBy",),
)
_ALL = (GROUP, *NETWORK, *COMPUTE, *IDENTITY, *STORAGE)
KINDS: Mapping[str, Kind] = {k.type.lower(): k for k in _ALL}
_STANDALONE = {"subnets", "securityRules", "inboundNatRules"}
_TOKENS = {k.token: k for k in _ALL if k.token and (not k.embedded or k.collection in _STANDALONE)}


def kind_of(resource_type: str) -> Kind | None:
    """The kind of an ARM type, in any case of letters.

    >>> kind_of("microsoft.network/NATGATEWAYS").token
    'azure-native:network:NatGateway'
    """
    return KINDS.get(resource_type.lower())


def kind_of_token(token: str) -> Kind | None:
    """The kind of a Pulumi type token; None for what the emulation does not offer as a resource."""
    return _TOKENS.get(token)


def known_tokens() -> tuple[str, ...]:
    """Every Pulumi type the emulation offers, sorted."""
    return tuple(sorted(_TOKENS))
