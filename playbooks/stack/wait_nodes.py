"""Wait until nodes are ready, or jobs have ended: ``wait``."""

from __future__ import annotations

from invoke.context import Context

from playbooks.cli import output
from playbooks.cli.task import command, open_from, seconds
from playbooks.stack.limits import WAIT, ready_limit

__all__ = ["wait"]


@command(
    "wait",
    example="fab wait --timeout 5m\n    fab wait train-20260301-090507-0f3a",
    help={
        "job": "wait for the end of this job instead: its id, a unique beginning of it or of its last part, "
        "or newest; may be repeated, and given without --job",
        "timeout": "give up after this many seconds (default: 10m for nodes, 90m more for plain Ubuntu, "
        "which installs drivers; never for a job); 90s, 10m and 2h are accepted too",
    },
    positional=["job"],
    iterable=["job"],
)
def wait(
    context: Context,
    job: list[str] | None = None,
    stack: str | None = None,
    timeout: str | None = None,
    json: bool = False,
) -> None:
    """Wait until every node answers, naming those that do not in time; with jobs, until they have ended.

    `fab wait JOB` prints nothing until then and ends as the job does; with several jobs, as the first of them
    that failed. When the time limit comes first, the exit status is 124 and the job keeps running. A broken
    connection is retried for two minutes.
    """
    chosen = open_from(context, stack)
    if job:
        from playbooks.jobs.wait import wait_for_jobs

        limit = None if timeout is None else seconds("--timeout", timeout)
        wait_for_jobs(chosen, job, limit, json=json)
        return
    from playbooks.nodes.health import wait_for_nodes

    inventory = wait_for_nodes(chosen, ready_limit(chosen, timeout, WAIT))
    if json:
        output.as_json(inventory)
