"""Which MPI a node is found to have, with mpiruns that only say who they are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from launch.remote.base import timing
from launch.remote.mpi import detect
from launch.remote.mpi.detect import CannotLaunch, find_mpi

SAYS = {
    "openmpi-4": "mpirun (Open MPI) 4.1.4\n\nReport bugs to http://www.open-mpi.org/community/help/",
    "openmpi-5": "mpirun (Open MPI) 5.0.11\n",
    "mpich": "HYDRA build details:\n    Version:                                 5.0.2\n",
    "intelmpi": "Intel(R) MPI Library for Linux* OS, Version 2021.18.1 Build 20260626 (id: b44796a)\n",
}
ALL = list(SAYS)


def plant(folder: Path, says: str) -> Path:
    """An mpirun that says only that, in ``folder/bin``; that folder."""
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    script = folder / "bin/mpirun"
    script.write_text(f"#!/bin/sh\ncat <<'EOF'\n{says}\nEOF\n")
    script.chmod(0o755)
    return folder / "bin"


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A node whose PATH has no mpirun and whose image has no modules."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("sh", "cat", "bash", "env"):
        (tools / tool).symlink_to(f"/usr/bin/{tool}")
    (tmp_path / "home/.ranklift").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.setattr(detect, "_MODULES_SCRIPT", str(tmp_path / "modules.sh"))
    return tmp_path


def usual(node: Path, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node's PATH has this mpirun."""
    monkeypatch.setenv("PATH", f"{plant(node / 'usual', says)}:{os.environ['PATH']}")


