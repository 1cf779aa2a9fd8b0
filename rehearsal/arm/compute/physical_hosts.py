"""Hosts of VMs, and the reports of a tenant that one is unhealthy.

A new VM comes to the first host that is free: without a report, the node in place of another comes to the
host that this one left. That Azure does so is not documented; that it may is why there are reports.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, count

from rehearsal.arm.core.errors import ArmError
from rehearsal.arm.core.hooks import Body, Hooks
from rehearsal.arm.core.ids import ResourceId
from rehearsal.arm.core.references import at
from rehearsal.arm.core.resource_type import ResourceType
from rehearsal.arm.core.subscription import Subscription
from rehearsal.arm.services import Services

__all__ = ["ENTRIES", "IMPACTS", "free_hosts"]

IMPACTS = "Microsoft.Impact/workloadImpacts"
_REQUIRED = ("startDateTime", "impactCategory", "impactDescription", "impactedResourceId")
_CATEGORIES = {
    f"Resource.Hpc.{one}"
    for one in (
        *("Reset", "Reboot", "Healthy", "Unhealthy.AmdGpuResetFailed", "Unhealthy.CPUPerformance"),
        *("Unhealthy.DBEOverLimit", "Unhealthy.ECCPageRetirementTableFull", "Unhealthy.EROTFailure"),
        *("Unhealthy.GPUMemoryBWFailure", "Unhealthy.GpuXIDError", "Unhealthy.HpcDcgmiThermalReport"),
        *("Unhealthy.HpcGenericFailure", "Unhealthy.HpcGpuDcgmDiagFailure", "Unhealthy.HpcInforomCorruption"),
        *("Unhealthy.HpcMissingGpu", "Unhealthy.HpcRowRemapFailure", "Unhealthy.IBPerformance"),
        *("Unhealthy.IBPortDown", "Unhealthy.IBPortFlapping", "Unhealthy.ManualInvestigation"),
        *("Unhealthy.MissingIB", "Unhealthy.NvLink", "Unhealthy.UnhealthyGPUNvidiasmi"),
        *("Unhealthy.XID48DoubleBitECC", "Unhealthy.XID79FallenOffBus", "Unhealthy.XID94ContainedECCError"),
        "Unhealthy.XID95UncontainedECCError",
    )
}
"""learn.microsoft.com, "Guest Health Reporting impact categories" and "Report node health"."""
_IMPACTS = ResourceType(
    IMPACTS,
    "resources.GenericResource",
    ("workloadImpactName",),
    pulumi_type="",
    patch_model="resources.GenericResource",
    tracked=False,
    extends=True,
    sync=True,
    version="2023-02-01-preview",
)


class _ImpactHooks(Hooks[Services]):
    """Codes and texts of refusals are not documented, but which properties a report needs."""

    def accept(self, rid: ResourceId, body: Body, old: Body | None) -> Body:
        """Refuse an incomplete report, one of another category, and one of a VM that does not exist."""
        wanted = body["properties"]
        lacking = [name for name in _REQUIRED if not wanted.get(name)]
        more = wanted.get("additionalProperties") or {}
        if not (more.get("PhysicalHostName") or more.get("VmUniqueId")):
            lacking.append("additionalProperties.PhysicalHostName")
        if lacking:
            raise ArmError(400, "InvalidRequest", f"The report lacks {', '.join(lacking)}.", lacking[0])
        if wanted["impactCategory"] not in _CATEGORIES:
            problem = f"The impact category '{wanted['impactCategory']}' is not valid."
            raise ArmError(400, "InvalidImpactCategory", problem, "impactCategory")
        vm = ResourceId.parse(wanted["impactedResourceId"])
        if vm is None or not self._exists(vm):
            problem = f"The impacted resource '{wanted['impactedResourceId']}' was not found."
            raise ArmError(400, "InvalidImpactedResource", problem, "impactedResourceId")
        return body

    def _exists(self, vm: ResourceId) -> bool:
        scale_set = self.services.subscription.scale_sets.get(vm.parent.key)
        if scale_set is None:
            return self.services.subscription.exists(vm)
        return vm.name in {str(number) for number in scale_set.instances}


def free_hosts(subscription: Subscription) -> Iterator[str]:
    """Yield the names of hosts without a VM and without a report, for one new VM each."""
    scale_sets = (one.instances.values() for one in subscription.scale_sets.values())
    known = chain(subscription.virtual_machines.values(), *scale_sets)
    taken = {instance.machine.host for instance in known}
    for impact in subscription.of_type(IMPACTS):
        taken.add(at(impact.properties, "additionalProperties", "PhysicalHostName") or "")
    return (host for host in (f"RHRSL{number:07d}" for number in count()) if host not in taken)


ENTRIES = ((_IMPACTS, _ImpactHooks),)
