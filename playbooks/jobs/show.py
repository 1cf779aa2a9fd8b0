"""Jobs without their output: ``jobs``, ``job``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, NoReturn

from invoke.context import Context

from infra.inventory import Inventory, Node
from launch.errors import GiveUpError, InputError, ManyNodesError, NodeUnreachable
from launch.numbers import counted
from playbooks.cli import output
from playbooks.cli.options import number
from playbooks.cli.task import command, open_from, with_address_age
from playbooks.jobs.location import find_job
from playbooks.nodes.choose import choose_nodes
from playbooks.project import Stack
from playbooks.start import sleep_while_read

if TYPE_CHECKING:
    from launch.client.events import JobState
    from playbooks.jobs.listing import JobList

__all__ = ["job", "jobs"]

_LAST = 20
_WATCH_S = 2.0
"""Interval of queries while the list is watched."""


@command(
    "jobs",
    example="fab jobs --stack dev",
    help={
        "last": f"number of ended jobs to list (default: {_LAST})",
        "all": "list every job",
        "wide": "print all columns, however wide the terminal is",
        "watch": "list again every two seconds until Ctrl-C; without a terminal, print each change of a job",
    },
)
def jobs(
    context: Context,
    nodes: str | None = None,
    stack: str | None = None,
    last: str = str(_LAST),
    all: bool = False,
    wide: bool = False,
    watch: bool = False,
    json: bool = False,
) -> None:
    """List every job that waits or runs, and the newest that have ended; newest last.

    A terminal gets as many columns as it has room for. The number of older jobs that are left out is printed
    on stderr, also with --json.
    """
    from playbooks.jobs.listing import list_jobs
    from playbooks.ssh.connection import Cluster

    newest = number("--last", last, "jobs", "give 0 or more, or --all")
    if watch and json:
        raise InputError("--watch", None, "cannot be combined with --json", "repeat `fab jobs --json`")
    wanted = None if all else newest
    chosen = open_from(context, stack)
    inventory = chosen.saved()
    asked = choose_nodes(inventory, nodes)
    if watch:
        _watch(chosen, inventory, asked, wanted, wide=wide)
    with Cluster(inventory, chosen.folder) as cluster:
        found = list_jobs(cluster.host, asked, wanted)
    if json:
        output.as_json(found.jobs)
    else:
        _print(found, wide=wide)
    if found.left_out:
        more = f"--last {2 * newest or _LAST} or --all"
        output.progress(f"{counted(found.left_out, 'older job')} not shown; use {more}")
    for record in found.damaged:
        output.progress(f"{record}; its other records are in ~/.ranklift/jobs there")
    for path in found.aside:
        output.progress(f"{path} was damaged, and is moved aside: remove it once you have looked at it")
    if found.silent:
        raise with_address_age(inventory, ManyNodesError("listing jobs", found.answers))
    if found.damaged:
        raise GiveUpError(f"{counted(len(found.damaged), 'job')} not shown: damaged records")


def _print(found: JobList, *, wide: bool) -> None:
    from playbooks.jobs.tables import RANK, job_rows

    if not (found.jobs or found.silent or found.left_out):
        output.progress("no job was launched on these nodes")
        return
    rows = job_rows(found.jobs, seen=found.seen, short=sys.stdout.isatty() and not wide)
    output.table(*rows, rank=RANK, folds="waits for", wide=wide)


def _watch(
    stack: Stack, inventory: Inventory, nodes: Sequence[Node], last: int | None, *, wide: bool
) -> NoReturn:
    """List the jobs over and over, until Ctrl-C ends the command or nobody reads the list any more."""
    from playbooks.jobs.listing import list_jobs
    from playbooks.jobs.tables import change_text
    from playbooks.ssh.connection import Cluster

    before: dict[str, JobState] = {}
    silent: Sequence[str] = ()
    is_terminal = sys.stdout.isatty()
    with Cluster(inventory, stack.folder) as cluster:
        while True:
            # Connections stay open between two queries.
            found = list_jobs(lambda node: nullcontext(cluster.host(node)), nodes, last)
            if is_terminal:
                output.clear()
                _print(found, wide=wide)
            else:
                for state in found.jobs:
                    if before.get(state.job) != state:
                        output.result(change_text(state, found.seen[state.job]))
                before = {state.job: state for state in found.jobs}
            if found.silent and (is_terminal or found.silent != silent):
                output.error(ManyNodesError("listing jobs", found.answers))
            silent = found.silent
            sleep_while_read(_WATCH_S)


def _tags(given: Sequence[str]) -> dict[str, str]:
    found = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not name or not equals:
            raise InputError("--tag", one, "is not NAME=VALUE", "write it like --tag lr=0.1")
        found[name] = value
    return found


@command(
    "job",
    example="fab job train-20260301-090507-0f3a",
    help={"tag": "first add a tag to the job, or replace one: NAME=VALUE; may be repeated"},
    iterable=["tag"],
    positional=["job"],
)
def job(
    context: Context,
    job: str,
    stack: str | None = None,
    tag: list[str] | None = None,
    json: bool = False,
) -> None:
    """Show one job in full: its state, when and where it ran, how its ranks ended, what its time went to.

    Goodput is the part of its time in steps that were kept; advice names what costs much of it.
    """
    from launch.client.query import show_job, tag_job
    from playbooks.jobs.handle import choose_job
    from playbooks.jobs.printer import left_by, left_lines
    from playbooks.observe.job_facts import add_samples, readable
    from playbooks.ssh.connection import Cluster

    tags = _tags(tag or ())
    chosen = open_from(context, stack)
    inventory = chosen.saved()
    name = choose_job(chosen, inventory, job, report=False)  # the answer begins with it
    place = find_job(chosen, inventory, name)
    with Cluster(inventory, chosen.folder) as cluster:
        host = cluster.host(place.head)
        try:
            if tags:
                report = tag_job(name, host, tags, remote=place.remote)
            else:
                report = show_job(name, host, remote=place.remote)
            with readable(f"job {name}"):
                facts = None if json else add_samples(report, host, place.remote)
            left, unknown = left_by(report.state, report.events, inventory, cluster, place.remote)
        except NodeUnreachable as error:
            raise NodeUnreachable(
                error.node,
                f"the head of job {name} does not answer ({error.reason}); if it is gone, "
                f"`fab collect {name}` copies what the other nodes have, `fab cancel {name}` ends what still "
                "runs there",
            ) from None
    if facts is None:
        output.as_json({**output.plain(report), "left": left, "left_unknown": unknown})
    else:
        from launch.report.summary import summary
        from playbooks.jobs.tables import job_text

        with readable(f"job {name}"):
            text = job_text(report) + summary(facts)
        output.result("\n".join([text.rstrip("\n"), *left_lines(name, left, unknown)]))
