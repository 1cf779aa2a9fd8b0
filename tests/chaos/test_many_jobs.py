"""A head that has had many jobs is as it was before them, but for their records."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from launch.client import submit
from launch.job.spec import JobSpec
from launch.remote.base.job_dir import TERMINAL
from playbooks.ssh.connection import Cluster
from tests.chaos.conftest import Figures
from tests.chaos.engine import PATIENCE_S, Engine, until
from tests.chaos.inside import Inside, is_of_the_watch

pytestmark = [pytest.mark.chaos, pytest.mark.soak, pytest.mark.timeout(600)]

JOBS, FIRST, AT_ONCE = 500, 20, 4
RECORD_FILES, RECORD_BYTES = 24, 65536
"""What the records of a job that printed next to nothing may be at most."""
MORE_KILOBYTES = 1024
KEPT = (
    "/.ranklift/jobs/",
    "/.ranklift/slots/",
    "/.ranklift/agent/watch.log",
    "/.ranklift/agent/active",
    "/.ranklift/agent/leads",
)
"""Records of jobs, and the name of the last one in each slot."""
LIST_S, TRIES = 1.0, 10


@dataclass(frozen=True, slots=True)
class Look:
    """Everything on a node that could grow, but for the records of jobs."""

    processes: list[tuple[int, int, str]]
    descriptors: int
    kilobytes: int
    files: dict[str, int]
    """Size of every file that its user has."""


def look(inside: Inside) -> Look:
    stays = [
        found
        for found in inside.processes()
        if not found.args.startswith("sshd: azureuser") and not is_of_the_watch(found.args)
    ]
    files = _files([inside.path(""), inside.path("../../tmp"), inside.path("../../dev/shm")])
    return Look(
        [(found.pid, found.start, found.args) for found in stays],
        sum(found.descriptors for found in stays),
        sum(found.kilobytes for found in stays),
        {name: size for name, size in files.items() if not any(its in name for its in KEPT)},
    )


def _files(folders: Iterable[Path]) -> dict[str, int]:
    found = {}
    for folder in folders:
        for path in folder.rglob("*"):
            if not path.is_symlink() and path.is_file():
                found[str(path)] = path.stat().st_size
    return found


def run_one_after_the_other(engine: Engine, inside: Inside, count: int) -> list[str]:
    """So many short jobs, a few at a time, each a little job on that node alone."""

    numbers = itertools.count()

    def run(cluster: Cluster) -> str:
        spec = JobSpec(
            name=f"short-{next(numbers)}",  # ids of one name and second differ in 16 bits alone
            kind="pytorch",
            command=("true",),
            processes_per_node=2,
            snapshot=engine.snapshot,
        )
        job = submit.submit(engine.plan([inside], spec), engine.head(cluster, inside.name))
        until(lambda: state_of(inside, job) in TERMINAL, f"{job} ends")
        return job

    def run_some(number: int) -> list[str]:
        with Cluster(engine.inventory, engine.stack_folder) as cluster:
            return [run(cluster) for _ in range(number)]

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return [job for jobs in pool.map(run_some, [count // AT_ONCE] * AT_ONCE) for job in jobs]


def state_of(inside: Inside, job: str) -> str:
    return str(json.loads(inside.path(f".ranklift/jobs/{job}/state.json").read_text())["state"])


def settled(inside: Inside) -> Look:
    """The node once supervisors that have written their last word have ended."""
    until(lambda: len(look(inside).processes) == 2, look(inside), PATIENCE_S)
    return look(inside)


def quickest(engine: Engine, *words: str) -> float:
    """Seconds that a command takes when the machine does nothing else: the first good time, or the best."""
    seconds: list[float] = []
    while not seconds or (seconds[-1] >= LIST_S and len(seconds) < TRIES):
        began = time.monotonic()
        engine.workplace.fab(*words)
        seconds.append(time.monotonic() - began)
    return min(seconds)


def test_500_short_jobs_leave_nothing_but_their_records(engine: Engine, figures: Figures) -> None:
    with engine.lent(1) as (inside,):
        jobs = run_one_after_the_other(engine, inside, FIRST)
        before = settled(inside)
        began = time.monotonic()
        jobs += run_one_after_the_other(engine, inside, JOBS - FIRST)
        took = time.monotonic() - began
        after = settled(inside)
        query = ("jobs", "--nodes", str(int(inside.name[-6:], 36)))
        listed = engine.workplace.fab(*query, "--all", "--json").json()
        seconds = quickest(engine, *query)
        records = {job: _files([inside.path(f".ranklift/jobs/{job}")]) for job in jobs}
        folders = [job for job in jobs if inside.path(f".ranklift/jobs/{job}/work").exists()]
    figures.append(
        (
            f"{JOBS} short jobs",
            "nothing grows",
            f"{after.kilobytes - before.kilobytes} kB, {len(after.files) - len(before.files)} files",
            f"{took:.1f} s",
            "-",
            *[""] * 2,
        )
    )
    figures.append(
        (f"fab jobs with {JOBS} jobs", "at once", "", f"{seconds:.1f} s", f"{LIST_S:g} s", *[""] * 2)
    )
    ended = {job["job"]: job["state"] for job in listed if job["name"].startswith("short-")}
    assert ended == dict.fromkeys(jobs, "SUCCEEDED")
    assert after.processes == before.processes
    assert after.descriptors == before.descriptors
    assert after.kilobytes <= before.kilobytes + MORE_KILOBYTES
    assert {name: size for name, size in after.files.items() if size != before.files.get(name)} == {}
    assert folders == []
    assert max(len(files) for files in records.values()) <= RECORD_FILES
    assert max(sum(files.values()) for files in records.values()) <= RECORD_BYTES
    assert seconds < LIST_S
