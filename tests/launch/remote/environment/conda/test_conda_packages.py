"""How the packages are installed by a node's own conda, and which are asked for."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from launch.remote.environment import python_env
from launch.remote.environment.build import Failed
from launch.remote.environment.conda.conda_packages import COMPILE, cuda_version, specs_of
from launch.remote.environment.conda.conda_tools import find_conda
from tests.launch.remote.environment.image_requests import request, unreported

CONDA = f"""#!/bin/sh
printf '%s\\n' "$@" >"$HOME/calls"
env | grep -E '^(CONDA|MAMBA)_' | sort >"$HOME/variables"
[ ! -e "$HOME/fail" ] || {{ echo 'nothing provides numpy'; exit 1; }}
mkdir -p "$5/bin" "$5/conda-meta" "$5/lib"
printf '#!/bin/sh\\n' >"$5/bin/python"
chmod +x "$5/bin/python"
record='{{"url": "https://me:secret@a.example/numpy-2-0.conda", "md5": "{"0" * 32}"}}'
echo "$record" >"$5/conda-meta/numpy-2-0.json"
"""


def install(folder: Path, name: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(CONDA)
    (folder / name).chmod(0o755)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A node's programs, which install nothing; its home folder is ``tmp_path``."""
    for name in [name for name in os.environ if name.startswith(("CONDA", "MAMBA"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    install(tmp_path / "bin", "conda")
    return tmp_path / "bin"


def made(tmp_path: Path) -> tuple[list[str], Path]:
    conda = json.dumps({"channels": ["conda-forge", "folder:0"], "dependencies": ["numpy=2"]})
    asked = request("", kind="python", conda=conda, channels=["00aa"], python="3.10")
    python_env.make(asked, str(tmp_path / "env"), 2, unreported)
    return (tmp_path / "calls").read_text().splitlines(), tmp_path / "env"


@pytest.mark.parametrize("program", ["conda", "mamba", "micromamba"])
def test_the_nodes_own_program_is_called_in_the_same_way(
    programs: Path, tmp_path: Path, program: str
) -> None:
    install(programs, program)
    words, folder = made(tmp_path)
    assert words == [
        *("create", "--yes", "--quiet", "--prefix", str(folder), "--override-channels"),
        *("--channel", "conda-forge", "--channel", f"file://{tmp_path}/.ranklift/snapshots/00aa"),
        *("--channel", "defaults", "numpy=2", "python=3.10"),
    ]
    assert (tmp_path / "variables").read_text().splitlines() == [
        "CONDA_OVERRIDE_CUDA=",
        f"CONDA_PKGS_DIRS={tmp_path}/.ranklift/cache/conda/packages",
        "CONDA_REGISTER_ENVS=false",
        f"MAMBA_ROOT_PREFIX={tmp_path}/.ranklift/cache/conda/micromamba",
    ]


@pytest.mark.parametrize("login", ["me:secret@a.example/x", "a.example/t/secret/x"])
def test_a_channel_of_the_nodes_settings_with_a_login_reaches_no_command_line(
    programs: Path, tmp_path: Path, login: str
) -> None:
    (tmp_path / ".condarc").write_text(f"channels: ['https://{login}']\n")
    with pytest.raises(
        Failed, match=r"channel https://\S*\*\*\*\S*: a password or token would stay"
    ) as caught:
        made(tmp_path)
    assert "secret" not in str(caught.value)
    assert not (tmp_path / "calls").exists()


def test_the_packages_are_recorded_without_passwords(programs: Path, tmp_path: Path) -> None:
    _, folder = made(tmp_path)
    lines = (folder / "conda-meta/explicit.txt").read_text().splitlines()
    assert lines == ["@EXPLICIT", f"https://a.example/numpy-2-0.conda#{'0' * 32}"]


def test_a_solve_that_fails_is_quoted(programs: Path, tmp_path: Path) -> None:
    (tmp_path / "fail").touch()
    with pytest.raises(Failed, match="installing conda's packages by conda failed") as caught:
        made(tmp_path)
    assert caught.value.lines == ["nothing provides numpy"]


def test_the_fastest_program_is_taken_and_one_that_only_its_variable_names(programs: Path) -> None:
    install(programs, "mamba")
    assert find_conda(os.environ) == f"{programs}/mamba"
    assert find_conda({"PATH": "/nowhere", "CONDA_EXE": "/opt/conda/bin/conda"}) == "/opt/conda/bin/conda"
    assert find_conda({"PATH": "/nowhere"}) == ""


@pytest.mark.parametrize(
    ("dependencies", "python", "specs"),
    [
        (["numpy"], "", ["numpy", "python"]),
        (["numpy"], "3.10", ["numpy", "python=3.10"]),
        (["numpy"], ">=3.9,<3.12", ["numpy", "python>=3.9,<3.12"]),
        (["python=3.10.*=*_cpython"], "", ["python=3.10.*=*_cpython"]),
        (["conda-forge::python >=3.9", "python_abi"], "", ["conda-forge::python >=3.9", "python_abi"]),
        (["conda-forge::python>=3.9"], "", ["conda-forge::python>=3.9"]),
        (["python-dateutil"], "", ["python-dateutil", "python"]),
    ],
)
def test_python_is_always_among_them(dependencies: list[str], python: str, specs: list[str]) -> None:
    conda = json.dumps({"channels": [], "dependencies": dependencies})
    assert specs_of({"conda": conda, "python": python}) == specs


def test_a_compilation_that_is_killed_leaves_no_process(tmp_path: Path) -> None:
    for number in range(100):
        (tmp_path / f"part{number}.py").write_text("".join(f"def f{n}(x): return [x]\n" for n in range(3000)))
    until = time.monotonic() + 10
    with subprocess.Popen(
        [sys.executable, "-I", "-c", COMPILE, str(tmp_path)], start_new_session=True
    ) as compiling:
        while not (workers := _in_session(compiling.pid) - {compiling.pid}):
            assert compiling.poll() is None
            assert time.monotonic() < until
        compiling.kill()
    try:
        while workers & _in_session(compiling.pid):
            assert time.monotonic() < until, "a worker waits for work"
            time.sleep(0.05)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(compiling.pid, signal.SIGKILL)


def _in_session(session: int) -> set[int]:
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if " Z " not in (process / "stat").read_text() and os.getsid(int(process.name)) == session:
                found.add(int(process.name))
    return found


def test_without_a_driver_there_is_no_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CONDA_OVERRIDE_CUDA", raising=False)
    assert cuda_version() == ""
    monkeypatch.setenv("CONDA_OVERRIDE_CUDA", "12.4")
    assert cuda_version() == "12.4"
