"""Waiting for jobs to end, without their output."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from invoke.exceptions import Exit

from launch.errors import JobFailed, StepTimeout
from playbooks.cli import output
from playbooks.cli.signals import attached
from playbooks.jobs.log_printer import end, find_job
from playbooks.project import Stack

if TYPE_CHECKING:
    from launch.client.events import JobState

__all__ = ["TOO_LATE", "wait_for_jobs"]

TOO_LATE = 124
"""Exit status when the time was over first, as timeout(1) has it."""


def wait_for_jobs(stack: Stack, jobs: Sequence[str], limit: float | None, *, json: bool) -> None:
    """Ends as the first of the jobs that failed, once all have ended, or with 124 after ``limit`` seconds.

    One after the other is as good as at once: the last to end decides. Raises
    :class:`~launch.errors.InputError` when there is no such job, and
    :class:`~launch.errors.NodeUnreachable` when a head is given up.
    """
    from launch.client.wait import PATIENCE_S, wait_for_end
    from playbooks.ssh.connection import Cluster

    inventory = stack.saved()
    jobs = list(dict.fromkeys(jobs))
    places = {job: find_job(stack, inventory, job) for job in jobs}
    deadline = None if limit is None else time.monotonic() + limit
    states: list[JobState] = []
    with (
        attached(lambda _: f"{'jobs' * (len(jobs) > 1) or 'job'} {', '.join(jobs)}: not waited for any more"),
        Cluster(inventory, stack.folder) as cluster,
    ):
        for job, place in places.items():
            head = cluster.host(place.head)

            def broke(reason: str, name: str = head.name) -> None:
                output.progress(f"{name} is lost ({reason}); asking again for up to {PATIENCE_S:g} s")

            left = None if deadline is None else max(0.1, deadline - time.monotonic())
            states.append(wait_for_end(job, head, remote=place.remote, timeout=left, on_break=broke))
    if json:
        output.as_json(states if len(states) > 1 else states[0])
    status = 0
    for state in states:
        if not state.is_terminal:
            limit_over = StepTimeout(
                places[state.job].head.name, f"job {state.job} ({state.state})", limit or 0
            )
            output.error(limit_over)
            status = status or TOO_LATE
            continue
        try:
            end(state)
        except JobFailed as error:
            output.error(error)
            status = status or error.exit_status or 1
    if status:
        raise Exit(code=status)
