"""The resource types of Microsoft.Compute that the emulation knows."""

from __future__ import annotations

from infra.rehearsal.arm.kind import Kind

__all__ = ["COMPUTE"]

COMPUTE = (
    Kind(
        "Microsoft.Compute/virtualMachineScaleSets",
        "compute.VirtualMachineScaleSet",
        "azure-native:compute:VirtualMachineScaleSet",
        ("vmScaleSetName",),
        patch_model="compute.VirtualMachineScaleSetUpdate",
        immutable=(
            "orchestrationMode",
            "extendedLocation",
            "virtualMachineProfile.priority",
            "virtualMachineProfile.osProfile.adminUsername",
            "virtualMachineProfile.osProfile.computerNamePrefix",
        ),
    ),
)
