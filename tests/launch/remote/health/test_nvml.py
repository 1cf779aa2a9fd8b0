"""What NVIDIA's driver is asked for, of a library with the same functions."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from launch.remote.health import nvml
from launch.remote.health.nvml import Driver, Gpu, ask_driver, read_driver


def library(folder: Path, status: int = 0, *, ecc: int = 0, hangs: bool = False) -> str:
    made = folder / f"libnvidia-ml-{status}-{ecc}-{hangs}.so"
    source = Path(__file__).with_name("nvml_library.c")
    states = (f"-DINIT_STATUS={'pause()' if hangs else status}", f"-DECC_STATUS={ecc}")
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


def test_a_process_of_its_own_asks_the_driver(tmp_path: Path) -> None:
    made = library(tmp_path)
    assert ask_driver(30.0, made) == read_driver(made)


def test_a_driver_that_hangs_is_told_from_a_library_that_does_not_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = library(tmp_path, hangs=True)
    assert ask_driver(0.5, made) == Driver(hangs="no answer within 0.5 s")
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: time.sleep(600))
    assert ask_driver(0.5, made) == Driver(unread=f"{made}: not loaded in 0.5 s")


def test_a_driver_that_ends_the_process_that_asks_it_is_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvml, "read_driver", lambda _library: os.abort())
    unread = "the process that queried NVML ended with status 0x6, without an answer"
    assert ask_driver(30.0, library(tmp_path)) == Driver(unread=unread)


def test_whoever_reads_the_output_of_the_look_does_not_wait_for_a_driver_that_hangs(tmp_path: Path) -> None:
    asks = f"ask_driver(0.5, {library(tmp_path, hangs=True)!r})"
    program = f"from launch.remote.health.nvml import ask_driver; print({asks}.hangs)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60, check=True)
    assert done.stdout == b"no answer within 0.5 s\n"
