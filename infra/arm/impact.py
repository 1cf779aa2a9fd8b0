"""Reports of an unhealthy host to Azure: Guest Health Reporting, by its resource provider Microsoft.Impact.

Form and onboarding are from Microsoft's pages "Report node health by using Guest Health Reporting" and
"What is Guest Health Reporting?" (learn.microsoft.com, azure-impact-reporting).
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from infra.arm.types import api_version

if TYPE_CHECKING:
    from azure.mgmt.resource.resources import ResourceManagementClient

__all__ = ["ONBOARDING", "Impact", "report"]

ONBOARDING = (
    "the subscription must be onboarded to Guest Health Reporting, by `az provider register -n "
    "Microsoft.Impact`, `az feature register --namespace Microsoft.Impact -n AllowImpactReporting` and "
    "Microsoft's confirmation, and the signed-in identity needs the role Impact Reporter"
)
_ANSWER_S = 60.0


@dataclass(frozen=True, slots=True)
class Impact:
    """A report on the host of one VM."""

    vm: str
    """ARM id of the VM."""
    vm_id: str
    """Azure's unique id of it."""
    host: str
    """PhysicalHostName; empty where the VM does not answer: its unique id is enough then."""
    category: str
    """Like ``Resource.Hpc.Unhealthy.IBPortDown``."""
    description: str

    @property
    def id(self) -> str:
        """Return the report's ARM id, the same when the same is reported of the VM again."""
        name = uuid.uuid5(uuid.NAMESPACE_OID, f"{self.vm_id} {self.category}")
        subscription = "/".join(self.vm.split("/")[:3])
        return f"{subscription}/providers/Microsoft.Impact/workloadImpacts/{name}"

    def body(self, now: datetime) -> dict[str, Any]:
        """Return the body of the request."""
        more = {"PhysicalHostName": self.host, "VmUniqueId": self.vm_id}
        return {
            "properties": {
                "startDateTime": now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
                "impactCategory": self.category,
                "impactDescription": self.description,
                "impactedResourceId": self.vm,
                "additionalProperties": {name: value for name, value in more.items() if value},
            }
        }


def report(resources: ResourceManagementClient, impact: Impact) -> None:
    """Send the report. Raises ``azure.core.exceptions.AzureError``."""
    poller = resources.resources.begin_create_or_update_by_id(
        impact.id, impact.body(datetime.now(UTC)), api_version=api_version("Microsoft.Impact")
    )
    poller.wait(_ANSWER_S)
    if poller.done():
        poller.result()
