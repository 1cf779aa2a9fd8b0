"""The scripts of a recipe: which ones, in which order, and that shellcheck finds nothing in them."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from images.hardware import all_hardware
from images.recipe import Mpi, Ofed, Recipe, Ubuntu, recipe_for
from images.steps import steps
from images.templates import render
from images.user_data import runner
from launch.errors import InputError

GOLDEN = Path(__file__).parent / "golden"
SHELLCHECK = shutil.which("shellcheck", path=str(Path(sys.executable).parent)) or "shellcheck"


def possible() -> list[Recipe]:
    found = []
    ubuntus: tuple[Ubuntu, ...] = ("22.04", "24.04")
    ofeds: tuple[Ofed | None, ...] = (None, "doca", "mlnx")
    mpis: tuple[Mpi, ...] = ("hpcx", "openmpi")
    for one in all_hardware():
        for ubuntu in ubuntus:
            for ofed in ofeds:
                for mpi in mpis:
                    try:
                        found.append(recipe_for(one.name, ubuntu=ubuntu, ofed=ofed, mpi=mpi))
                    except InputError:
                        continue
    return found


def text(recipe: Recipe) -> str:
    return "".join(f"# ---- {step.name}: {step.title}\n{step.script}\n" for step in steps(recipe))


@pytest.mark.parametrize(
    ("name", "recipe"),
    [
        ("v100", recipe_for("Standard_ND40rs_v2")),
        ("h100", recipe_for("Standard_ND96isr_H100_v5", ubuntu="24.04")),
        ("a100-mlnx-openmpi", recipe_for("Standard_ND96asr_v4", ofed="mlnx", mpi="openmpi")),
        ("gb200", recipe_for("Standard_ND128isr_NDR_GB200_v6")),
        ("hb176", recipe_for("Standard_HB176rs_v4")),
    ],
)
def test_is_the_text_that_was_reviewed(name: str, recipe: Recipe) -> None:
    assert text(recipe) == (GOLDEN / f"recipe_{name}.sh").read_text("utf-8")


def test_shellcheck_finds_nothing_in_any_script(tmp_path: Path) -> None:
    scripts = {step.script for recipe in possible() for step in steps(recipe)}
    scripts |= {render("scripts/nvme-raid.sh"), runner(steps(recipe_for("Standard_ND40rs_v2")))}
    scripts.add(embedded("/usr/local/lib/ranklift/fetch"))
    assert len(scripts) > 20
    for number, script in enumerate(sorted(scripts)):
        (tmp_path / f"{number}.sh").write_text(script, "utf-8")
    checked = subprocess.run(
        [SHELLCHECK, *map(str, sorted(tmp_path.iterdir()))],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def embedded(path: str) -> str:
    script = steps(recipe_for("Standard_ND40rs_v2"))[0].script
    return script.split(f"cat >{path} <<'END'\n")[1].split("END\n")[0]


def test_shellcheck_would_find_a_mistake(tmp_path: Path) -> None:
    (tmp_path / "bad.sh").write_text("#!/bin/bash\nrm -rf $1/*\n")
    checked = subprocess.run(
        [SHELLCHECK, str(tmp_path / "bad.sh")], capture_output=True, check=False, timeout=60
    )
    assert checked.returncode == 1


def test_every_script_stops_at_the_first_command_that_fails() -> None:
    for recipe in possible():
        for step in steps(recipe):
            lines = step.script.splitlines()
            assert lines[0] == "#!/bin/bash"
            assert lines[2] == "set -euo pipefail"


def test_every_download_goes_through_the_helper_that_compares_digests() -> None:
    for recipe in possible():
        later = "".join(step.script for step in steps(recipe) if step.name != "10-prepare")
        assert "curl" not in later
        assert "wget" not in later


def test_no_module_is_loaded_while_an_image_is_built() -> None:
    for recipe in possible():
        for step in steps(recipe):
            lines = [line for line in step.script.splitlines() if "ExecStartPost" not in line]
            assert not any("modprobe " in line for line in lines), step.name


def test_a_size_without_gpus_gets_none_of_their_software() -> None:
    assert "nvidia" not in text(recipe_for("Standard_HB120rs_v3"))


def test_a_size_without_infiniband_gets_no_ofed() -> None:
    names = [step.name for step in steps(recipe_for("Standard_NC24ads_A100_v4"))]
    assert not {"30-ofed", "45-peermem", "75-waagent"} & set(names)


def test_disks_are_joined_where_there_are_any() -> None:
    assert "80-nvme" in [step.name for step in steps(recipe_for("Standard_ND96isr_H100_v5"))]
    assert "80-nvme" not in [step.name for step in steps(recipe_for("Standard_ND40rs_v2"))]
