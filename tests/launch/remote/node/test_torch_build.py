"""Whether a job's torch has code for a node's GPUs, without importing torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from launch.remote.node.prepare import missing_modules, modules_argv
from launch.remote.node.torch_build import LOOK, driver_version, unfit_torch

CU126 = "sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_90"
CU132 = "sm_75 sm_80 sm_86 sm_90 sm_100 sm_120"
VERSION = """\
from typing import Optional
__version__ = '2.15.0+cu132'
debug = False
cuda: Optional[str] = {cuda}
hip: Optional[str] = None
"""


def looked(tmp_path: Path, cuda: str, library: bytes) -> bytes:
    """What a node's check of modules prints under a Python with such a torch, which cannot be imported."""
    torch = tmp_path / "torch"
    (torch / "lib").mkdir(parents=True)
    (torch / "__init__.py").write_text("raise SystemExit('imported')\n")
    (torch / "version.py").write_text(VERSION.format(cuda=cuda))
    (torch / "lib" / "libtorch_python.so").write_bytes(library)
    argv = modules_argv(sys.executable, ["torch"], LOOK)
    env = {"PYTHONPATH": str(tmp_path)}
    ran = subprocess.run(argv, env=env, capture_output=True, check=False, timeout=60)
    assert missing_modules("python3", ran.returncode, ran.stdout) == ""
    return ran.stdout


def build(built: str, version: str = "2.15.0+cu132", cuda: str = "13.2") -> bytes:
    return f"\nmissing:\ntorch build: {version} {cuda} {built}\n".encode()


def test_what_torch_is_built_for_is_read_from_its_files(tmp_path: Path) -> None:
    library = b"\x7fELF\0sm_1 is not it\0" + b"x" * 5000 + b"\0" + CU132.encode() + b"\0more\0"
    assert looked(tmp_path, "'13.2'", library) == build(CU132)


@pytest.mark.parametrize(("cuda", "library"), [("None", CU132.encode()), ("'13.2'", b"nothing")])
def test_a_torch_that_does_not_say_is_left_alone(tmp_path: Path, cuda: str, library: bytes) -> None:
    output = looked(tmp_path, cuda, library)
    assert output == b"\nmissing:\n"
    assert unfit_torch(output, "7.0", "570.133.20") == ""


@pytest.mark.parametrize(
    ("built", "capability", "runs"),
    [
        *((CU126, "7.0", True), (CU132, "7.0", False), (CU132, "8.6", True), (CU132, "10.3", True)),
        *((CU126, "10.0", False), ("sm_80", "8.6", True), ("sm_86", "8.0", False), ("sm_90a", "9.0", True)),
        *(("sm_90a", "10.0", False), ("sm_50 compute_50", "12.0", True), ("compute_80", "7.0", False)),
        *(("sm_²", "7.0", False), ("sm_7", "7.0", False), (f"sm_{'7' * 5000}", "7.0", False)),
    ],
)
def test_code_runs_on_later_gpus_of_its_generation_and_ptx_on_all_later_ones(
    built: str, capability: str, runs: bool
) -> None:
    assert (unfit_torch(build(built), capability, "580.126.16") == "") is runs


def test_the_refusal_names_the_build_the_gpus_and_the_index_that_fits() -> None:
    assert unfit_torch(build(CU132), "7.0", "570.133.20") == (
        f"torch 2.15.0+cu132 is built for {CU132}, and the GPUs here are sm_70; require torch<2.15 with "
        "--extra-index-url https://download.pytorch.org/whl/cu126"
    )
    assert "the GPUs here are sm_100; require torch with" in unfit_torch(build(CU126), "10.0", "580.1")
    assert unfit_torch(build(CU126), "10.0", "580.1").endswith("/whl/cu130")


def test_a_cuda_newer_than_the_driver_is_refused_with_both_versions() -> None:
    assert unfit_torch(build(CU132), "9.0", "570.133.20") == (
        "torch 2.15.0+cu132 is built for CUDA 13.2, which needs driver 580; here is 570.133.20; "
        "require torch with --extra-index-url https://download.pytorch.org/whl/cu128"
    )
    assert unfit_torch(build(CU132), "9.0", "580.65.06") == ""
    assert unfit_torch(build(CU126, "2.8.0+cu126", "12.6"), "9.0", "535.161.08") == ""


def test_an_image_may_bring_the_libraries_of_a_newer_driver() -> None:
    assert unfit_torch(build(CU132), "9.0", "570.133.20", in_image=True) == ""
    assert "the GPUs here are sm_70" in unfit_torch(build(CU132), "7.0", "570.133.20", in_image=True)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.133.20  Sun May\nGCC version: 12.3.0\n",
            "570.133.20",
        ),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.126.16  Release\n", "580.126.16"),
        (None, ""),
    ],
)
def test_the_driver_is_the_loaded_ones(tmp_path: Path, text: str | None, version: str) -> None:
    path = tmp_path / "version"
    if text is not None:
        path.write_text(text)
    assert driver_version(str(path)) == version
