"""Ending a job: ``cancel``."""

from __future__ import annotations

from invoke.context import Context
from invoke.exceptions import Exit

from playbooks import render
from playbooks.command import command, open_from
from playbooks.joblog import find_job

__all__ = ["cancel"]


@command(
    "cancel",
    example="fab cancel train-20260301-090507-0f3a",
    help={"job": "the job's id, as launch and `fab jobs` show it"},
    positional=["job"],
)
def cancel(context: Context, job: str, stack: str | None = None, json: bool = False) -> None:
    """Ends a job on all its nodes; one that has ended stays as it is."""
    from launch.client import cancel as cancel_job
    from playbooks.connections import Cluster

    chosen = open_from(context, stack)
    inventory = chosen.saved()
    place = find_job(chosen, inventory, job)
    with Cluster(inventory, chosen.folder) as cluster:
        state = cancel_job(job, cluster.host(place.head), remote=place.remote)
    if json:
        render.as_json(state)
    else:
        render.result(f"job {state.job} {state.state}{f': {state.reason}' if state.reason else ''}")
    if not state.is_terminal:
        raise Exit(code=1)
