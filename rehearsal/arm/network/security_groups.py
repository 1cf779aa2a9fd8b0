"""Network security groups with their rules."""

from __future__ import annotations

from typing import Any

from rehearsal.arm.core.errors import ArmError
from rehearsal.arm.core.hooks import Body, Hooks
from rehearsal.arm.core.ids import ResourceId
from rehearsal.arm.core.resource_type import InUse, ResourceType
from rehearsal.arm.services import Services

__all__ = ["ENTRIES"]

_GROUPS = ResourceType(
    "Microsoft.Network/networkSecurityGroups",
    "network.NetworkSecurityGroup",
    ("networkSecurityGroupName",),
    children={"securityRules": "Microsoft.Network/networkSecurityGroups/securityRules"},
    in_use=InUse("InUseNetworkSecurityGroupCannotBeDeleted"),
    guid_name="resourceGuid",
    referrers="subnets",
)
_RULES = ResourceType(
    "Microsoft.Network/networkSecurityGroups/securityRules",
    "network.SecurityRule",
    ("networkSecurityGroupName", "securityRuleName"),
    tracked=False,
    embedded=True,
)


class _SecurityGroupHooks(Hooks[Services]):
    """Rules are checked; no traffic is filtered."""

    def accept(self, rid: ResourceId, body: Body, old: Body | None) -> Body:
        """Refuse two rules of one direction with the same priority."""
        seen: dict[tuple[str, Any], str] = {}
        for rule in body["properties"].get("securityRules") or ():
            properties = rule.get("properties") or {}
            key = (str(properties.get("direction")).lower(), properties.get("priority"))
            if key in seen:
                raise ArmError(
                    400,
                    "SecurityRuleConflict",
                    f"Security rule {rule['name']} conflicts with rule {seen[key]}. Rules cannot have the "
                    "same Priority and Direction.",
                )
            seen[key] = rule["name"]
        return body


ENTRIES = ((_GROUPS, _SecurityGroupHooks), (_RULES, Hooks))
