"""Measures the bandwidth of groups of nodes by jobs like any other, all groups of a round at once."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from infra.inventory import Inventory
from launch.errors import NotPushed, RankliftError, RetryError, StepTimeout
from launch.health.bandwidth_programs import BandwidthProgram
from launch.health.measurement import Group, Measurement
from launch.nodeset import fold
from playbooks.check.alone import JOB_NAME
from playbooks.jobs.cancel import cancel_job
from playbooks.jobs.location import forget, remember
from playbooks.jobs.submit import Identity, home_of, planned_as
from playbooks.node_price import saved_price
from playbooks.project import Stack
from playbooks.ssh.fanout import ask_all, fan_out

if TYPE_CHECKING:
    from launch.client.events import Event, JobState
    from launch.job.plan import JobPlan
    from playbooks.ssh.connection import Cluster

__all__ = ["BandwidthJobs", "NodesTaken"]

_START_S = 120.0
"""Time for a push of the node code, and for the head's answer."""
_SUBMITTED_S = 5.0
"""How long an interrupted check waits for heads to confirm the jobs that it has just submitted."""


class NodesTaken(RetryError):
    """Another job got nodes between two rounds: the next measurement would wait for it."""


class BandwidthJobs:
    """The jobs of one check. Each holds all slots of its nodes, so that nothing else runs beside it."""

    def __init__(
        self, stack: Stack, inventory: Inventory, program: BandwidthProgram, cluster: Cluster
    ) -> None:
        self._stack, self._inventory, self._program, self._cluster = stack, inventory, program, cluster
        self._nodes = {node.name: node for node in inventory.nodes}
        self._price = saved_price(stack, inventory)
        self._rounds = 0
        self._submitted: dict[str, bool] = {}
        """Jobs that have not ended, and whether their head has confirmed them."""
        self._own: set[str] = set()
        """All jobs of this check."""
        self._is_over = threading.Event()

    def measure(self, groups: Sequence[Group]) -> list[Measurement]:
        """Measure groups at once; a group whose job fails has the job's reason.

        Raise :class:`NodesTaken`, with no job left, where a job of somebody else's has their nodes.
        """
        self._rounds += 1
        by_head = {group[0]: (number, group) for number, group in enumerate(groups)}
        limit = self._program.limit_s + _START_S
        answers = fan_out(
            lambda head: self._measure(*by_head[head]),
            by_head,
            what="the measurement",
            limit=len(groups),
            timeout=limit,
        )
        if any(isinstance(answer, StepTimeout) for answer in answers.values()):
            self.cancel()
        taken = next((answer for answer in answers.values() if isinstance(answer, NodesTaken)), None)
        if taken is not None:
            raise taken
        measured = []
        for (_, group), answer in zip(by_head.values(), answers.values(), strict=True):
            if isinstance(answer, RankliftError):
                measured.append(Measurement(group, None, str(answer)))
            elif isinstance(answer, Exception):
                raise answer
            else:
                measured.append(answer)
        return measured

    def end(self) -> list[str]:
        """Submit nothing more and end the jobs that run; return their ids."""
        self._is_over.set()
        deadline = time.monotonic() + _SUBMITTED_S
        while not all(self._submitted.values()) and time.monotonic() < deadline:
            time.sleep(0.05)
        return self.cancel()

    def cancel(self) -> list[str]:
        """End the jobs that run; return their ids."""
        running = list(self._submitted)
        ask_all(
            {job: lambda job=job: cancel_job(self._stack, self._inventory, job, None) for job in running},  # type: ignore[misc]
            what="ending the measurement",
        )
        return running

    def _measure(self, number: int, group: Group) -> Measurement:
        from launch.code.push import push
        from launch.code.snapshot import EMPTY

        nodes = [self._nodes[name] for name in group]
        host = self._cluster.host(nodes[0])
        spec = self._program.spec(home_of(self._inventory.user), EMPTY.id)
        spec = dataclasses.replace(
            spec, name=JOB_NAME.format(round=self._rounds, group=number)
        )  # ids differ in a round
        planned = planned_as(Identity(), spec, self._inventory.size, nodes, price=self._price)
        try:
            return self._run(planned, group)
        except NotPushed:
            push(EMPTY, host, nodes)
            return self._run(planned, group)

    def _run(self, planned: JobPlan, group: Group) -> Measurement:
        from launch.client.events import LogLine, StateChange
        from launch.client.submit import submit_and_follow
        from launch.code.snapshot import EMPTY

        job, head, remote = planned.id, group[0], planned.remote.rpartition("/")[2]
        figures: list[float] = []
        planned = dataclasses.replace(planned, snapshots=(EMPTY.id,))

        def on_event(event: Event) -> None:
            if not self._submitted[job]:
                self._submitted[job] = True
                remember(self._stack, job, head, remote)
            if isinstance(event, LogLine):
                figure = self._program.read(event.data.decode("utf-8", "replace"))
                figures.extend([] if figure is None else [figure])
            if isinstance(event, StateChange) and event.state.state == "QUEUED":
                others = [one for one in event.state.waits_for if one not in self._own]
                if others:
                    raise NodesTaken(
                        f"{fold(group)}: {others[0]} came between two rounds of the check; nothing more was "
                        "measured: repeat `fab check --deep` when it has ended"
                    )

        if self._is_over.is_set():
            return Measurement(group, None, "the check was interrupted")
        self._submitted[job] = False
        self._own.add(job)
        remember(self._stack, job, head, remote, taken=False)
        try:
            state = submit_and_follow(planned, self._cluster.host(self._nodes[head]), on_event)
        except NodesTaken:
            self._is_over.set()
            cancel_job(self._stack, self._inventory, job, None)
            raise
        finally:
            with suppress(KeyError):
                del self._submitted[job]
            forget(self._stack, job)
        if state.state == "SUCCEEDED" and figures:
            return Measurement(group, figures[-1])
        return Measurement(group, None, _problem(job, state))


def _problem(job: str, state: JobState) -> str:
    if state.state == "SUCCEEDED":
        return f"job {job} printed no figure"
    last = state.failure.last_lines[-1:] if state.failure else ()
    return ": ".join(filter(None, (f"job {job} {state.state}", state.reason, *last)))
