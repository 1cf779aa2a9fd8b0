"""How long a probe may go on: as long as its processes move, and no longer than it may take in all."""

from __future__ import annotations

from launch.remote.base import timing
from launch.remote.probe.probe_limit import ProbeLimit

STILL, ALL = timing.PROBE_STILL_S, timing.PROBE_S


def watched(until: float, *, cpu_permille: int = 0, growing: bool = False) -> tuple[float, str]:
    """The second at which a probe with such samples is ended, and why; without that, the last one."""
    limit = ProbeLimit()
    limit.over(0.0, all_run=True)
    for now in range(1, int(until)):
        limit.on_usage(0, cpu_permille, now if growing else 4096, float(now))
        why = limit.over(float(now), all_run=True)
        if why:
            return now, why
    return until, ""


def test_processes_that_do_nothing_are_ended() -> None:
    at, why = watched(1000)
    assert STILL < at < STILL + 3
    assert why.startswith("none of its processes has printed or used its processor for 6")


def test_threads_that_only_look_around_are_no_movement() -> None:
    assert watched(1000, cpu_permille=16)[0] < STILL + 3


def test_processes_that_compute_go_on_until_the_limit_of_all() -> None:
    assert watched(1000, cpu_permille=100) == (ALL + 1, f"it did not end within {ALL:g} s")


def test_processes_that_load_from_a_slow_disk_go_on() -> None:
    assert watched(1000, growing=True)[0] > ALL


def test_output_is_movement() -> None:
    limit = ProbeLimit()
    limit.over(0.0, all_run=True)
    limit.on_usage(0, 0, 4096, 1.0)
    limit.on_output(STILL)
    limit.on_usage(0, 0, 4096, STILL + 10)
    assert limit.over(STILL + 10, all_run=True) == ""


def test_without_samples_nobody_knows_that_nothing_moves() -> None:
    limit = ProbeLimit()
    limit.over(0.0, all_run=True)
    assert limit.over(2 * STILL, all_run=True) == ""
    limit.on_usage(0, 0, 4096, 10.0)
    assert limit.over(2 * STILL, all_run=True) == ""  # its node's runner is busy
    assert limit.over(ALL + 1, all_run=True) != ""


def test_the_time_runs_once_all_processes_run() -> None:
    limit = ProbeLimit()
    assert limit.over(1000.0, all_run=False) == ""
    assert limit.over(1001.0, all_run=True) == ""
    assert limit.over(1000.0 + ALL, all_run=True) == ""
    assert limit.over(1002.0 + ALL, all_run=True) != ""
