"""``python -m images`` writes what the modules render."""

import subprocess
import sys
from pathlib import Path

import pytest

from images.image_builders import packer_files
from images.recipe import recipe_for
from images.steps import steps
from images.user_data import user_data

RECIPE = recipe_for("Standard_ND40rs_v2", mpi="openmpi")
STEPS = steps(RECIPE)


def run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "images", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_writes_cloud_inits_document(tmp_path: Path) -> None:
    ran = run("cloud-init", "standard_nd40rs_v2", "--mpi", "openmpi", "--out", str(tmp_path / "user-data"))
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "user-data").read_text() == user_data(STEPS)


@pytest.mark.parametrize("way", ["packer", "steps"])
def test_writes_a_folder(way: str, tmp_path: Path) -> None:
    ran = run(way, "Standard_ND40rs_v2", "--mpi", "openmpi", "--out", str(tmp_path))
    assert ran.returncode == 0, ran.stderr
    written = {
        str(file.relative_to(tmp_path)): file.read_text() for file in tmp_path.rglob("*") if file.is_file()
    }
    bare = {step.file_name: step.script for step in STEPS}
    assert written == (packer_files(RECIPE, STEPS) if way == "packer" else bare)


def test_a_size_without_a_recipe_is_one_line(tmp_path: Path) -> None:
    ran = run("steps", "Standard_ND96isr_MI300X_v5", "--out", str(tmp_path / "x"))
    assert ran.returncode == 2
    assert "ROCm" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert not (tmp_path / "x").exists()
