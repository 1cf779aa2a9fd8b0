"""A recipe's steps as a Packer template, for those who build images from their own machine.

``packer init . && packer build -var …`` in the folder with these files needs Packer 1.14 and ``az login``.
"""

from __future__ import annotations

from collections.abc import Sequence

from images.recipe import Recipe
from images.steps import Step
from images.templates import render

__all__ = ["PLUGIN", "packer_files"]

PLUGIN = "2.6.1"
"""Of github.com/hashicorp/azure: 2.6.2 is slow in what it logs (azhpc-images packer/)."""

_BASES = {
    "22.04/x64": ("Canonical", "0001-com-ubuntu-server-jammy", "22_04-lts-gen2"),
    "24.04/x64": ("Canonical", "ubuntu-24_04-lts", "server"),
    "24.04/Arm64": ("Canonical", "ubuntu-24_04-lts", "server-arm64"),
}
"""Canonical's images. Their versions follow each other quickly: the user names one."""


def packer_files(recipe: Recipe, steps: Sequence[Step]) -> dict[str, str]:
    """Name to text: ``node.pkr.hcl`` and the scripts it runs."""
    publisher, offer, sku = _BASES[f"{recipe.ubuntu}/{recipe.cpu_arch}"]
    template = render(
        "packer.pkr.hcl.j2",
        recipe=recipe,
        steps=steps,
        plugin=PLUGIN,
        publisher=publisher,
        offer=offer,
        sku=sku,
        build_size="Standard_D8ps_v5" if recipe.cpu_arch == "Arm64" else "Standard_D8s_v5",
    )
    return {"node.pkr.hcl": template} | {f"steps/{step.file_name}": step.script for step in steps}
