"""Two jobs at once do not disturb each other."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.e2e.workplace import ROOT, Workplace
from tests.frameworks.test_rows import NODE, result

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(600)]


@pytest.mark.parametrize(
    ("others", "there"),
    [("2-3", [NODE[2], NODE[2], NODE[3], NODE[3]]), ("0-1", [NODE[0], NODE[0], NODE[1], NODE[1]]),
     ("1-2", [NODE[1], NODE[1], NODE[2], NODE[2]])],
    ids=["different-nodes", "the-same-nodes", "another-head-and-one-node-of-both"],
)  # fmt: skip
def test_two_jobs_train_at_the_same_time(cluster: Workplace, others: str, there: list[str]) -> None:
    job = str(ROOT / "examples" / "torch-per-process" / "job.yml")
    with ThreadPoolExecutor(2) as pool:
        ran = list(
            pool.map(
                lambda nodes: cluster.fab("launch", job, "--environment", "bare", "--nodes", nodes),
                ["0-1", others],
            )
        )
    found = [result(one) for one in ran]
    assert [one["nodes"] for one in found] == [[NODE[0], NODE[0], NODE[1], NODE[1]], there]
    assert all(one["images"] == 1440 and one["accuracy"] >= 0.93 for one in found)
    names = [re.findall(r"^job (\S+) SUCCEEDED$", one.err, re.MULTILINE) for one in ran]
    states = {state["job"]: state for state in cluster.fab("jobs", "--json").json()}
    first, second = (states[name] for (name,) in names)
    assert first["started"] < second["ended"]
    assert second["started"] < first["ended"]
