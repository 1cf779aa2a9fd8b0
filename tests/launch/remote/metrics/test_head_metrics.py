"""What of a head's folder becomes metrics, whoever wrote it."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from launch.remote.base.processes import identity
from launch.remote.metrics.head_metrics import head_metrics
from tests.launch.remote.metrics.known_heads import gpu, node, rank
from tests.launch.remote.sample_records import sample_state


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / ".ranklift"
    (made / "jobs").mkdir(parents=True)
    return made


def add(folder: Path, job: str, samples: Any = None, **fields: Any) -> Path:
    """A job of this process, in the queue while it has not ended."""
    place = folder / "jobs" / job
    place.mkdir()
    fields = {"state": "RUNNING", "supervisor": identity(os.getpid()), **fields}
    (place / "state.json").write_text(json.dumps({**sample_state(job), **fields}))
    if samples is not None:
        (place / "samples.json").write_text(json.dumps(samples))
    return place


def live(now: float = 1000.0, **fields: Any) -> dict[str, Any]:
    return {
        "time": now,
        "attempt": 0,
        "nodes": {"node000000": node(time=now, gpus=[gpu()])},
        "ranks": {"0": rank(time=now, silent_since=now - 3)},
        **fields,
    }


def test_a_running_job_has_its_state_and_its_samples(folder: Path) -> None:
    add(folder, "train-1", live(), name="train", nodes=["node000000"], ranks=1, restarts=2)
    (job,) = head_metrics(str(folder), time.time())["jobs"]
    assert (job["job"], job["state"], job["nodes"], job["ranks"], job["restarts"]) == (
        *("train-1", "RUNNING", 1, 1, 2),
    )
    assert job["live_nodes"] == live()["nodes"]
    assert job["live_ranks"] == live()["ranks"]


def test_a_head_without_jobs_has_none(tmp_path: Path) -> None:
    assert head_metrics(str(tmp_path / "nowhere"), 5.0) == {"now": 5.0, "jobs": []}


def test_a_job_whose_supervisor_is_gone_is_lost_and_its_records_stay(folder: Path) -> None:
    place = add(folder, "train-1", live(), supervisor={"pid": 2**22 + 1, "started": 1, "boot": ""})
    before = (place / "state.json").read_bytes()
    (job,) = head_metrics(str(folder), time.time())["jobs"]
    assert (job["state"], job["live_nodes"]) == ("LOST", {})
    assert (place / "state.json").read_bytes() == before


def test_jobs_that_ended_stay_for_an_hour(folder: Path) -> None:
    now = time.time()
    add(folder, "new-1", state="FAILED", ended=now - 3500, exit_status=9)
    add(folder, "old-1", state="FAILED", ended=now - 3700, exit_status=9)
    (job,) = head_metrics(str(folder), now)["jobs"]
    assert (job["job"], job["exit_status"]) == ("new-1", 9)


def test_a_job_of_the_queue_is_there_however_old_its_state_is(folder: Path) -> None:
    state = add(folder, "long-1") / "state.json"
    os.utime(state, (1.0, 1.0))
    assert head_metrics(str(folder), time.time())["jobs"] == []
    (folder / "queue.json").write_text(json.dumps([{"job": "long-1"}, {"job": "../../etc"}, 7]))
    assert [job["job"] for job in head_metrics(str(folder), time.time())["jobs"]] == ["long-1"]


def test_of_a_hundred_jobs_that_ended_no_more_are_read(folder: Path) -> None:
    for number in range(103):
        add(folder, f"j-{number:03}", state="SUCCEEDED", ended=time.time(), exit_status=0)
    assert len(head_metrics(str(folder), time.time())["jobs"]) == 100


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"state": 7}', '{"state": "RUNNING", "ranks": "many"}', "[" * 100_000]
)
def test_a_state_that_is_odd_leaves_its_job_out(folder: Path, text: str) -> None:
    (add(folder, "odd-1") / "state.json").write_text(text)
    add(folder, "good-1")
    assert [job["job"] for job in head_metrics(str(folder), time.time())["jobs"]] == ["good-1"]


@pytest.mark.parametrize(
    "odd",
    [
        {"cpu_permille": "1"},
        {"memory_used": None},
        {"net_rx": 10**30},
        {"ib_tx": 1.5},
        {"time": float("nan")},
        {"gpus": [{"index": 0}]},
        {"gpus": ["gpu"]},
    ],
)
def test_a_node_or_rank_that_is_odd_is_left_out_alone(folder: Path, odd: dict[str, Any]) -> None:
    samples = live(nodes={"a": node(**odd), "b": node(), "c": 7}, ranks={"x": rank(), "1": [], "2": rank()})
    add(folder, "train-1", samples)
    (job,) = head_metrics(str(folder), time.time())["jobs"]
    assert set(job["live_nodes"]) == {"b"}
    assert set(job["live_ranks"]) == {"2"}


def test_a_metric_may_be_infinite_but_not_a_text(folder: Path) -> None:
    values = {"loss": float("inf"), "step": "7", "big": 10**400, "flag": True, "lr": 0.1}
    add(folder, "train-1", live(ranks={"0": rank(metrics=values)}))
    (job,) = head_metrics(str(folder), time.time())["jobs"]
    assert job["live_ranks"]["0"]["metrics"] == {"loss": float("inf"), "lr": 0.1}


PRICE = {"per_hour": 24.0, "currency": "USD", "kind": "regular", "source": "a list"}


@pytest.mark.parametrize(("ended", "usd"), [(None, 19.1), (1500.0, 10.0)])
def test_the_cost_of_a_job_is_that_of_its_nodes_from_its_start_to_its_end(
    folder: Path, ended: float | None, usd: float
) -> None:
    state = "RUNNING" if ended is None else "SUCCEEDED"
    add(folder, "train-1", state=state, nodes=["a", "b", "c"], started=1000.0, ended=ended, node_price=PRICE)
    (job,) = head_metrics(str(folder), 1955.0)["jobs"]
    assert job["cost_usd"] == pytest.approx(usd)


def test_a_clock_that_went_back_makes_no_cost_below_0(folder: Path) -> None:
    add(folder, "train-1", nodes=["a"], started=1000.0, node_price=PRICE)
    (job,) = head_metrics(str(folder), 900.0)["jobs"]
    assert job["cost_usd"] == 0


@pytest.mark.parametrize(
    "price",
    [
        None,
        24.0,
        {**PRICE, "currency": "EUR"},
        {**PRICE, "per_hour": "24"},
        {**PRICE, "per_hour": True},
        {**PRICE, "per_hour": 0.0},
        {**PRICE, "per_hour": float("inf")},
        {"currency": "USD"},
    ],
)
def test_without_a_price_the_cost_is_unknown(folder: Path, price: Any) -> None:
    add(folder, "train-1", nodes=["a"], started=1000.0, node_price=price)
    (job,) = head_metrics(str(folder), 1955.0)["jobs"]
    assert job["cost_usd"] is None


def test_a_state_of_older_code_has_no_cost_and_neither_has_a_job_that_waits(folder: Path) -> None:
    state = sample_state("old-1", state="RUNNING", supervisor=identity(os.getpid()), started=1000.0)
    del state["node_price"]  # type: ignore[misc]  # as older code wrote it
    place = add(folder, "old-1")
    (place / "state.json").write_text(json.dumps(state))
    add(folder, "next-1", state="QUEUED", nodes=["a"], started=None, node_price=PRICE)
    assert [job["cost_usd"] for job in head_metrics(str(folder), 1955.0)["jobs"]] == [None, None]


def test_samples_that_are_no_plain_file_or_too_long_are_not_read(folder: Path) -> None:
    samples = add(folder, "train-1", live()) / "samples.json"
    long = samples.read_text() + " " * (8 << 20)
    elsewhere = folder / "elsewhere.json"
    elsewhere.write_text(samples.read_text())
    for spoil in (
        lambda: os.mkfifo(samples),
        lambda: samples.symlink_to("/dev/zero"),
        lambda: samples.symlink_to(elsewhere),
        lambda: samples.write_text(long),
    ):
        samples.unlink()
        spoil()
        (job,) = head_metrics(str(folder), time.time())["jobs"]
        assert (job["state"], job["live_nodes"]) == ("RUNNING", {})
