"""Jobs once they are launched: ``jobs``, ``logs``, ``cancel``, ``collect``."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from invoke.context import Context
from invoke.exceptions import Exit

from launch.errors import InputError, ManyNodesError
from launch.events import JobState
from playbooks import render
from playbooks.command import choose_nodes, command, open_from
from playbooks.fanout import fan_out
from playbooks.joblog import STEP_S, Shown, end, find_job, show_so_far
from playbooks.nodes import explained

__all__ = ["cancel", "collect", "jobs", "logs"]

_VERSIONS = ["sh", "-c", "test -d .ranklift/jobs && ls -t .ranklift/remote"]
"""Which versions of the node code a node with jobs has, newest first."""
_HELP = {"job": "the job's id, as launch and `fab jobs` show it"}


@command("jobs", example="fab jobs --stack dev")
def jobs(context: Context, nodes: str | None = None, stack: str | None = None, json: bool = False) -> None:
    """Shows the jobs that the nodes have, newest last."""
    from launch.client import list_jobs
    from launch.push import remote_code
    from playbooks.connections import Cluster

    chosen = open_from(context, stack)
    inventory = chosen.saved()
    by_name = {node.name: node for node in choose_nodes(inventory, nodes)}
    current = remote_code()[0]
    with Cluster(inventory, chosen.folder) as cluster:

        def ask(name: str) -> list[JobState]:
            with cluster.host(by_name[name]) as host:
                present = host.run(_VERSIONS, timeout=STEP_S).stdout.decode().split()
                if not present:  # nothing was ever launched there
                    return []
                return list_jobs(host, remote=current if current in present else present[0])

        answers = fan_out(ask, by_name, what="listing its jobs", timeout=2 * STEP_S)
    found = {state.job: state for a in answers.values() if isinstance(a, list) for state in a}
    rows = sorted(found.values(), key=lambda state: state.created)
    if json:
        render.as_json(rows)
    else:
        render.table(
            ("job", "state", "nodes", "ranks", "started", "took", "exit"),
            [
                (
                    row.job,
                    row.state,
                    len(row.nodes),
                    row.ranks,
                    _when(row.started),
                    _span(row),
                    "" if row.exit_status is None else row.exit_status,
                )
                for row in rows
            ],
        )
    if any(isinstance(answer, Exception) for answer in answers.values()):
        raise explained(inventory, ManyNodesError("listing jobs", answers))


@command(
    "logs",
    example="fab logs -f train-20260301-090507-0f3a --rank 0",
    help={
        **_HELP,
        "follow": "go on until the job ends; the exit status is then the job's",
        "rank": "this rank's lines alone",
    },
    positional=["job"],
    auto_shortflags=True,
)
def logs(
    context: Context, job: str, follow: bool = False, rank: str | None = None, stack: str | None = None
) -> None:
    """Shows what a job's ranks have said, each line with its rank and node."""
    from launch.client import follow as watch
    from playbooks.connections import Cluster

    if rank is not None and not rank.isdecimal():
        raise InputError("--rank", rank, "is no rank", "give a number from 0, as in front of the lines")
    shown = Shown(None if rank is None else int(rank))
    chosen = open_from(context, stack)
    inventory = chosen.saved()
    place = find_job(chosen, inventory, job)
    with Cluster(inventory, chosen.folder) as cluster:
        host = cluster.host(place.head)
        if not follow:
            show_so_far(job, host, shown)
            return
        try:
            state = watch(job, host, shown, remote=place.remote)
        except KeyboardInterrupt:
            render.progress(f"\njob {job} goes on; cancel it with: fab cancel {job} --stack {chosen.name}")
            raise Exit(code=130) from None
    end(state)


@command("cancel", example="fab cancel train-20260301-090507-0f3a", help=_HELP, positional=["job"])
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


@command(
    "collect",
    example="fab collect train-20260301-090507-0f3a --into results",
    help={**_HELP, "into": "the folder in which <job>/ is made (default: results)"},
    positional=["job"],
)
def collect(
    context: Context, job: str, into: str = "results", stack: str | None = None, json: bool = False
) -> None:
    """Brings a job's logs and outputs from all its nodes into <into>/<job>/."""
    from launch.client import collect as fetch
    from playbooks.connections import Cluster

    chosen = open_from(context, stack)
    inventory = chosen.saved()
    place = find_job(chosen, inventory, job)
    with Cluster(inventory, chosen.folder) as cluster:
        report = fetch(job, cluster.host(place.head), Path(into).expanduser(), remote=place.remote)
    good = [result for result in report.results.values() if not isinstance(result, Exception)]
    if json:
        render.as_json(report)
    else:
        written = sum(files.written for files in good)
        size = render.amount(sum(files.bytes for files in good))
        kept = sum(files.kept for files in good)
        were_there = f", {kept} were there already" if kept else ""
        render.result(f"{report.folder}: {written} files, {size} from {len(good)} nodes{were_there}")
    if report.errors:
        raise ManyNodesError("collecting", report.results)


def _when(moment: datetime | None) -> str:
    return "" if moment is None else f"{moment.astimezone():%Y-%m-%d %H:%M:%S}"


def _span(state: JobState) -> str:
    if state.started is None:
        return ""
    end = state.ended or datetime.now(state.started.tzinfo)
    return f"{(end - state.started).total_seconds():.1f} s"
