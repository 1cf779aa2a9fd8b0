"""One measurement of a cluster at a time: what a second one, and a job between two rounds, lead to."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from infra.inventory import Inventory, Node
from infra.scale_plan import Use
from launch.client.events import Event, JobState, StateChange
from launch.errors import RetryError
from launch.health.bandwidth_programs import program_of
from launch.job.plan import JobPlan
from playbooks.check import bandwidth_jobs
from playbooks.check.alone import alone, refuse_beside_check, wait_for_free_nodes
from playbooks.check.bandwidth_jobs import BandwidthJobs, NodesTaken
from playbooks.project import Stack
from playbooks.ssh.connection import Cluster

SIZE = "Standard_HB120rs_v3"
PAIR = ("node000000", "node000001")
NODES = tuple(
    Node(name, number, f"10.0.0.{4 + number}", "x", 1, 8, "running") for number, name in enumerate(PAIR)
)
INVENTORY = Inventory("dev", SIZE, "place", "me", NODES)
PROGRAM = program_of(SIZE, None)
OTHERS_CHECK = "check-2-0-20260301-090507-0f3a"


@pytest.fixture
def stack(tmp_path: Path) -> Stack:
    found = Stack("dev", tmp_path, {})
    found.folder.mkdir(parents=True)
    return found


def test_a_second_check_here_is_refused_by_the_firsts_process(stack: Stack) -> None:
    with (
        alone(stack),
        pytest.raises(
            RetryError, match=rf"^stack dev: another `fab check --deep` .*process {os.getpid()}, since 20"
        ),
        alone(stack),
    ):
        pytest.fail("both measure")
    with alone(stack):
        pass  # the first has ended


def test_a_measurement_of_scaling_is_named_to_a_check(stack: Stack) -> None:
    with (
        alone(stack, "scaling"),
        pytest.raises(RetryError, match=r"^stack dev: another `fab scaling` measures it \(process "),
        alone(stack),
    ):
        pytest.fail("both measure")


def test_a_check_that_failed_leaves_no_lock(stack: Stack) -> None:
    with pytest.raises(KeyError), alone(stack):
        raise KeyError
    with alone(stack):
        assert stack.check_lock.exists()
    stack.forget()
    assert not stack.check_lock.exists()


def test_a_check_from_elsewhere_is_named_by_its_job_and_node(stack: Stack) -> None:
    used = {"node000000": (), "node000001": ("train-1", OTHERS_CHECK)}
    with pytest.raises(RetryError, match=f"^stack dev: job {OTHERS_CHECK} of another .* measures node000001"):
        refuse_beside_check(stack, used)


def test_jobs_of_users_do_not_pass_for_checks(stack: Stack) -> None:
    refuse_beside_check(
        stack, {"node000000": ["check-20260301-090507-0f3a", "my-check-1-0-20260301-090507-0f3a"]}
    )


def queued(job: str, *waits_for: str) -> JobState:
    now = datetime.now(UTC)
    return JobState(
        job, job, "mpi", "QUEUED", "", None, PAIR, 2, None, now, None, None, None, waits_for=waits_for
    )


class Head:
    """A head whose queue has these jobs before each job of the check."""

    def __init__(self, before: Callable[[str], tuple[str, ...]], patch: pytest.MonkeyPatch) -> None:
        self.submitted: list[str] = []
        self.cancelled: list[str] = []
        self._before = before
        patch.setattr("launch.client.submit.submit_and_follow", self._follow)
        patch.setattr(
            bandwidth_jobs, "cancel_job", lambda _stack, _there, job, _grace: self.cancelled.append(job)
        )

    def _follow(self, plan: JobPlan, _head: object, on_event: Callable[[Event], None]) -> JobState:
        self.submitted.append(plan.id)
        state = queued(plan.id, *self._before(plan.id))
        on_event(StateChange(queued(plan.id)))
        on_event(StateChange(state))
        return state


def jobs_of(stack: Stack) -> BandwidthJobs:
    class Hosts:
        def host(self, node: Node) -> Any:
            return node

    return BandwidthJobs(stack, INVENTORY, PROGRAM, cast("Cluster", Hosts()))


def test_a_job_that_came_between_two_rounds_ends_the_check_and_is_named(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = Head(lambda _: ("train-20260301-090507-0f3a",), monkeypatch)
    jobs = jobs_of(stack)
    with pytest.raises(NodesTaken, match=r"^node\[000000-000001\]: train-20260301-090507-0f3a came between"):
        jobs.measure([PAIR])
    assert head.cancelled == head.submitted
    jobs.measure([PAIR])
    assert len(head.submitted) == 1, "it submits nothing more"


def test_a_job_of_the_round_before_that_still_gives_back_its_slots_does_not(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = Head(lambda _: tuple(head.submitted[:-1]), monkeypatch)
    jobs = jobs_of(stack)
    jobs.measure([PAIR])
    (second,) = jobs.measure([PAIR])
    assert len(head.submitted) == 2
    assert "QUEUED" in second.problem  # this head ran none
    assert head.cancelled == []


@pytest.mark.parametrize("looks", [1, 3])
def test_a_job_that_has_just_ended_is_waited_for(
    stack: Stack, monkeypatch: pytest.MonkeyPatch, looks: int
) -> None:
    seen: list[tuple[str, ...]] = []

    def uses(_: Stack, inventory: Inventory) -> dict[str, Use]:
        seen.append(tuple(node.name for node in inventory.nodes))
        return {"node000000": Use(jobs=("train-1",) if len(seen) < looks else ())}

    monkeypatch.setattr("playbooks.nodes.busy.uses", uses)
    monkeypatch.setattr("playbooks.check.alone._AGAIN_S", 0.0)
    wait_for_free_nodes(stack, INVENTORY, NODES[:1])
    assert seen == looks * [("node000000",)]


def test_a_job_that_goes_on_is_named_with_its_nodes(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    both = {name: Use(jobs=("train-1",)) for name in PAIR}
    monkeypatch.setattr("playbooks.nodes.busy.uses", lambda *_: both)
    monkeypatch.setattr("playbooks.check.alone._FREE_S", 0.0)
    monkeypatch.setattr("playbooks.check.alone._AGAIN_S", 0.0)
    with pytest.raises(
        RetryError,
        match=r"^stack dev: train-1 on node\[000000-000001\]: a run beside another job .*`fab wait",
    ):
        wait_for_free_nodes(stack, INVENTORY, NODES)
