"""Images on rehearsed nodes without a pull by each: their files are hard links to one copy."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

from launch.code.node_code import remote_id
from tests.e2e.workplace import NODE_PYTHON, Workplace

__all__ = ["ENVIRONMENTS", "copy_image", "link_torch", "link_tree", "plant_image"]

ENVIRONMENTS = ".ranklift/environments"
_TORCHRUN = """\
#!/usr/bin/python3
import os, sys
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "lib"))
from torch.distributed.run import main
main()
"""


def plant_image(
    made: Workplace, nodes: Sequence[str], name: str, root: Path, variables: Sequence[str]
) -> None:
    """Give every node an unpacked image under this id, as if a head had made and spread it."""
    for node in nodes:
        folder = _home(made, node) / ENVIRONMENTS / name
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps({"config": {"Env": list(variables)}}))
        link_tree(root, folder / "root")
        folder.with_suffix(".manifest").write_text("[]")
        _confirm(folder, nodes)


def copy_image(made: Workplace, head: str, nodes: Sequence[str]) -> None:
    """Give all nodes the one image that ``head`` has made."""
    (manifest,) = (_home(made, head) / ENVIRONMENTS).glob("*.manifest")
    name = manifest.stem
    for node in nodes:
        folder = _home(made, node) / ENVIRONMENTS
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / manifest.name).exists():
            link_tree(manifest.with_suffix(""), folder / name)
            for ending in (".made", ".manifest"):
                (folder / f"{name}{ending}").write_bytes(manifest.with_suffix(ending).read_bytes())
        _confirm(folder / name, nodes)


def _home(made: Workplace, node: str) -> Path:
    (found,) = made.folder.root.glob(f"nodes/*/{node}/home")
    return found


def link_tree(source: Path, folder: Path) -> None:
    """Make a folder whose files are hard links to another's; both have to be on one disk."""
    subprocess.run(["cp", "-al", str(source), str(folder)], check=True)


def link_torch(folder: Path) -> None:
    """Make ``lib`` with the packages of ``.venv-node``, and ``bin/torchrun``, which the image's Python runs;
    a folder that is there stays."""
    if folder.exists():
        return
    (packages,) = (NODE_PYTHON / "lib").glob("python3.*/site-packages")
    (folder / "bin").mkdir(parents=True)
    link_tree(packages, folder / "lib")
    torchrun = folder / "bin/torchrun"
    torchrun.write_text(_TORCHRUN)
    torchrun.chmod(0o755)


def _confirm(folder: Path, nodes: Sequence[str]) -> None:
    """Note on a head that every node holds the image."""
    notes = {"code": remote_id(), "nodes": list(nodes)}
    folder.with_suffix(".nodes").write_text(json.dumps(notes))
