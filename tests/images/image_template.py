"""The template that Azure Image Builder is to be given, as ARM takes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from images.image_builders import shell_customizer
from images.os_images import MarketplaceImage
from images.steps import Step

API_VERSION = "2024-02-01"
"""Of Microsoft.VirtualMachineImages; the first with ``autoRun``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """What a build is given, and where its image goes."""

    base: MarketplaceImage
    location: str
    identity_id: str
    """Of the user-assigned identity that may write to the gallery."""
    image_version_id: str
    """``…/galleries/<gallery>/images/<image>/versions/<x.y.z>``: known before there is an image."""
    vm_size: str
    """Size of the VM that builds the image; it may lack the nodes' hardware."""
    disk_gib: int
    minutes: int
    """After which a build is given up."""
    tags: Mapping[str, str]


def image_template(steps: Sequence[Step], build: Build) -> dict[str, Any]:
    """The body of an ``imageTemplates`` resource, which runs as soon as it is there (``autoRun``)."""
    plan = build.base.plan
    source: dict[str, Any] = {
        "type": "PlatformImage",
        "publisher": build.base.publisher,
        "offer": build.base.offer,
        "sku": build.base.sku,
        "version": build.base.version,
    }
    if plan:
        source["planInfo"] = {
            "planName": plan.name,
            "planProduct": plan.product,
            "planPublisher": plan.publisher,
        }
    return {
        "type": "Microsoft.VirtualMachineImages/imageTemplates",
        "apiVersion": API_VERSION,
        "location": build.location,
        "tags": dict(build.tags),
        "identity": {"type": "UserAssigned", "userAssignedIdentities": {build.identity_id: {}}},
        "properties": {
            "autoRun": {"state": "Enabled"},
            "buildTimeoutInMinutes": build.minutes,
            "vmProfile": {"vmSize": build.vm_size, "osDiskSizeGB": build.disk_gib},
            "source": source,
            "customize": [shell_customizer(step) for step in steps],
            "distribute": [
                {
                    "type": "SharedImage",
                    "runOutputName": "node",
                    "galleryImageId": build.image_version_id,
                    "targetRegions": [
                        {"name": build.location, "replicaCount": 1, "storageAccountType": "Standard_LRS"}
                    ],
                    "artifactTags": dict(build.tags),
                }
            ],
        },
    }
