"""A recipe as a list of small shell scripts, which every way to use it runs in this order.

Each script is whole by itself, ends at the first command that fails, and may run again: it then changes
nothing. They are for root on an Azure VM with Ubuntu 22.04 or 24.04 and load no kernel module: a machine
that builds an image need not have the hardware. What they install works after the next boot.

>>> from images.recipe import recipe_for
>>> [step.name for step in steps(recipe_for("Standard_HB176rs_v4"))]
['10-prepare', '20-kernel', '30-ofed', '60-mpi', '70-limits', '75-waagent', '90-record']
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from images.recipe import Recipe
from images.templates import render

__all__ = ["MIRROR", "Step", "steps"]

MIRROR = "/etc/ranklift/mirror"
"""On the machine: a file with the address below which a copy of every download lies as ``host/path``."""


@dataclass(frozen=True, slots=True)
class Step:
    """One script."""

    name: str
    """``30-ofed``: unique, in the order in which they run."""
    title: str
    script: str

    @property
    def file_name(self) -> str:
        """``30-ofed.sh``."""
        return f"{self.name}.sh"


def steps(recipe: Recipe) -> tuple[Step, ...]:
    """Return the scripts of a recipe."""
    ofed = f"ofed_{recipe.ofed}"
    chosen = [
        ("10-prepare", "what every later step needs", "prepare", True),
        ("20-kernel", "this kernel stays, and nothing is upgraded by itself", "kernel", True),
        ("30-ofed", f"{recipe.ofed_name}", ofed, recipe.ofed is not None),
        ("40-nvidia", f"NVIDIA driver {recipe.driver} ({recipe.driver_package})", "nvidia", bool(recipe.gpu)),
        ("45-peermem", "GPU memory for the adapters", "peermem", bool(recipe.gpu and recipe.ofed)),
        ("50-cuda", f"CUDA {recipe.cuda} and NCCL {recipe.nccl}", "cuda", bool(recipe.gpu)),
        ("55-topology", f"NCCL's topology, {recipe.topology_name}", "topology", bool(recipe.topology)),
        ("60-mpi", recipe.mpi_name, f"mpi_{recipe.mpi}", True),
        ("70-limits", "limits and kernel settings", "limits", True),
        ("75-waagent", "Azure's agent looks after InfiniBand", "waagent", recipe.ofed is not None),
        ("80-nvme", "local NVMe disks as one", "nvme", recipe.nvme),
        ("90-record", "what this machine holds", "record", True),
    ]
    return tuple(
        Step(name, title, _script(template, recipe, title))
        for name, title, template, wanted in chosen
        if wanted
    )


def _script(template: str, recipe: Recipe, title: str) -> str:
    text = render(
        f"scripts/{template}.sh.j2",
        recipe=recipe,
        title=title,
        mirror=MIRROR,
        inventory=json.dumps(recipe.inventory(), indent=2, sort_keys=True),
    )
    return text.rstrip() + "\n"
