"""Data collection endpoints and rules, as far as they take Prometheus' metrics for a workspace."""

from __future__ import annotations

from rehearsal.arm.core.errors import ArmError
from rehearsal.arm.core.hooks import Body, Hooks
from rehearsal.arm.core.ids import ResourceId
from rehearsal.arm.core.records import Record
from rehearsal.arm.core.resource_type import ResourceType
from rehearsal.arm.core.subscription import Subscription
from rehearsal.arm.services import Services

__all__ = ["ENDPOINTS", "ENTRIES", "RULES", "immutable_id"]

METADATA = "http://169.254.169.254"
"""Rehearsed nodes reach the endpoint here, where their metadata service passes its requests on."""
ENDPOINTS = ResourceType(
    "Microsoft.Insights/dataCollectionEndpoints",
    "monitor.DataCollectionEndpointResource",
    ("dataCollectionEndpointName",),
    pulumi_type="azure-native:monitor:DataCollectionEndpoint",
    patch_model="monitor.ResourceForUpdate",
    sync=True,
)
RULES = ResourceType(
    "Microsoft.Insights/dataCollectionRules",
    "monitor.DataCollectionRuleResource",
    ("dataCollectionRuleName",),
    pulumi_type="azure-native:monitor:DataCollectionRule",
    patch_model="monitor.ResourceForUpdate",
    sync=True,
)


def immutable_id(record: Record) -> str:
    """Return a rule's name in the addresses of its endpoint."""
    return f"dcr-{record.guid.replace('-', '')}"


class _EndpointHooks(Hooks[Services]):
    """An endpoint has an address for metrics."""

    def show(self, record: Record, shown: Body) -> None:
        """Add what Azure makes."""
        shown["properties"].update(
            immutableId=f"dce-{record.guid.replace('-', '')}",
            metricsIngestion={"endpoint": f"{METADATA}/ingest/{record.id.name.lower()}"},
        )


class _RuleHooks(Hooks[Services]):
    """A rule leads from an endpoint to workspaces; both have to exist."""

    def accept(self, rid: ResourceId, body: Body, old: Body | None) -> Body:
        """Refuse a rule whose endpoint or workspace does not exist, and a flow to no destination of its own.

        Azure's code for all of these is InvalidPayload; its exact words are not known here.
        """
        properties = body["properties"]
        targets = (properties.get("destinations") or {}).get("monitoringAccounts") or []
        wanted = [one.get("accountResourceId") for one in targets]
        for resource in [*wanted, *filter(None, [properties.get("dataCollectionEndpointId")])]:
            if not _exists(self.services.subscription, resource):
                raise _invalid(f"The resource '{resource}' was not found.")
        named = {one.get("name") for one in targets}
        for flow in properties.get("dataFlows") or []:
            unknown = sorted(set(flow.get("destinations") or []) - named)
            if unknown:
                raise _invalid(f"'Data Flow' destination '{unknown[0]}' is not defined in 'Destinations'.")
        return body

    def show(self, record: Record, shown: Body) -> None:
        """Add what Azure makes."""
        shown["properties"]["immutableId"] = immutable_id(record)


def _exists(subscription: Subscription, resource: object) -> bool:
    rid = ResourceId.parse(str(resource))
    return rid is not None and subscription.exists(rid)


def _invalid(problem: str) -> ArmError:
    return ArmError(400, "InvalidPayload", f"Data collection rule is invalid: {problem}")


ENTRIES = ((ENDPOINTS, _EndpointHooks), (RULES, _RuleHooks))
