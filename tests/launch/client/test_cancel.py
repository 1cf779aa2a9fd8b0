"""Asking a head to end a job, and one node to end what it has of it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from launch.client import cancel
from launch.client.cancel import SupervisorTimeout, Swept, end_job, sweep_node
from launch.errors import GiveUpError, RetryError
from launch.host import Host
from launch.remote.base.timing import ASK_AGAIN_S, LONGEST_GRACE_S, SUPERVISOR_END_S
from tests.launch.cluster import Cluster
from tests.launch.remote.sample_records import sample_state

HEAD = cast("Host", SimpleNamespace(name="node000000"))


@contextmanager
def rank_of(job: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"], env={**os.environ, "RANKLIFT_JOB_ID": job}) as rank:
        try:
            yield rank
        finally:
            rank.kill()


def test_a_node_without_code_has_nothing_of_a_job_only_if_no_process_says_so(tmp_path: Path) -> None:
    head = Cluster(tmp_path / "cluster", 1).head
    with rank_of("sweep-t-12") as rank:
        assert sweep_node("sweep-t-1", head, remote=None, grace_s=0) == Swept(0, ())
        with pytest.raises(GiveUpError, match=rf"^node000000: .* `kill -9 {rank.pid}` there$"):
            sweep_node("sweep-t-12", head, remote="abc", grace_s=0)
    assert sweep_node("sweep-t-12", head, remote="abc", grace_s=0) == Swept(0, ())


def test_the_end_that_does_not_come_names_the_process_that_owes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = sample_state(nodes=["node000000"], ranks=1, supervisor={"pid": 77, "started": 1, "boot": "b"})
    answer = {"before": "RUNNING", "state": raw, "lost": [], "grace": 0.0, "within": -1.0}
    monkeypatch.setattr(cancel, "ask", lambda *_, **__: answer)

    with pytest.raises(
        SupervisorTimeout, match=r"process 77 on node000000, does not react: job t-1 was cancelled 0 s ago"
    ):
        end_job("t-1", HEAD, remote="abc")


class TestAHeadThatClaimsToEndTheJobForEver:
    """Its answers come at once; a clock of the test's own goes on with each pause alone."""

    @pytest.fixture(autouse=True)
    def _head(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.calls = 0.0, 0
        clock = SimpleNamespace(monotonic=lambda: self.now, sleep=self.sleep)
        monkeypatch.setattr(cancel, "time", clock)
        monkeypatch.setattr(cancel, "ask", self.answer)

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def answer(self, *_: object, **__: object) -> object:
        self.calls += 1
        assert self.calls < 1000, "the wait does not end"
        raw = sample_state(state="RUNNING", nodes=["node000000"], ranks=1)
        return {"before": "RUNNING", "state": raw, "lost": [], "grace": 3.0, "within": 253402300800}

    @pytest.mark.parametrize("grace_s", [0.0, 60.0])
    def test_has_the_grace_that_the_user_gave(self, grace_s: float) -> None:
        with pytest.raises(SupervisorTimeout):
            end_job("t-1", HEAD, remote="abc", grace_s=grace_s)
        assert grace_s <= self.now <= grace_s + SUPERVISOR_END_S + ASK_AGAIN_S
        assert self.calls <= self.now

    def test_has_ten_minutes_without_one_and_the_user_learns_what_ends_it(self) -> None:
        with pytest.raises(RetryError, match=r"2\.53402e\+11 s from SIGTERM.*`fab cancel t-1 --grace 10s`"):
            end_job("t-1", HEAD, remote="abc")
        assert LONGEST_GRACE_S <= self.now <= LONGEST_GRACE_S + SUPERVISOR_END_S + ASK_AGAIN_S


@pytest.mark.parametrize(("claimed", "given"), [(253402300800, LONGEST_GRACE_S), (-9.0, 0.0), (4.0, 4.0)])
def test_nodes_that_the_job_lost_get_no_longer_grace_than_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, claimed: float, given: float
) -> None:
    raw = sample_state(state="CANCELLED", nodes=["node000000"], ranks=1)
    answer = {"before": "RUNNING", "state": raw, "lost": ["node000000"], "grace": claimed, "within": 0.0}
    monkeypatch.setattr(cancel, "ask", lambda *_, **__: answer)
    assert end_job("t-1", HEAD, remote="abc").grace_s == given
