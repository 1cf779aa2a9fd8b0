"""Azure Monitor: a workspace for the nodes' metrics, the rule that takes them, and the nodes' right on it.

The nodes send their metrics themselves, in Prometheus' remote write, by their identity. Of servers Azure
Monitor takes Prometheus' metrics in no other way: what Azure collects itself are Kubernetes clusters ("Azure
Monitor managed service for Prometheus", data sources, learn.microsoft.com).
"""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
from pulumi_azure_native.monitor._enums import PublicNetworkAccess
from pulumi_azure_native.monitor._inputs import (
    DataCollectionEndpointNetworkAclsArgs,
    DataCollectionRuleDestinationsArgs,
    DataFlowArgs,
    MonitoringAccountDestinationArgs,
)
from pulumi_azure_native.monitor.azure_monitor_workspace import AzureMonitorWorkspace
from pulumi_azure_native.monitor.data_collection_endpoint import DataCollectionEndpoint
from pulumi_azure_native.monitor.data_collection_rule import DataCollectionRule

from infra.cluster.groups import Place
from infra.cluster.identity import Identity, allow, built_in_role
from infra.naming import monitor_name

__all__ = ["METRICS_PUBLISHER", "Monitor", "build_monitor"]

METRICS_PUBLISHER = "3913510d-42f4-4e42-8a64-420c390055eb"
"""Azure's built-in role Monitoring Metrics Publisher (learn.microsoft.com built-in-roles/monitor)."""

_STREAM = "Microsoft-PrometheusMetrics"


@dataclass(frozen=True, slots=True)
class Monitor:
    """The workspace, and where its metrics come in."""

    workspace_id: pulumi.Output[str]
    query_endpoint: pulumi.Output[str]
    """Address at which a Grafana or a Prometheus client asks for them."""
    rule_url: pulumi.Output[str]
    """Address of the rule at its endpoint; the nodes append the stream's path."""


def build_monitor(place: Place, identity: Identity) -> Monitor:
    """Make the workspace with an endpoint and a rule of the stack's own.

    Azure makes an endpoint and a rule with every workspace, in a group that it manages. Those of the stack
    have its name and tags, and its right lies in its own group. Their bodies are those of
    ``Prometheus-RemoteWrite-DCR-artifacts`` (Azure/prometheus-collector).
    """
    name = monitor_name(place.stack)
    workspace = AzureMonitorWorkspace(
        "monitor",
        azure_monitor_workspace_name=name,
        public_network_access=PublicNetworkAccess.ENABLED,
        **place.common,
    )
    endpoint = DataCollectionEndpoint(
        "monitor-endpoint",
        data_collection_endpoint_name=name,
        network_acls=DataCollectionEndpointNetworkAclsArgs(public_network_access="Enabled"),
        **place.common,
    )
    rule = DataCollectionRule(
        "monitor-rule",
        data_collection_rule_name=name,
        data_collection_endpoint_id=endpoint.id,
        destinations=DataCollectionRuleDestinationsArgs(
            monitoring_accounts=[
                MonitoringAccountDestinationArgs(name="workspace", account_resource_id=workspace.id)
            ]
        ),
        data_flows=[DataFlowArgs(streams=[_STREAM], destinations=["workspace"])],
        **place.common,
    )
    allow(place, identity, "metrics", built_in_role(place, METRICS_PUBLISHER), rule.id)
    address = endpoint.metrics_ingestion.apply(lambda taken: str(taken.endpoint).rstrip("/") if taken else "")
    url = pulumi.Output.concat(address, "/dataCollectionRules/", rule.immutable_id)
    query = workspace.metrics.apply(lambda metrics: str(metrics.prometheus_query_endpoint))
    return Monitor(workspace.id, query, url)
