"""Ending an MPI's daemon that waits for an mpirun it will never hear of again."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator

import pytest

from launch.remote.base import processes

YOUNGEST, OLDEST = 2**22, 1


@pytest.fixture
def daemon() -> Iterator[subprocess.Popen[bytes]]:
    """It has one process for a second and would stay for an hour."""
    with subprocess.Popen(["sh", "-c", "sleep 1 & exec sleep 3600"]) as process:
        while not processes.descendants(process.pid):
            time.sleep(0.01)
        yield process
        process.kill()


def test_the_youngest_of_its_processes_ends_it_when_the_others_have_gone(
    daemon: subprocess.Popen[bytes],
) -> None:
    began = time.monotonic()
    processes.end_idle_launcher(daemon.pid, processes.start_time(daemon.pid), YOUNGEST)
    assert daemon.wait(10) == -processes.SIGTERM
    assert time.monotonic() - began > 0.5


def test_the_others_leave_that_to_it(daemon: subprocess.Popen[bytes]) -> None:
    processes.end_idle_launcher(daemon.pid, processes.start_time(daemon.pid), OLDEST)
    assert daemon.poll() is None


@pytest.mark.parametrize("started", [b"1", b""])
def test_a_process_that_has_only_the_daemons_number_is_left_alone(
    daemon: subprocess.Popen[bytes], started: bytes
) -> None:
    assert processes.start_time(daemon.pid) not in (b"", started)
    processes.end_idle_launcher(daemon.pid, started, YOUNGEST)
    time.sleep(0.1)
    assert daemon.poll() is None


def test_what_has_ended_has_no_start() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    assert processes.start_time(process.pid) == b""
