"""The scripts of a recipe: which ones, in which order, and that shellcheck finds nothing in them."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from catalogue.sizes import catalogue
from images.recipe import Mpi, Ofed, Recipe, Ubuntu, _versions, recipe_for
from images.steps import steps
from images.templates import render
from images.user_data import FOLDER, runner
from launch.errors import InputError

GOLDEN = Path(__file__).parent / "golden"
SHELLCHECK = shutil.which("shellcheck", path=str(Path(sys.executable).parent)) or "shellcheck"


def possible() -> list[Recipe]:
    found = []
    ubuntus: tuple[Ubuntu, ...] = ("22.04", "24.04")
    ofeds: tuple[Ofed | None, ...] = (None, "doca", "mlnx")
    mpis: tuple[Mpi, ...] = ("hpcx", "openmpi")
    for one in catalogue():
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


@pytest.mark.parametrize("newest", [None, "5.15.0-1073-azure", "5.15.0-1101-azure"])
def test_nothing_is_built_for_a_kernel_that_the_next_boot_leaves(newest: str | None, tmp_path: Path) -> None:
    (script,) = (s.script for s in steps(recipe_for("Standard_ND40rs_v2")) if s.name == "20-kernel")
    listed = ["5.15.0-998-azure", "5.15.0-1073-azure", *filter(None, [newest])]
    lines = "".join(f"installed linux-image-{kernel}\\n" for kernel in listed)
    doubles = {
        "uname": "echo 5.15.0-1073-azure",
        "dpkg-query": f"printf '{lines}'\nexit 1",  # as where one of the patterns matches nothing
        "apt-get": 'echo apt-get "$@"; exit 77',
    }
    for name, body in doubles.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    ran = subprocess.run(
        ["bash", "-c", script],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    if newest == "5.15.0-1101-azure":
        assert (ran.returncode, ran.stdout) == (1, "")
        assert ran.stderr.startswith(
            "The kernel 5.15.0-1101-azure is installed and starts at the next boot, but "
        )
    else:
        assert (ran.returncode, ran.stdout) == (77, "apt-get install -y linux-headers-5.15.0-1073-azure\n")


def test_imex_waits_for_whoever_knows_the_nodes_of_its_nvlink_domain() -> None:
    (script,) = (s.script for s in steps(recipe_for("Standard_ND128isr_GB300_v6")) if s.name == "40-nvidia")
    assert "apt-get install -y nvidia-imex\nsystemctl disable nvidia-imex.service\n" in script


def test_a_step_that_fails_tells_cloud_init_why(tmp_path: Path) -> None:
    recipe = recipe_for("Standard_HB120rs_v3")
    script = runner(steps(recipe)).replace(FOLDER, str(tmp_path)).replace("/var/log/", f"{tmp_path}/")
    for step in steps(recipe):
        fails = "echo 'E: no such package' >&2; exit 100\n" if step.name == "30-ofed" else "echo well\n"
        (tmp_path / step.file_name).write_text(fails)
    ran = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.splitlines()[1] == "E: no such package"
    assert ran.stderr.splitlines()[2].endswith("30-ofed.sh failed: nothing after it was run")


def test_a_file_whose_address_names_a_commit_has_a_digest() -> None:
    """A commit's file never changes; a server that sends another one is not believed."""
    files = [file for component in _versions().values() for file in component.get("files", {}).values()]
    named = [file for file in files if re.search(r"/[0-9a-f]{40}/", file["url"])]
    assert len(named) >= 3
    assert [file["url"] for file in named if not re.fullmatch("[0-9a-f]{64}", file.get("sha256", ""))] == []
