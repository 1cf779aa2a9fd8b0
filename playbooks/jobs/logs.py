"""The output of a job's ranks: ``logs``."""

from __future__ import annotations

import re

from invoke.context import Context

from launch.client.log_filter import Selection
from launch.errors import InputError
from launch.nodeset import NodeSet, parse_nodes, parse_ranges
from playbooks.cli import output
from playbooks.cli.options import number
from playbooks.cli.signals import attached
from playbooks.cli.task import command, open_from, seconds
from playbooks.jobs.location import find_job
from playbooks.jobs.printer import EventPrinter, detached_job_commands, end_as, report_left

__all__ = ["logs"]


@command(
    "logs",
    example="fab logs -f train-20260301-090507-0f3a --tail 100 --rank 0-3,7",
    help={
        "follow": "continue until the job ends; the exit status is then the job's",
        "tail": "only this many of the last lines, and with -f those that follow (default: all)",
        "since": "only lines of the last 90, 90s, 10m or 2h",
        "rank": "only these ranks' lines: 0-3,7",
        "node": "only lines from these nodes: names, instance ids and ranges of both, as for `--nodes`",
        "grep": "of the lines that the other options select, only those that match this regular expression",
        "json": "print each line as a JSON record",
        "merge": "print a line that many ranks print within a second once, with all ranks in front",
    },
    positional=["job"],
)
def logs(  # noqa: PLR0913, PLR0917
    context: Context,
    job: str,
    follow: bool = False,
    tail: str | None = None,
    since: str | None = None,
    rank: str | None = None,
    node: str | None = None,
    grep: str | None = None,
    merge: bool = False,
    stack: str | None = None,
    json: bool = False,
) -> None:
    """Print the output of a job's ranks, each line with its rank and node.

    Of a job that waits, print on stderr what for; with --follow continue when it starts.
    Ctrl-C leaves the job running and prints how to follow and end it.
    """
    from launch.client.submit import follow as read
    from playbooks.jobs.handle import choose_job
    from playbooks.ssh.connection import Cluster

    selection = _selection(tail, since, rank, node)
    if json and merge:
        raise InputError("--json", None, "cannot be combined with --merge", "give one of the two")
    chosen = open_from(context, stack)
    inventory = chosen.saved()
    pattern = _pattern(grep)
    name = choose_job(chosen, inventory, job)
    named = name if name != job else ""
    printer = EventPrinter(pattern=pattern, merge=merge, lines_only=not follow, json=json, named=named)
    place = find_job(chosen, inventory, name)

    def on_signal(_: int) -> str:
        printer.finish()
        return f"job {name} continues\n{detached_job_commands(chosen, name)}" if follow else "interrupted"

    with Cluster(inventory, chosen.folder) as cluster, attached(on_signal):
        head = cluster.host(place.head)
        state = read(name, head, printer, remote=place.remote, selection=selection, wait=follow)
        printer.finish()
        if follow:
            report_left(state, inventory, cluster, place.remote, is_watched=True)
    if follow:
        end_as(state, printer.error_line)
    elif state.started is None:
        from playbooks.jobs.tables import not_started_text

        output.progress(not_started_text(state, is_named=bool(named)))


def _selection(tail: str | None, since: str | None, rank: str | None, node: str | None) -> Selection:
    nodes = NodeSet() if node is None else parse_nodes(node, "--node")
    if nodes.count is not None:
        raise InputError("--node", node, "leaves open which nodes", "name them, as in node000001,4-7")
    return Selection(
        None if rank is None else frozenset(parse_ranges(rank, "--rank")),
        nodes.names,
        nodes.ids,
        None if since is None else seconds("--since", since),
        None if tail is None else number("--tail", tail, "lines", "write it like 100"),
    )


def _pattern(text: str | None) -> re.Pattern[str] | None:
    try:
        return None if text is None else re.compile(text)
    except re.error as error:
        raise InputError(
            "--grep", text, f"is not a regular expression: {error}", "write \\. for a dot"
        ) from None
