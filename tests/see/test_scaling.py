"""``fab scaling`` on rehearsed nodes: a known serial fraction, a run that fails, one that is stopped."""

from __future__ import annotations

import csv
import io
import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.workplace import Ran, Workplace
from tests.see.browser import draw_page
from tests.see.running_jobs import state_of, until

pytestmark = [pytest.mark.see, pytest.mark.timeout(300)]

SERIAL, PARALLEL = 0.06, 0.24
SLEEPS = f"""\
import os, sys, time

nodes = int(os.environ["WORLD_SIZE"])
if os.path.exists("/tmp/scaling-fails"):
    sys.exit("not today")
step = {SERIAL} + {PARALLEL} / nodes
due = before = time.monotonic()
for _ in range(int(sys.argv[1])):
    due += step  # what one step oversleeps, the next does not sleep
    time.sleep(max(0.0, due - time.monotonic()))
    now = time.monotonic()
    if os.environ["RANK"] == "0":
        print(f"{{1 / (now - before):.6f}} samples/s", flush=True)
    before = now
"""
JOB = """\
command: python3 sleeps.py ${{inputs.steps}}
code: .
inputs: {steps: 12}
distribution: {type: pytorch, process_count_per_instance: 1}
"""


def write_job(cluster: Workplace, name: str) -> Path:
    folder = cluster.own / name
    folder.mkdir()
    (folder / "sleeps.py").write_text(SLEEPS)
    (folder / "job.yml").write_text(JOB)
    return folder


def measure_twice(folder: Path) -> tuple[str, ...]:
    """The words of a measurement: the job once on one node, once on two."""
    words = ("scaling", f"{folder}/job.yml", "--nodes", "1,2", "--repeat", "1", "--of", "job")
    return (*words, "--output", f"{folder}/out")


def record(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "out" / "scaling.json").read_text())
    return found


@pytest.fixture(scope="module")
def known(cluster: Workplace) -> tuple[Path, Ran]:
    """The folder of a job whose serial fraction is known, and its measurement."""
    folder = write_job(cluster, "known")
    ran = cluster.fab(
        *("scaling", "known/job.yml", "--nodes", "1,2,4", "--repeat", "3", "--strong", "--of", "job"),
        *("--warm-up", "2", "--output", "known/out"),
    )
    return folder, ran


@pytest.mark.for_every_change
def test_a_serial_fraction_known_by_construction_is_recovered_within_its_stated_error(
    known: tuple[Path, Ran],
) -> None:
    folder, ran = known
    found = record(folder)
    serial = found["serial_fraction"]
    assert abs(serial["value"] - SERIAL / (SERIAL + PARALLEL)) <= serial["error"] < 0.05, ran
    assert [point["nodes"] for point in found["points"]] == [1, 2, 4]
    order = [(run["run"]["nodes"], run["run"]["repeat"]) for run in found["runs"]]
    assert order == [(1, 0), (2, 0), (4, 0), (4, 1), (2, 1), (1, 1), (1, 2), (2, 2), (4, 2)]
    # once for nodes that are used together for the first time, which another test's job may have been
    assert found["runs"][1]["transport"]["verdict"] in ("omitted", "none")
    assert "rehearsed nodes on one machine: says nothing of Azure" in ran.out
    assert re.search(r"^serial fraction: (19|20|21)\.\d % ± ", ran.out, re.MULTILINE), ran
    rows = list(csv.DictReader(io.StringIO((folder / "out" / "scaling.csv").read_text())))
    assert [(row["nodes"], row["ranks"], row["figures"]) for row in rows[:4]] == [
        *(("1", "1", "12"),) * 3,
        ("2", "2", "12"),
    ]
    page = (folder / "out" / "scaling.html").read_text()
    assert "says nothing of Azure" in page
    assert "published:" not in page.lower()


def test_a_picture_is_drawn_of_a_measurement(known: tuple[Path, Ran], tmp_path: Path) -> None:
    draw_page(known[0] / "out" / "scaling.html", tmp_path, "scaling", "1000,880")


def test_a_failed_run_is_named_ends_as_it_did_and_alone_is_repeated_later(cluster: Workplace) -> None:
    folder = write_job(cluster, "failing")
    words = measure_twice(folder)
    cluster.fab("exec", "--nodes", "1", "--", "touch", "/tmp/scaling-fails")
    try:
        ran = cluster.fab(*words, status=1)
    finally:
        cluster.fab("exec", "--nodes", "1", "--", "rm", "/tmp/scaling-fails")
    assert "not today" in ran.err
    assert "repeat 1 on 2 nodes failed; what was measured is in" in ran.err
    first = record(folder)
    assert [run["run"]["nodes"] for run in first["runs"]] == [1]
    assert [(one["run"]["nodes"], one["job"][:8]) for one in first["failures"]] == [(2, "sleeps-2")]

    assert "has a measurement; give --resume" in cluster.fab(*words, status=2).err
    ran = cluster.fab(*words, "--resume")
    assert "run 1 of 1: repeat 1 on 2 nodes" in ran.err
    found = record(folder)
    assert found["failures"] == []
    assert found["runs"][0] == first["runs"][0]
    assert "no verdict" in "".join(found["verdict"])  # one run has no spread

    (folder / "sleeps.py").write_text(SLEEPS + "# another job\n")
    assert "another job file, code or options" in cluster.fab(*words, "--resume", status=2).err


def test_an_interrupt_ends_the_job_that_runs_and_keeps_what_is_measured(cluster: Workplace) -> None:
    folder = write_job(cluster, "interrupted")
    words = (*measure_twice(folder), "--set", "inputs.steps=400")
    with cluster.begin(*words) as process:
        newest = until(lambda: running(cluster, "sleeps-"))
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 130, out
    assert f"cancelling job {newest}" in out
    assert "the same command with --resume continues" in out
    assert state_of(cluster, newest) == "CANCELLED"
    assert record(folder)["runs"] == []


def running(cluster: Workplace, start: str) -> str | None:
    """The job that runs now, if its id begins so."""
    jobs = cluster.fab("jobs", "--json").json()
    return next(
        (one["job"] for one in jobs if one["state"] == "RUNNING" and one["job"].startswith(start)), None
    )
