"""What a head keeps of a job on rehearsed nodes, whose devices show GPUs and InfiniBand."""

from __future__ import annotations

import json
import time

import pytest

from launch.remote.sample.sample_records import SampleReport
from tests.e2e.workplace import Workplace
from tests.see.running_jobs import running_job, until

pytestmark = [pytest.mark.see, pytest.mark.timeout(300)]

GPUS, NODES = 8, 4
HOT = ("gpu", "--nodes", "1", "--device", "3", "--state")


def report(workplace: Workplace, job: str) -> SampleReport:
    """The head's answer to the command ``samples``, without its frame's header."""
    line = f"python3 -I -S .ranklift/remote/*/__main__.py samples {job} | tail -c +6"
    (answer,) = workplace.fab("exec", line, "--nodes", "0", "--json").json().values()
    found: SampleReport = json.loads(answer["stdout"])
    return found


def flags(workplace: Workplace, job: str) -> list[str]:
    return [flag["text"] for flag in report(workplace, job)["flags"]]


@pytest.mark.for_every_change
def test_nodes_ranks_gpus_and_ports_are_sampled_and_what_breaks_is_named(healed: Workplace) -> None:
    with running_job(healed, "--nproc-per-node", "2", "--no-probe") as job:

        def sampled() -> SampleReport | None:
            found = report(healed, job)
            live = found["live"]
            if live is None or len(live["ranks"]) < 2 * NODES:
                return None
            return found if all(one["gpus"] for one in live["nodes"].values()) else None

        found = until(sampled)
        assert found["now"] - found["live"]["time"] < 3
        assert found["live"]["nodes"].keys() == {f"node00000{number}" for number in range(NODES)}
        for node in found["live"]["nodes"].values():
            assert (len(node["gpus"]), node["ib_rx"], node["ib_tx"]) == (GPUS, 0, 0)
            assert node["gpus"][0]["clock_events"] == 0
        for number, rank in found["live"]["ranks"].items():
            assert rank["metrics"].keys() == {"step", "loss", "samples_per_s"}
            assert rank["metrics"]["samples_per_s"] == 100 + int(number)
        assert found["flags"] == []
        healed.fab("rehearsal.fault", *HOT, "throttled")
        until(lambda: "node000001 GPU 3 slowed: heat (hardware)" in flags(healed, job))
        healed.fab("rehearsal.fault", *HOT, "healthy")
        until(lambda: flags(healed, job) == [])
        healed.fab("rehearsal.fault", "partition", "--nodes", "2")
        try:
            (text,) = until(lambda: flags(healed, job))
        finally:
            healed.fab("rehearsal.fault", "heal", "--nodes", "2")
        assert text.startswith("node000002 has sent no sample for ")


def test_a_rank_that_goes_silent_is_named_with_its_seconds(cluster: Workplace) -> None:
    script = """\
import os, time
for step in range(10**6):
    if os.environ["RANK"] != "5" or step < 6:
        print("step", step, flush=True)
    time.sleep(0.5)
"""
    with running_job(cluster, "--nproc-per-node", "2", "--no-probe", script=script) as job:
        began = time.monotonic()
        (text,) = until(lambda: flags(cluster, job), 90)
        assert time.monotonic() - began > 25
        assert text.startswith("rank 5 silent for 3")
