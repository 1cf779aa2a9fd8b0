"""Bringing home what a job has made: ``collect``."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from invoke.context import Context
from invoke.exceptions import Exit

from infra.inventory import Inventory
from launch.errors import GiveUpError, InputError, ManyNodesError, RankliftError
from launch.numbers import counted
from playbooks.cli import output
from playbooks.cli.task import command, open_from
from playbooks.jobs.log_printer import Place, find_job, note_of
from playbooks.nodes.tasks import explained
from playbooks.project import Stack
from playbooks.ssh.fanout import fan_out

if TYPE_CHECKING:
    from launch.host import Host
    from launch.results.download import CollectReport, Progress
    from playbooks.ssh.connection import Cluster

__all__ = ["COLLECTED", "collect", "noted", "remarks", "showing", "told"]

COLLECTED = ".ranklift/collected"
"""The folder on a head with a file for each job of which all was brought, as old as the beginning of that."""
_NOTE_S = 20.0
_OWN = f"begun-{os.getpid()}"
"""What a note is called until all has come."""
_AT_ONCE = 16
"""Nodes that send at once: more only share the operator's line."""
_SHOWN = 20
"""Files named one by one; ``--json`` has them all."""
_REDRAW_S = 0.1


@command(
    "collect",
    example="fab collect train-20260301-090507-0f3a --into results",
    help={
        "job": "the job's id, as launch and `fab jobs` show it",
        "into": "the folder in which <job>/ is made (default: results)",
    },
    positional=["job"],
)
def collect(
    context: Context, job: str, into: str = "results", stack: str | None = None, json: bool = False
) -> None:
    """Brings a job's logs and outputs from all its nodes into <into>/<job>/.

    Repeat it to go on after an interruption, or to bring what has been added since. Nothing is overwritten.
    """
    from launch.results.collect import Others
    from launch.results.collect import collect as fetch
    from playbooks.ssh.connection import Cluster

    if not into.strip():
        raise InputError("--into", into, "names no folder", "leave it out for results")
    chosen = open_from(context, stack)
    inventory = chosen.saved()
    place, unknown = _place(chosen, inventory, job)
    folder = Path(into).expanduser()
    with Cluster(inventory, chosen.folder) as cluster:
        head = None if place is None else cluster.host(place.head)
        remote = None if place is None else place.remote
        names = [node.name for node in inventory.nodes]
        others = Others(names, _visitor(inventory, cluster), output.progress)
        try:
            with showing() as show:
                work = partial(fetch, job, head, folder, remote=remote, others=others, show=show)
                report = noted(job, head, work)
        except KeyboardInterrupt:
            output.progress(f"\nwhat has come is in {folder / job}; the same command goes on from there")
            raise Exit(code=130) from None
    if unknown is not None and not report.files:
        raise unknown
    if json:
        output.as_json(report)
    else:
        output.result(told(report))
    for line in remarks(report):
        output.progress(line)
    missing = list(_missing(report))
    if report.errors:
        for line in missing:
            output.progress(line)
        raise explained(inventory, ManyNodesError("collecting", report.results))
    if missing:
        raise GiveUpError("\n".join(["some files did not come", *missing]))


def noted(job: str, head: Host | None, work: Callable[[], CollectReport]) -> CollectReport:
    """The report of ``work``, which collects the job; its head notes that if all has come.

    The note is as old as the beginning: what a job adds later is newer. A head that does not answer, or whose
    disk is full, knows of no collect: `fab down` asks once more then.
    """
    is_begun = head is not None and _run(head, f'mkdir -p "$1" && : > "$1/$2.{_OWN}"', job)
    report = work()
    if head is not None and is_begun:
        _run(head, f'mv "$1/$2.{_OWN}" "$1/$2"' if report.is_complete else f'rm -f "$1/$2.{_OWN}"', job)
    return report


def _run(head: Host, script: str, job: str) -> bool:
    try:
        done = head.run(["sh", "-c", script, "sh", COLLECTED, job], timeout=_NOTE_S)
    except RankliftError:
        return False
    return done.exit_status == 0


def _place(stack: Stack, inventory: Inventory, job: str) -> tuple[Place | None, Exception | None]:
    """Where the job is kept; else why nobody knows, when its other nodes may still have their part."""
    try:
        return find_job(stack, inventory, job), None
    except ManyNodesError as error:
        return None, error
    except InputError as error:
        if note_of(stack, job).exists():
            return None, error
        raise


def _visitor(
    inventory: Inventory, cluster: Cluster
) -> Callable[[Callable[[Host], None], Iterable[str]], Mapping[str, Exception | None]]:
    by_name = {node.name: node for node in inventory.nodes}

    def visit(work: Callable[[Host], None], names: Iterable[str]) -> Mapping[str, Exception | None]:
        def one(name: str) -> None:
            with cluster.host(by_name[name]) as host:
                work(host)

        return fan_out(one, names, what="collecting", limit=_AT_ONCE)

    return visit


def told(report: CollectReport) -> str:
    """What came, in one line."""
    files = report.files.values()
    written, sent = sum(one.written for one in files), sum(one.bytes for one in files)
    more = [
        f"{count} {words}"
        for count, words in (
            (sum(one.continued for one in files), "of them continued"),
            (sum(one.kept for one in files), "were there already"),
        )
        if count
    ]
    return f"{report.folder}: " + ", ".join(
        [counted(written, "file"), f"{output.amount(sent)} from {counted(len(files), 'node')}", *more]
    )


def remarks(report: CollectReport) -> Iterator[str]:
    """What the user may not expect."""
    for node, files in report.files.items():
        yield from _some(files.renamed.items(), "{} is not what {node} has: that is {} now", node)
        yield from _some(((path, "") for path in files.vanished), "{} was removed on {node} meanwhile", node)
        yield from _some(files.skipped.items(), "{} on {node} {}: passed over", node)


def _missing(report: CollectReport) -> Iterator[str]:
    for node, files in report.files.items():
        yield from _some(files.left_out.items(), "{node}: {}: {}", node)


def _some(found: Iterable[tuple[str, str]], text: str, node: str) -> Iterator[str]:
    pairs = list(found)
    for name, more in pairs[:_SHOWN]:
        yield text.format(_printable(name), _printable(more), node=node)
    if len(pairs) > _SHOWN:
        yield f"and {len(pairs) - _SHOWN} more like it on {node}"


def _printable(name: str) -> str:
    """A name that cannot move the cursor.

    >>> _printable("a b"), _printable("a\\nb")
    ('a b', "'a\\\\nb'")
    """
    return name if name.isprintable() else ascii(name)


@contextmanager
def showing() -> Iterator[Callable[[Progress], object]]:
    """Shows how far it is, on a terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich import progress
    from rich.console import Console

    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
        progress.TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with progress.Progress(*columns, console=console, auto_refresh=False, transient=True) as bar:
        task = bar.add_task("collecting", total=None)
        drawn = 0.0

        def show(now: Progress) -> None:
            nonlocal drawn
            if time.monotonic() - drawn > _REDRAW_S:
                drawn = time.monotonic()
                what = "collecting" if now.come or not now.checked else "looking at what is here"
                done = (now.come, now.total) if what == "collecting" else (now.checked, None)
                bar.update(task, description=what, completed=done[0], total=done[1], refresh=True)

        yield show
