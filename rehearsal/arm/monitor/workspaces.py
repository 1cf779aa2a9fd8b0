"""Azure Monitor workspaces, with the newest value of each series that came in."""

from __future__ import annotations

import math
from typing import Any

from rehearsal.arm.core.hooks import Body, Hooks
from rehearsal.arm.core.records import Record, place
from rehearsal.arm.core.resource_type import ResourceType
from rehearsal.arm.monitor.remote_write_decoder import STALE, Sample
from rehearsal.arm.services import Services

__all__ = ["ENTRIES", "WORKSPACES", "keep_samples"]

WORKSPACES = ResourceType(
    "Microsoft.Monitor/accounts",
    "monitor.AzureMonitorWorkspaceResource",
    ("azureMonitorWorkspaceName",),
    pulumi_type="azure-native:monitor:AzureMonitorWorkspace",
    patch_model="monitor.AzureMonitorWorkspaceResourceForUpdate",
    sync=True,
)
_MOST_SERIES = 100_000
_SERIES = "rehearsed-series"
"""Name below a workspace of what came in: Azure answers queries instead, at another host."""


def keep_samples(workspace: Record, samples: list[Sample]) -> None:
    """Keep the newest value of each series; a stale marker ends one. New ones over a bound are left out."""
    kept: dict[tuple[tuple[str, str], ...], Sample] = workspace.status.setdefault("series", {})
    for sample in samples:
        key = tuple(sorted(sample.labels.items()))
        if sample.bits == STALE:
            kept.pop(key, None)
        elif key in kept or len(kept) < _MOST_SERIES:
            kept[key] = sample


class _WorkspaceHooks(Hooks[Services]):
    """A workspace has ids and a query endpoint, which is not served."""

    def show(self, record: Record, shown: Body) -> None:
        """Add what Azure makes."""
        name, region = record.id.name.lower(), place(record.body["location"])
        host = f"{name}-{record.guid[:4]}.{region}.prometheus.monitor.azure.com"
        shown["properties"].update(
            accountId=record.guid,
            metrics={"prometheusQueryEndpoint": f"https://{host}", "internalId": f"mac_{record.guid}"},
        )

    async def part(self, record: Record, name: str) -> Body | None:
        """Return the series that came in."""
        if name != _SERIES:
            return None
        kept: dict[Any, Sample] = record.status.get("series", {})
        return {"value": [_as_json(sample) for sample in kept.values()]}


def _as_json(sample: Sample) -> dict[str, Any]:
    value = sample.value if math.isfinite(sample.value) else str(sample.value)
    return {"labels": dict(sample.labels), "value": value, "time": sample.time_ms}


ENTRIES = ((WORKSPACES, _WorkspaceHooks),)
