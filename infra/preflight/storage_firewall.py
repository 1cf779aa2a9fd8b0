"""Whether an existing storage account admits the nodes; its firewall is its owner's and is never changed.

A private endpoint passes the firewall. By a service endpoint the nodes get in only if the account's public
access is on and its rules name their subnet or allow all (learn.microsoft.com storage-network-security).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from infra.arm.rest import Rest
from infra.arm.types import api_version
from infra.config.arm_ids import split
from infra.config.cluster_config import ClusterConfig
from infra.naming import cluster_name, network_name, subnet_name
from infra.preflight.refusal import Refusal

__all__ = ["Firewall", "firewall_of", "nodes_subnet", "not_let_in"]

_API = api_version("Microsoft.Storage")
_KEY = "ranklift:storageAccountId"
_LOST = {"networksourcedeleted", "failed"}
"""States of a rule whose subnet is gone; a later subnet of that name needs a new rule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Firewall:
    """The firewall of a storage account."""

    public: bool = True
    """Whether it can be reached other than by a private endpoint."""
    open: bool = False
    """Whether it admits sources without a rule."""
    subnets: tuple[str, ...] = ()
    """Ids of the admitted subnets, in lower case."""


def firewall_of(rest: Rest, account_id: str) -> Firewall | None:
    """Return the account's firewall; ``None`` if Azure has no such account, or does not show it.

    Raises :class:`~infra.arm.errors.AzureRefused`.
    """
    account = rest.find(account_id, **{"api-version": _API})
    if account is None:
        return None
    properties: Mapping[str, Any] = account.get("properties") or {}
    rules = properties.get("networkAcls") or {}
    return Firewall(
        # Absent properties have Azure's defaults: reachable, and open.
        public=str(properties.get("publicNetworkAccess") or "Enabled").lower() == "enabled",
        open=str(rules.get("defaultAction") or "Allow").lower() == "allow",
        subnets=tuple(
            str(rule.get("id", "")).lower()
            for rule in rules.get("virtualNetworkRules") or ()
            if str(rule.get("state") or "").lower() not in _LOST
        ),
    )


def nodes_subnet(stack: str, subscription: str, config: ClusterConfig) -> str:
    """Return the id of the nodes' subnet, existing or to be made."""
    if config.subnet_id is not None:
        return config.subnet_id
    group = f"/subscriptions/{subscription}/resourceGroups/{cluster_name(stack)}"
    own = f"{group}/providers/Microsoft.Network/virtualNetworks/{network_name(stack)}"
    return f"{config.vnet_id or own}/subnets/{subnet_name(stack, shared=config.vnet_id is not None)}"


def not_let_in(
    found: Firewall | None, stack: str, subscription: str, config: ClusterConfig
) -> Refusal | str | None:
    """Return why the nodes would not reach the existing account: a refusal, or a warning as text.

    A subnet that the stack makes can be admitted only once it exists, which is worth a warning.
    """
    account = config.storage_account_id
    if account is None:
        return None
    if found is None:
        problem = f"{_KEY} = {account!r}: Azure has no such account, or you may not read it"
        return Refusal("storage", problem, "see `az storage account list --query '[].id'`")
    subnet = nodes_subnet(stack, subscription, config)
    let_in = found.public and (found.open or subnet.lower() in found.subnets)
    if let_in or config.storage != "serviceEndpoint":
        return None
    if not found.public:
        problem = f"{_KEY} = {account!r}: its public network access is off: no service endpoint reaches it"
        return Refusal("storage", problem, "set ranklift:storage to privateEndpoint")
    given = split(account)
    command = (
        f"az storage account network-rule add --subscription {given.subscription} "
        f"--resource-group {given.group} --account-name {given.names[-1]} --subnet {subnet}"
    )
    problem = f"the firewall of storage account {given.names[-1]} does not let the nodes' subnet in"
    if config.subnet_id is not None:
        ways = f"let its owner run `{command}`, or set ranklift:storage to privateEndpoint"
        return Refusal("storage", problem, ways)
    return f"{problem}: after `fab up` has made it, let the owner run `{command}`; until then it answers 403"
