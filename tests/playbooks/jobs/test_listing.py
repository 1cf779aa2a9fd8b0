"""The jobs of a stack, put together from what its heads list."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from infra.inventory import Node
from launch.client import query, rpc
from launch.client.events import JobState
from launch.client.query import Listing
from playbooks.jobs.listing import list_jobs
from tests.launch.remote.sample_records import sample_state


def test_a_head_that_lists_anothers_job_as_ended_does_not_hide_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def state(job: str, created: float, name: str) -> JobState:
        return JobState.from_dict(sample_state(job, state=name, created=created))

    lists = {
        "node000000": Listing((state("victim-1", 50.0, "RUNNING"),), 0),
        "node000001": Listing(
            (state("victim-1", 1.0, "SUCCEEDED"), *(state(f"t-{n}", 2.0 + n, "SUCCEEDED") for n in range(5))),
            0,
        ),
    }

    def connect(node: Node) -> AbstractContextManager[Any]:
        return nullcontext(SimpleNamespace(name=node.name))

    monkeypatch.setattr(rpc, "version_there", lambda *_, **__: "hash")
    monkeypatch.setattr(query, "list_some", lambda host, **_: lists[host.name])
    nodes = [Node(name, number, "", "", 0, 2, "running") for number, name in enumerate(lists)]
    found = list_jobs(connect, nodes, last=3)
    assert [(job.job, job.state) for job in found.jobs if job.job == "victim-1"] == [("victim-1", "RUNNING")]