@pytest.mark.parametrize("name", ALL)
def test_each_mpi_is_known_by_what_it_says_and_called_by_its_bare_name(
    node: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    usual(node, SAYS[name], monkeypatch)
    found = find_mpi(ALL)
    assert (found.name, found.command, found.exports) == (name, "mpirun", [])
    assert found.version in SAYS[name]


def test_the_jobs_python_comes_first_and_its_mpi_is_called_where_it_is(
    node: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual(node, SAYS["openmpi-4"], monkeypatch)
    first = plant(node / "venv", SAYS["mpich"])
    found = find_mpi(ALL, str(first))
    assert (found.name, found.command) == ("mpich", f"{first}/mpirun")
    assert found.env["PATH"].startswith(f"{first}:")
    assert found.library_path == ""
    (node / "venv/lib").mkdir()
    (node / "venv/lib/libmpi.so.12").touch()
    assert found.library_path == f"{node}/venv/lib"


def test_one_that_the_job_does_not_name_is_passed_over(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual(node, SAYS["openmpi-4"], monkeypatch)
    first = plant(node / "venv", SAYS["mpich"])
    assert find_mpi(["openmpi-4", "openmpi-5"], str(first)).title == "Open MPI 4.1.4"


def test_what_is_there_instead_is_named(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CannotLaunch, match=r"^no mpirun was found; Open MPI or MPICH is required$"):
        find_mpi(["openmpi-4", "openmpi-5", "mpich"])
    usual(node, "prrte 3.0", monkeypatch)
    first = plant(node / "venv", SAYS["openmpi-5"])
    with pytest.raises(
        CannotLaunch, match=r"^mpirun is Open MPI 5.0.11 and 'prrte 3.0'; Intel MPI is required$"
    ):
        find_mpi(["intelmpi"], str(first))


def test_an_hpc_images_modules_are_loaded_when_nothing_else_serves(
    node: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual(node, SAYS["openmpi-4"], monkeypatch)
    where = plant(node / "opt/impi", SAYS["intelmpi"])
    (node / "modules.sh").write_text(f"""
module() {{
    [ "$2" = mpi/impi-2021 ] || return 1
    export PATH={where}:$PATH I_MPI_ROOT={node}/opt/impi LD_LIBRARY_PATH=/opt/lib LOADEDMODULES=$2
}}
""")
    found = find_mpi(["intelmpi"])
    assert (found.name, found.command) == ("intelmpi", f"{where}/mpirun")
    assert found.exports == ["I_MPI_ROOT", "LD_LIBRARY_PATH"]
    with pytest.raises(CannotLaunch, match=r"^mpirun is Open MPI 4.1.4; MPICH is required$"):
        find_mpi(["mpich"])


def modules(node: Path, scripts: dict[str, str]) -> dict[str, Path]:
    """An HPC image with these modules, each with what its mpirun does when it starts ranks."""
    folders, cases = {}, ""
    for name, does in scripts.items():
        folders[name] = plant(node / name, SAYS["openmpi-5"])
        script = folders[name] / "mpirun"
        script.write_text(
            script.read_text().replace("\ncat", f'\n[ "$1" = --version ] || {{ {does}; }}\ncat')
        )
        cases += f"{name}) export PATH={folders[name]}:$PATH;;\n"
    (node / "modules.sh").write_text(f"module() {{ case $2 in\n{cases}*) return 1;; esac; }}\n")
    return folders


UCX = 'echo "[1.5] ucp_context.c:1 UCX ERROR no such device"; echo -----; exit 1'


def test_of_an_images_modules_the_first_that_starts_is_chosen(node: Path) -> None:
    folders = modules(node, {"mpi/hpcx": UCX, "mpi/openmpi": f'echo "$@" >>{node}/started; exit 0'})
    found = find_mpi(ALL)
    assert (found.command, found.title) == (
        f"{folders['mpi/openmpi']}/mpirun",
        "Open MPI 5.0.11 (mpi/openmpi)",
    )
    why = "[1.5] ucp_context.c:1 UCX ERROR no such device"
    assert found.passed_over == [f"mpi/hpcx does not start: {why}"]
    started = (node / "started").read_text()
    assert started.startswith("-np 1 python3 ") and started.endswith(" libmpi.so.40\n")
    assert find_mpi(ALL).command == found.command
    assert (node / "started").read_text() == started, "one that has started is not started again"


def test_where_no_module_starts_the_first_is_taken_for_its_own_error_to_be_seen(node: Path) -> None:
    folders = modules(node, {"mpi/hpcx": UCX, "mpi/openmpi": "exit 3"})
    found = find_mpi(ALL)
    assert found.command == f"{folders['mpi/hpcx']}/mpirun"
    assert found.passed_over == ["mpi/hpcx does not start: [1.5] ucp_context.c:1 UCX ERROR no such device"]


def test_a_module_that_hangs_as_it_starts_is_given_up(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "MPI_START_S", 0.5)
    modules(node, {"mpi/hpcx": "while :; do :; done", "mpi/openmpi": "exit 0"})
    assert find_mpi(ALL).passed_over == [
        "mpi/hpcx does not start: one rank did not start and end within 0.5 s"
    ]


def test_what_mpirun_says_is_asked_once_until_it_changes(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual(node, SAYS["mpich"], monkeypatch)
    assert find_mpi(ALL).name == "mpich"
    kept = json.loads((node / "home/.ranklift/mpirun.json").read_text())
    assert "HYDRA" in kept["says"]
    plant(node / "usual", SAYS["intelmpi"])
    assert find_mpi(ALL).name == "intelmpi"


def test_a_node_tells_what_it_has_when_asked(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual(node, SAYS["mpich"], monkeypatch)
    entry = Path(detect.__file__).parents[1] / "__main__.py"
    answers = []
    for known in (ALL, ["intelmpi"]):
        request = json.dumps({"known": known, "first": ""}).encode() + b"\n"
        done = subprocess.run(
            [sys.executable, "-I", "-S", str(entry), "mpi"], input=request, capture_output=True, check=True
        )
        answers.append(json.loads(done.stdout))
    assert answers == [
        {"title": "MPICH 5.0.2", "command": "mpirun", "unwritable": []},
        {"error": "mpirun is MPICH 5.0.2; Intel MPI is required", "unwritable": []},
    ]


def test_a_module_that_does_not_load_is_named_in_bounded_time(
    node: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (node / "modules.sh").write_text("module() { while :; do :; done; }\n")
    monkeypatch.setattr(timing, "MPI_LOOK_S", 0.5)
    with pytest.raises(CannotLaunch, match=r"^`module load mpi/mvapich2` did not end within 0.5 s$"):
        find_mpi(["mpich"])
