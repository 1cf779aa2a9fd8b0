"""Signals to all processes of a rank, and the end of an MPI's daemon whose mpirun has gone."""

from __future__ import annotations

import subprocess
import sys
import textwrap
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


SIGNALLER = """
import os, subprocess, time
from launch.remote.base import processes

rank = subprocess.Popen(["bash", "-c", {script!r}], stdout=subprocess.PIPE, text=True, start_new_session=True)
assert rank.stdout.readline() == "up\\n"
listed = processes.descendants

def list_late(root):
    time.sleep(0.3)  # a handler has begun before the second listing
    return listed(root)

processes.descendants = list_late
assert rank.pid in processes.signal_descendants(processes.SIGTERM)
print(rank.stdout.read(), end="")
"""


def signalled(script: str) -> str:
    """Return what a rank with this script prints after it was signalled."""
    argv = [sys.executable, "-c", SIGNALLER.format(script=textwrap.dedent(script))]
    return subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True, timeout=30).stdout


def test_what_a_handler_starts_is_not_signalled() -> None:
    assert (
        signalled(
            """
            trap 'sleep 1; echo saved by $(sleep 0.5; echo itself); exit' TERM
            echo up
            while :; do sleep 0.1; done
            """
        )
        == "saved by itself\n"
    )


def test_a_process_in_a_session_of_its_own_is_signalled_too() -> None:
    assert (
        signalled(
            """
            trap : TERM
            setsid bash -c 'trap "echo ended; exit" TERM; echo up; while :; do sleep 0.1; done' &
            until wait; do :; done
            """
        )
        == "ended\n"
    )
