"""The runs of ``fab scaling``: one job after the other, launched as any other, and what each printed."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from infra.inventory import Inventory, Node
from launch.errors import GiveUpError, RankliftError
from launch.scaling.metric_numbers import NO_FIGURE, MetricReader, NoThroughput, throughput
from launch.scaling.point_transport import Transport, transport_of
from launch.scaling.scaling_plan import Run, ScalingPlan
from launch.scaling.scaling_study import MeasuredRun
from playbooks.cli import output
from playbooks.jobs.cancel import cancel_job
from playbooks.jobs.launch_file import LaunchOptions, launch_job
from playbooks.jobs.location import find_job
from playbooks.jobs.submit import Handling, Load
from playbooks.nodes.push import push_snapshot
from playbooks.project import Stack

if TYPE_CHECKING:
    from launch.client.events import Event, JobState
    from launch.jobfile import JobFile
    from launch.remote.base.health_records import ProbeResult

__all__ = ["RunFailed", "ScalingRuns"]


_LINE_S = 1.0
"""Processor time that the pattern may take for one line."""


class RunFailed(GiveUpError):
    """A run's job gave no throughput; ``job`` is empty where none was created. ``measured`` has the figures
    of one that gives a throughput with other options."""

    def __init__(self, job: str, reason: str, measured: MeasuredRun | None = None) -> None:
        self.job, self.reason, self.measured = job, reason, measured
        super().__init__(f"job {job}: {reason}" if job else reason)


@dataclass(frozen=True, slots=True)
class ScalingRuns:
    """Launches a measurement's jobs on the first of ``nodes``."""

    stack: Stack
    inventory: Inventory
    nodes: Sequence[Node]
    job: JobFile
    options: LaunchOptions
    load: Load
    """The code and the data as they are at the beginning: every run has the same."""
    plan: ScalingPlan
    without_infiniband: bool
    """Whether the user does without it: ``--no-probe``."""

    def push(self) -> None:
        """Bring code and data to all nodes before the first run, so that later changes here reach no run."""
        for snapshot in self.load.snapshots:
            push_snapshot(self.stack, self.inventory, self.nodes, snapshot)

    def measure(self, run: Run, *, is_first: bool) -> MeasuredRun:
        """Run one job to its end; return what its ranks printed.

        Raises :class:`RunFailed` where that gives no throughput, or InfiniBand was promised and is not used,
        and :class:`~launch.errors.JobFailed` as the job ended. A signal ends the job, and the command.
        """
        reader = MetricReader(re.compile(self.plan.pattern) if self.plan.pattern else None)
        watch = _Watch(reader)
        handling = Handling(
            detach=False, json=False, dry_run=False, on_event=watch.on_event, is_repeat=not is_first
        )
        began, started = time.monotonic(), time.time()
        nodes = self.nodes[: run.nodes]
        try:
            with _with_limit():
                launch_job(
                    self.stack, self.inventory, nodes, self.job, self._options(run), self.load, handling
                )
        except RankliftError:
            self._end(watch.state)
            raise
        state = watch.state
        if state is None:
            raise RunFailed("", "the head reported no state of the job")
        figures = reader.figures(state.ranks)
        if not figures.by_rank:
            raise RunFailed(state.job, NO_FIGURE)
        transport = self._transport(state.job, run.nodes)
        if transport.verdict == "refused" and not self.without_infiniband:
            raise RunFailed(
                state.job,
                f"{self.inventory.size} promises InfiniBand, and the run used {transport.words}; --no-probe "
                "measures without it",
            )
        seconds = round(time.monotonic() - began, 3)
        measured = MeasuredRun(run, state.job, started, seconds, figures, transport)
        try:
            value = throughput(figures, self.plan.warm_up, self.plan.basis)
        except NoThroughput as error:
            raise RunFailed(state.job, str(error), measured) from None
        output.progress(f"{run.words}: {value:.4g} ({transport.words}), job {state.job}")
        return measured

    def _options(self, run: Run) -> LaunchOptions:
        """Return the options of a run: a probe that is asked for is one of several nodes."""
        if run.nodes > 1:
            return self.options
        return replace(self.options, flags=replace(self.options.flags, probe=False))

    def _end(self, state: JobState | None) -> None:
        """End a job whose head went silent: nobody waits for it any more."""
        if state is None or state.is_terminal:
            return
        output.progress(f"cancelling job {state.job}")
        try:
            done = cancel_job(self.stack, self.inventory, state.job, None)
        except RankliftError as error:
            output.progress(f"job {state.job} could not be cancelled: {error}")
        else:
            if done.problem is not None:
                output.progress(done.problem)

    def _transport(self, job: str, nodes: int) -> Transport:
        from launch.client.query import show_job
        from playbooks.ssh.connection import Cluster

        place = find_job(self.stack, self.inventory, job)
        with Cluster(self.inventory, self.stack.folder) as cluster:
            report = show_job(job, cluster.host(place.head), remote=place.remote)
        found: list[Any] = [event.fields for event in report.events if event.event == "probe"]
        return transport_of(nodes, cast("list[ProbeResult]", found))


class _Watch:
    """Reads the figures in a job's output, and keeps its newest state."""

    def __init__(self, reader: MetricReader) -> None:
        self.state: JobState | None = None
        self._reader = reader

    def on_event(self, event: Event) -> None:
        """Take one event."""
        from launch.client.events import LogLine, StateChange

        if isinstance(event, StateChange):
            if event.state.state == "QUEUED":
                output.progress(f"job {event.state.job} QUEUED: {event.state.reason}".removesuffix(": "))
            self.state = event.state
        elif isinstance(event, LogLine) and event.rank is not None and event.stream != "notice":
            self._feed(event.rank, event.data)

    def _feed(self, rank: int, line: bytes) -> None:
        """Search a line; a pattern may take for ever (``(a+)+b``)."""
        signal.setitimer(signal.ITIMER_VIRTUAL, _LINE_S)
        try:
            self._reader.feed(rank, line)
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)


@contextmanager
def _with_limit() -> Iterator[None]:
    """Have :class:`RunFailed` raised where a line takes the pattern too long."""

    def on_time(_number: int, _frame: object) -> None:
        problem = f"--metric took longer than {_LINE_S:g} s for one line: give a simpler pattern"
        raise RunFailed("", problem)

    before = signal.signal(signal.SIGVTALRM, on_time)
    try:
        yield
    finally:
        signal.signal(signal.SIGVTALRM, before)
