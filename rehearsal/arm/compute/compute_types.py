"""The resource types of Microsoft.Compute, and Image Builder's, that the emulation knows."""

from __future__ import annotations

from rehearsal.arm.core.resource_type import Kind

__all__ = [
    "COMPUTE",
    "DEFINITIONS",
    "DISKS",
    "GALLERIES",
    "IMAGES",
    "MACHINES",
    "SCALE_SETS",
    "TEMPLATES",
    "VERSIONS",
]

SCALE_SETS = "Microsoft.Compute/virtualMachineScaleSets"
MACHINES = "Microsoft.Compute/virtualMachines"
DISKS = "Microsoft.Compute/disks"
IMAGES = "Microsoft.Compute/images"
GALLERIES = "Microsoft.Compute/galleries"
DEFINITIONS = f"{GALLERIES}/images"
VERSIONS = f"{DEFINITIONS}/versions"
TEMPLATES = "Microsoft.VirtualMachineImages/imageTemplates"

COMPUTE = (
    Kind(
        SCALE_SETS,
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
    Kind(
        MACHINES,
        "compute.VirtualMachine",
        "azure-native:compute:VirtualMachine",
        ("vmName",),
        patch_model="compute.VirtualMachineUpdate",
        immutable=(
            "zones",
            "priority",
            "osProfile.adminUsername",
            "osProfile.computerName",
            "osProfile.customData",
            "storageProfile.imageReference",
        ),
    ),
    Kind(
        DISKS,
        "compute.Disk",
        "azure-native:compute:Disk",
        ("diskName",),
        patch_model="compute.DiskUpdate",
        immutable=("creationData", "zones", "osType"),
        created=202,
        version="2024-03-02",
    ),
    Kind(
        IMAGES,
        "compute.Image",
        "azure-native:compute:Image",
        ("imageName",),
        patch_model="compute.ImageUpdate",
        immutable=("storageProfile", "sourceVirtualMachine", "hyperVGeneration"),
    ),
    Kind(
        GALLERIES,
        "compute.Gallery",
        "azure-native:compute:Gallery",
        ("galleryName",),
        patch_model="compute.GalleryUpdate",
        version="2024-03-03",
    ),
    Kind(
        DEFINITIONS,
        "compute.GalleryImage",
        "azure-native:compute:GalleryImage",
        ("galleryName", "galleryImageName"),
        patch_model="compute.GalleryImageUpdate",
        immutable=("identifier", "osType", "osState", "hyperVGeneration", "architecture"),
        version="2024-03-03",
        before_parent=True,
    ),
    Kind(
        VERSIONS,
        "compute.GalleryImageVersion",
        "azure-native:compute:GalleryImageVersion",
        ("galleryName", "galleryImageName", "galleryImageVersionName"),
        patch_model="compute.GalleryImageVersionUpdate",
        immutable=("storageProfile",),
        version="2024-03-03",
        before_parent=True,
    ),
    Kind(
        TEMPLATES,
        "imagebuilder.ImageTemplate",
        "azure-native:virtualmachineimages:VirtualMachineImageTemplate",
        ("imageTemplateName",),
        patch_model="imagebuilder.ImageTemplateUpdateParameters",
        # An image template is replaced, not changed (learn.microsoft.com image-builder-troubleshoot).
        immutable=("source", "customize", "distribute", "vmProfile", "buildTimeoutInMinutes"),
        # What it names is what it will make.
        loose=("distribute",),
    ),
)
