"""A recipe's steps as a template of Azure Image Builder.

Image Builder starts a VM from ``base``, runs the steps on it, and puts what it has become into a gallery.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from images.os_images import MarketplaceImage
from images.steps import Step

__all__ = ["API_VERSION", "Build", "image_template", "shell_customizer"]

API_VERSION = "2024-02-01"
"""Of Microsoft.VirtualMachineImages; the first with ``autoRun``."""

_END = "RANKLIFT_STEP"


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


def shell_customizer(step: Step) -> dict[str, Any]:
    """One step as a ``Shell`` customizer.

    Image Builder hands the lines to a plain user's ``sh``. The step goes to a file and is run from there, by
    root: read from a pipe, it could be eaten by a command that reads its input.

    >>> shell_customizer(Step("70-limits", "limits", "#!/bin/bash\\nulimit -a\\n"))["inline"]
    ["cat >/tmp/70-limits.sh <<'RANKLIFT_STEP'", '#!/bin/bash', 'ulimit -a', 'RANKLIFT_STEP', \
'sudo bash /tmp/70-limits.sh </dev/null', 'rm /tmp/70-limits.sh']
    """
    lines = step.script.splitlines()
    assert _END not in lines, f"{step.name} holds the line that would end it"  # noqa: S101 - our own scripts
    # Packer, which Image Builder is made of, would put something in place of these.
    assert "{{" not in step.script, f"{step.name} holds a Packer template"  # noqa: S101
    path = f"/tmp/{step.file_name}"  # noqa: S108 - on a machine of its own, which exists for this build
    inline = [f"cat >{path} <<'{_END}'", *lines, _END, f"sudo bash {path} </dev/null", f"rm {path}"]
    return {"type": "Shell", "name": step.name, "inline": inline}
