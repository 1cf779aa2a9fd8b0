"""What comes of a job: ``logs``, ``collect``."""

from __future__ import annotations

from pathlib import Path

from invoke.context import Context
from invoke.exceptions import Exit

from launch.errors import InputError, ManyNodesError
from playbooks import render
from playbooks.command import command, open_from
from playbooks.joblog import Shown, end, find_job, show_so_far

__all__ = ["collect", "logs"]

_HELP = {"job": "the job's id, as launch and `fab jobs` show it"}


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
