"""Wait for jobs to end, without their output."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from invoke.exceptions import Exit

from launch.errors import JobFailed, StepTimeout
from playbooks.cli import output
from playbooks.cli.signals import attached
from playbooks.jobs.handle import choose_jobs
from playbooks.jobs.location import find_job
from playbooks.jobs.printer import end_as
from playbooks.project import Stack

if TYPE_CHECKING:
    from launch.client.events import JobState

__all__ = ["TOO_LATE", "wait_for_jobs"]

TOO_LATE = 124
"""Exit status when the time limit comes first, as of timeout(1)."""


def wait_for_jobs(stack: Stack, jobs: Sequence[str], limit: float | None, *, json: bool) -> None:
    """Wait until all jobs have ended and end as the first that failed, or with 124 after ``limit`` seconds.

    Waits for one job after the other: the last to end decides anyway. Raises
    :class:`~launch.errors.InputError` for a job that does not exist, and
    :class:`~launch.errors.NodeUnreachable` when a head is given up.
    """
    from launch.client.submit import wait_for_end
    from launch.remote.base.timing import HEAD_GONE_S
    from playbooks.ssh.connection import Cluster

    inventory = stack.saved()
    jobs = list(dict.fromkeys(choose_jobs(stack, inventory, jobs)))
    places = {job: find_job(stack, inventory, job) for job in jobs}
    deadline = None if limit is None else time.monotonic() + limit
    states: list[JobState] = []
    with (
        attached(lambda _: f"stopped waiting; jobs are not affected: {', '.join(jobs)}"),
        Cluster(inventory, stack.folder) as cluster,
    ):
        for job, place in places.items():
            head = cluster.host(place.head)

            def on_break(reason: str, name: str = head.name) -> None:
                output.progress(f"{name} is lost ({reason}); retrying for up to {HEAD_GONE_S:g} s")

            left = None if deadline is None else max(0.1, deadline - time.monotonic())
            states.append(wait_for_end(job, head, remote=place.remote, timeout=left, on_break=on_break))
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
            end_as(state)
        except JobFailed as error:
            output.error(error)
            status = status or error.exit_status or 1
    if status:
        raise Exit(code=status)
