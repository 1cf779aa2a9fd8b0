"""Nodes whose devices are broken: found before a job, and by whoever asks for the cluster's state."""

from __future__ import annotations

import json

import pytest

from launch.remote.base import timing
from tests.e2e.workplace import Workplace

pytestmark = [pytest.mark.health, pytest.mark.timeout(900)]


def fault(cluster: Workplace, *words: str) -> None:
    cluster.fab("rehearsal.fault", *words)


def launch(cluster: Workplace, *words: str, status: int | None = 0) -> str:
    ran = cluster.fab("launch.mpi", "hostname", *words, status=status)
    return ran.out + ran.err


@pytest.mark.for_every_change
def test_nodes_as_azure_makes_them_are_healthy(cluster: Workplace) -> None:
    rows = cluster.fab("status", "--json").json()
    assert [row["findings"] for row in rows] == [[], [], []]
    assert "health" not in launch(cluster)


@pytest.mark.for_every_change
def test_a_job_is_refused_where_a_link_is_down_and_the_node_is_named(healed: Workplace) -> None:
    fault(healed, "hca", "--nodes", "2", "--state", "down")
    shown = launch(healed, status=None)
    assert "node000002: mlx5_ib0:1: 1: DOWN; expected: 4: ACTIVE" in shown
    assert "`fab replace` the node" in shown
    status = healed.fab("status", status=1)
    assert "node000002: mlx5_ib0:1: 1: DOWN" in status.err
    assert "`fab replace 2`" in status.err
    assert "health" not in launch(healed, "--nodes", "0,1")


BROKEN = [
    (("hca", "--state", "init"), "mlx5_ib0:1: 2: INIT"),
    (("hca", "--state", "polling"), "mlx5_ib0:1: 2: Polling"),
    (("rate", "--rate", "56"), "mlx5_ib0:1: 56 Gb/sec"),
    (("pkey",), "mlx5_ib0:1: 0x"),
    (("gpu", "--state", "lost"), "NVML_ERROR_GPU_IS_LOST"),
    (("gpu", "--state", "ecc"), "double-bit errors"),
    (("gpu", "--state", "throttled"), "slowdown"),
    (("gpu", "--state", "recovery"), "GPU 0"),
    (("gpu", "--state", "missing"), "8 GPUs on the PCI bus, 7 known to the driver"),
    (("gpu", "--state", "absent"), "PCI bus: 7 GPUs"),
    (("xid", "--code", "79"), "Xid 79"),
]


@pytest.mark.parametrize(("words", "shown"), BROKEN, ids=[" ".join(words) for words, _ in BROKEN])
def test_each_broken_device_refuses_a_job(healed: Workplace, words: tuple[str, ...], shown: str) -> None:
    fault(healed, words[0], "--nodes", "1", *words[1:])
    printed = launch(healed, status=None)
    assert "no rank was started: node000001: " in printed
    assert shown in printed


HARMLESS = [
    (("gpu", "--state", "hot"), "C; expected: at most 93 C"),
    (("gpu", "--state", "no-persistence"), "GPU 0 at 0001:00:00.0: off"),
    (("xid", "--code", "94"), ""),
]


@pytest.mark.parametrize(("words", "shown"), HARMLESS, ids=[" ".join(words) for words, _ in HARMLESS])
def test_a_warning_is_shown_and_the_job_runs(healed: Workplace, words: tuple[str, ...], shown: str) -> None:
    fault(healed, words[0], "--nodes", "1", *words[1:])
    printed = launch(healed)
    assert shown in printed
    assert ("node000001: health warning" in printed) == bool(shown)


def test_a_driver_that_hangs_is_named_and_holds_nothing_up(healed: Workplace) -> None:
    fault(healed, "gpu", "--nodes", "1", "--state", "hang")
    printed = launch(healed, status=None)
    assert f"node000001: NVML: no answer within {timing.NVML_S:g} s" in printed


def test_health_warn_starts_the_job_and_fab_job_shows_what_was_found(healed: Workplace) -> None:
    fault(healed, "gpu", "--nodes", "1", "--state", "ecc")
    printed = launch(healed, "--health", "warn", "--name", "anyway")
    assert "node000001: health error: GPU 0 at 0001:00:00.0: " in printed
    (job,) = [one["job"] for one in healed.fab("jobs", "--json").json() if one["job"].startswith("anyway-")]
    assert "node000001 health error: GPU 0 at 0001:00:00.0: " in healed.fab("job", job).out
    events = json.loads(healed.fab("job", job, "--json").out)["events"]
    (found,) = [event for event in events if event["event"] == "health"]
    assert [one["rule"] for one in found["fields"]["findings"]] == ["gpu-ecc"]


def test_with_health_off_nobody_looks_and_the_job_says_so(healed: Workplace) -> None:
    fault(healed, "gpu", "--nodes", "1", "--state", "ecc")
    assert "health error" not in launch(healed, "--health", "off", "--name", "blind")
    (job,) = [one["job"] for one in healed.fab("jobs", "--json").json() if one["job"].startswith("blind-")]
    assert "off: nobody looked at its nodes" in healed.fab("job", job).out


def test_a_new_node_with_a_broken_device_is_not_ready(healed: Workplace) -> None:
    fault(healed, "gpu", "--nodes", "1", "--state", "ecc")
    waited = healed.fab("wait", status=None)
    assert waited.status != 0
    assert "node000001: GPU 0 at 0001:00:00.0: " in waited.err
    assert "`fab replace 1`" in waited.err


def test_a_deep_check_without_nccls_tests_names_the_other_measure(healed: Workplace) -> None:
    ran = healed.fab("check", "--deep", status=2)
    assert "--by = 'nccl': cannot measure: " in ran.err
    assert "give --by mpi, which needs an MPI alone" in ran.err
