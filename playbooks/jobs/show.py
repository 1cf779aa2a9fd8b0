"""Jobs without their output: ``jobs``, ``job``."""

from __future__ import annotations

from datetime import UTC, datetime

from invoke.context import Context

from launch.errors import ManyNodesError, NodeUnreachable
from launch.host import Host
from launch.numbers import counted
from playbooks.cli import output
from playbooks.cli.options import number
from playbooks.cli.task import command, open_from, with_address_age
from playbooks.jobs.location import STEP_S, find_job
from playbooks.nodes.choose import choose_nodes
from playbooks.ssh.fanout import fan_out_hosts

__all__ = ["job", "jobs"]

_LAST = 20


@command(
    "jobs",
    example="fab jobs --stack dev",
    help={
        "last": f"number of ended jobs to list (default: {_LAST})",
        "all": "list every job",
    },
)
def jobs(
    context: Context,
    nodes: str | None = None,
    stack: str | None = None,
    last: str = str(_LAST),
    all: bool = False,
    json: bool = False,
) -> None:
    """List every job that waits or runs, and the newest that have ended; newest last.

    The number of older jobs that are left out is printed on stderr, also with --json.
    """
    from launch.client.query import Listing, list_some
    from launch.client.rpc import version_there
    from launch.code.push import remote_id
    from playbooks.ssh.connection import Cluster

    newest = number("--last", last, "jobs", "give 0 or more, or --all")
    wanted = None if all else newest
    chosen = open_from(context, stack)
    inventory = chosen.saved()
    asked = choose_nodes(inventory, nodes)
    current = remote_id()
    with Cluster(inventory, chosen.folder) as cluster:
        seen: dict[str, datetime] = {}

        def query(host: Host) -> Listing:
            remote = version_there(host, current, STEP_S, with_jobs=True)
            if remote is None:  # no job was ever launched there
                return Listing((), 0)
            found = list_some(host, remote=remote, last=wanted)
            # A silent node takes much longer; that time must not count as a job's run time.
            seen.update(dict.fromkeys((state.job for state in found.jobs), datetime.now(UTC)))
            return found

        answers = fan_out_hosts(cluster.host, asked, query, what="listing its jobs", timeout=2 * STEP_S)
    listings = [answer for answer in answers.values() if isinstance(answer, Listing)]
    rows = sorted((state for found in listings for state in found.jobs), key=lambda state: state.created)
    ended = [state for state in rows if state.is_terminal]
    old = {state.job for state in ended[: max(0, len(ended) - wanted)]} if wanted is not None else set()
    rows = [state for state in rows if state.job not in old]
    if json:
        output.as_json(rows)
    else:
        from playbooks.jobs.tables import job_rows

        output.table(*job_rows(rows, seen=seen))
    left_out = len(old) + sum(found.left_out for found in listings)
    if left_out:
        output.progress(
            f"{counted(left_out, 'older job')} not shown; use --last {2 * newest or _LAST} or --all"
        )
    if any(isinstance(answer, Exception) for answer in answers.values()):
        raise with_address_age(inventory, ManyNodesError("listing jobs", answers))


@command(
    "job",
    example="fab job train-20260301-090507-0f3a",
    positional=["job"],
)
def job(context: Context, job: str, stack: str | None = None, json: bool = False) -> None:
    """Show one job in full: its state, when and where it ran, how its ranks ended."""
    from launch.client.query import show_job
    from playbooks.ssh.connection import Cluster

    chosen = open_from(context, stack)
    inventory = chosen.saved()
    place = find_job(chosen, inventory, job)
    with Cluster(inventory, chosen.folder) as cluster:
        try:
            report = show_job(job, cluster.host(place.head), remote=place.remote)
        except NodeUnreachable as error:
            raise NodeUnreachable(
                error.node,
                f"the head of job {job} does not answer ({error.reason}); if it is gone, `fab collect {job}` "
                f"copies what the other nodes have, `fab cancel {job}` ends what still runs there",
            ) from None
    if json:
        output.as_json(report)
    else:
        from playbooks.jobs.tables import job_text

        output.result(job_text(report).rstrip("\n"))
