"""Load balancers with their frontends, backend pools and rules."""

from __future__ import annotations

import hashlib

from rehearsal.arm.core.errors import ArmError
from rehearsal.arm.core.hooks import Body, Hooks, Work
from rehearsal.arm.core.ids import ResourceId
from rehearsal.arm.core.models import check, model
from rehearsal.arm.core.records import Record
from rehearsal.arm.core.references import at, reference
from rehearsal.arm.core.resource_type import InUse, ResourceType
from rehearsal.arm.core.subscription import Subscription
from rehearsal.arm.network.nat_rules import LOAD_BALANCERS, Member
from rehearsal.arm.services import Services

__all__ = ["ENTRIES"]

_TOP_PORT = 65534
_IN_USE = InUse(
    "LoadBalancerInUseByVirtualMachineScaleSet",
    "Cannot delete load balancer {rid} since it is in use by virtual machine scale set {holder}.",
)


def _child(
    collection: str, model_name: str, token: str | None = "", in_use: InUse | None = None
) -> ResourceType:
    return ResourceType(
        f"{LOAD_BALANCERS}/{collection}",
        f"network.{model_name}",
        ("loadBalancerName", f"{model_name[0].lower()}{model_name[1:]}Name"),
        pulumi_type=token,
        in_use=in_use,
        tracked=False,
        embedded=True,
    )


_POOLS = _child("backendAddressPools", "BackendAddressPool", in_use=_IN_USE)
_OTHERS = (
    _child("inboundNatRules", "InboundNatRule", token=None),
    _child("frontendIPConfigurations", "FrontendIPConfiguration"),
    _child("probes", "Probe", in_use=_IN_USE),
    _child("loadBalancingRules", "LoadBalancingRule"),
    _child("outboundRules", "OutboundRule"),
)
_BALANCERS = ResourceType(
    LOAD_BALANCERS,
    "network.LoadBalancer",
    ("loadBalancerName",),
    children={child.collection: child.type for child in (_POOLS, *_OTHERS)},
    immutable=("sku.name", "extendedLocation"),
    in_use=_IN_USE,
    group_rank=2,
    guid_name="resourceGuid",
)


class _LoadBalancerHooks(Hooks[Services]):
    """Inbound NAT rules become forwards of this machine; other rules only exist."""

    def accept(self, rid: ResourceId, body: Body, old: Body | None) -> Body:
        """Refuse unusable port ranges and public addresses that others hold."""
        _check_rules(self.services.subscription, rid, body)
        return body

    async def apply(self, record: Record, old: Body | None) -> None:
        await self.services.nat_rules.reconcile()

    async def remove(self, record: Record) -> None:
        await self.services.nat_rules.reconcile()


class _BackendPoolHooks(Hooks[Services]):
    """Members of a pool, and the frontend ports that lead to them."""

    def show_child(self, rid: ResourceId, shown: Body, *, brief: bool) -> None:
        """Add the members, unless ``brief`` with the port of each NAT rule that leads there."""
        members = self.services.nat_rules.members(rid)
        properties = shown["properties"]
        properties["backendIPConfigurations"] = [{"id": str(m.configuration_id)} for m in members]
        if not brief:
            properties["loadBalancerBackendAddresses"] = [self._address(m, rid) for m in members]

    def _address(self, member: Member, rid: ResourceId) -> Body:
        mapping = self.services.nat_rules.mapping(member, rid)
        return {
            "name": hashlib.sha256(member.configuration_id.key.encode()).hexdigest()[:32],
            "properties": {
                "ipAddress": member.instance.machine.private_ip,
                "networkInterfaceIPConfiguration": {"id": str(member.configuration_id)},
                "inboundNatRulesPortMapping": [
                    {k: m[k] for k in ("inboundNatRuleName", "frontendPort", "backendPort")} for m in mapping
                ],
            },
        }

    def act(self, rid: ResourceId, record: Record, action: str, body: Body) -> Work | Body | None:
        """Return the query for the port mapping of one member, by its configuration or its address."""
        if action != "queryinboundnatruleportmapping":
            return None
        wanted = check(model("network.QueryInboundNatRulePortMappingRequest"), body)
        configuration = (wanted.get("ipConfiguration") or {}).get("id", "").lower()
        found = [
            mapping
            for member in self.services.nat_rules.members(rid)
            if configuration == member.configuration_id.key
            or wanted.get("ipAddress") == member.instance.machine.private_ip
            for mapping in self.services.nat_rules.mapping(member, rid)
        ]

        async def answer() -> Body:
            return {"inboundNatRulePortMappings": found}

        return Work(answer(), is_change=False)


def _check_rules(subscription: Subscription, rid: ResourceId, body: Body) -> None:
    """Refuse NAT rules without a usable port range, and public addresses that others hold."""
    properties = body["properties"]
    ranges: dict[str, list[tuple[int, int, str]]] = {}
    for rule in properties.get("inboundNatRules") or ():
        own = rule.get("properties") or {}
        if not own.get("backendAddressPool"):
            continue
        low, high = own.get("frontendPortRangeStart"), own.get("frontendPortRangeEnd")
        if low is None or high is None or not 1 <= low <= high <= _TOP_PORT or not own.get("backendPort"):
            raise ArmError(
                400,
                "InvalidInboundNatRulePortRange",
                f"Inbound NAT rule {rule['name']} of {rid} refers to a backend address pool and must have "
                f"backendPort and frontendPortRangeStart <= frontendPortRangeEnd between 1 and {_TOP_PORT}.",
            )
        frontend = str(at(own, "frontendIPConfiguration", "id") or "").lower()
        for other_low, other_high, other in ranges.setdefault(frontend, []):
            if low <= other_high and other_low <= high:
                raise ArmError(
                    400,
                    "RulesUseSameFrontendPortProtocolAndIPConfig",
                    f"Load balancer rules {other} and {rule['name']} of {rid} use the same frontend ports.",
                )
        ranges[frontend].append((low, high, rule["name"]))
    for frontend in properties.get("frontendIPConfigurations") or ():
        address = reference(frontend, "properties", "publicIPAddress")
        for holder in subscription.holders(address) if address is not None else ():
            if not f"{holder.key}/".startswith(f"{rid.key}/"):
                raise ArmError(
                    400,
                    "PublicIPAddressInUse",
                    f"Resource {rid.child('frontendIPConfigurations', frontend['name'])} is referencing "
                    f"public IP address {address} that is already allocated to resource {holder}.",
                )


ENTRIES = (
    (_BALANCERS, _LoadBalancerHooks),
    (_POOLS, _BackendPoolHooks),
    *((kind, Hooks) for kind in _OTHERS),
)
