"""A recipe's steps as the two programs take them that build images: Packer and Azure Image Builder.

Packer is for those who build images from their own machine: ``packer init . && packer build -var …`` in the
folder with its files needs Packer 1.14 and ``az login``. Image Builder's template is
:mod:`images.build.program`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from images.recipe import Recipe
from images.steps import Step
from images.templates import render

__all__ = ["PLUGIN", "packer_files", "shell_customizer"]

PLUGIN = "2.6.1"
"""Of github.com/hashicorp/azure: 2.6.2 is slow in what it logs (azhpc-images packer/)."""

_END = "RANKLIFT_STEP"
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
