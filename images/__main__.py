"""``python -m images``: a recipe as files, for those who use it by other means than this project's.

``python -m images cloud-init Standard_ND40rs_v2 --out user-data.yaml`` is for a VM that starts from plain
Ubuntu; ``python -m images packer … --out FOLDER`` for Packer; ``python -m images steps … --out FOLDER`` gives
the bare scripts. ``--ubuntu``, ``--ofed`` and ``--mpi`` choose.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from images.image_builders import packer_files
from images.recipe import Recipe, recipe_for
from images.steps import Step, steps
from images.user_data import user_data
from launch.errors import RankliftError


def files(way: str, recipe: Recipe, found: Sequence[Step]) -> Mapping[str, str]:
    """Name to text of what ``way`` consists of; the one file of cloud-init has no name of its own."""
    if way == "cloud-init":
        return {"": user_data(found)}
    if way == "packer":
        return packer_files(recipe, found)
    return {step.file_name: step.script for step in found}


def main(arguments: Sequence[str]) -> int:
    """Write the files; return 2 for an unknown recipe."""
    parser = argparse.ArgumentParser(prog="python -m images", description="A node's recipe as files.")
    parser.add_argument("way", choices=("cloud-init", "packer", "steps"))
    parser.add_argument("size", help="of the nodes, like Standard_ND40rs_v2")
    parser.add_argument("--ubuntu", choices=("22.04", "24.04"))
    parser.add_argument("--ofed", choices=("doca", "mlnx"))
    parser.add_argument("--mpi", choices=("hpcx", "openmpi"))
    parser.add_argument("--out", type=Path, required=True, help="file (cloud-init) or folder to write")
    given = parser.parse_args(arguments)
    try:
        recipe = recipe_for(given.size, ubuntu=given.ubuntu, ofed=given.ofed, mpi=given.mpi)
    except RankliftError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    for name, text in files(given.way, recipe, steps(recipe)).items():
        path = given.out / name if name else given.out
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        sys.stdout.write(f"{path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
