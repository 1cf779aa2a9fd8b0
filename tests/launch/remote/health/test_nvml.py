"""What NVIDIA's driver is asked for, of a library with the same functions."""

from __future__ import annotations

import subprocess
from pathlib import Path

from launch.remote.health.nvml import Driver, Gpu, read_driver


def library(folder: Path, status: int = 0, *, ecc: int = 0) -> str:
    made = folder / f"libnvidia-ml-{status}-{ecc}.so"
    source = Path(__file__).with_name("nvml_library.c")
    states = (f"-DINIT_STATUS={status}", f"-DECC_STATUS={ecc}")
    subprocess.run(["cc", "-shared", "-fPIC", *states, "-o", made, source], check=True)
    return str(made)


def test_each_gpus_state_is_read_and_a_lost_one_is_named(tmp_path: Path) -> None:
    assert read_driver(library(tmp_path)) == Driver(
        (
            Gpu(
                0,
                "000a:00:00.0",
                uncorrected=5000000000,
                remap_failed=True,
                remap_pending=False,
                recovery=2,
                clock_events=0x40,
                memory_use=40,
                persistence=True,
                temperature_c=55,
            ),
            Gpu(1, error="NVML_ERROR_GPU_IS_LOST"),
        )
    )


def test_a_query_that_fails_is_not_a_healthy_gpu(tmp_path: Path) -> None:
    first = read_driver(library(tmp_path, ecc=999)).gpus[0]
    assert (first.uncorrected, first.error) == (None, "nvmlDeviceGetTotalEccErrors: NVML_ERROR_UNKNOWN")


def test_what_a_gpu_does_not_have_is_unknown(tmp_path: Path) -> None:
    first = read_driver(library(tmp_path, ecc=3)).gpus[0]
    assert (first.uncorrected, first.error) == (None, "")


def test_a_driver_that_is_not_loaded_is_a_problem(tmp_path: Path) -> None:
    assert read_driver(library(tmp_path, 9)) == Driver(problem="nvmlInit_v2: NVML_ERROR_DRIVER_NOT_LOADED")


def test_a_node_without_the_library_is_a_problem() -> None:
    problem = read_driver("libno-such-nvidia-ml.so.1").problem
    assert problem.startswith("libno-such-nvidia-ml.so.1: cannot open shared object file")
