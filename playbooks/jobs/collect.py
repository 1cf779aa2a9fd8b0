"""A job's logs and outputs on this machine: ``collect``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from invoke.context import Context
from invoke.exceptions import Exit

from infra.inventory import Inventory
from launch.client.left_files import left_words
from launch.errors import GiveUpError, InputError, ManyNodesError, RankliftError
from launch.numbers import counted
from launch.remote.base.messages import size
from playbooks.cli import output
from playbooks.cli.task import command, open_from, with_address_age
from playbooks.jobs.location import Place, find_job, note_of
from playbooks.nodes.busy import COLLECTED, WORK
from playbooks.project import Stack
from playbooks.ssh.fanout import fan_out_hosts

if TYPE_CHECKING:
    from launch.host import Host
    from launch.results.download import CollectReport, Progress
    from playbooks.ssh.connection import Cluster

__all__ = ["collect", "format_report", "noted", "progress_bar", "remarks"]

_NOTE_S = 20.0
_OWN = f"begun-{os.getpid()}"
"""Suffix of a note until everything has been copied."""
_AT_ONCE = 16
"""Nodes that send at once: more would only share the operator's line."""
_SHOWN = 20
"""Files named one by one; ``--json`` has them all."""


@command(
    "collect",
    example="fab collect train-20260301-090507-0f3a --into results",
    help={
        "into": "folder in which <job>/ is created (default: results)",
        "work": "copy also what the job left in its working folders, into <job>/work/<node>/",
        "match": "of that only the files and folders that fit this pattern, as in 'checkpoints/*.ckpt'",
    },
    positional=["job"],
)
def collect(
    context: Context,
    job: str,
    into: str = "results",
    work: bool = False,
    match: str | None = None,
    stack: str | None = None,
    json: bool = False,
    dry_run: bool = False,
) -> None:
    """Copy a job's logs and outputs from all its nodes into <into>/<job>/.

    Repeat it to continue after an interruption, or to copy what has been added since. Nothing is overwritten.
    What the job wrote to its working folders outside of ./outputs is named, and copied with --work.
    """
    from launch.results.collect import Others
    from launch.results.collect import collect as fetch
    from playbooks.jobs.handle import choose_job, meant_job
    from playbooks.ssh.connection import Cluster

    if not into.strip():
        raise InputError("--into", into, "is not the name of a folder", "leave it out for results")
    wanted = _wanted(match, with_work=work)
    chosen = open_from(context, stack)
    inventory = chosen.saved()
    folder = Path(into).expanduser()
    if dry_run:
        which = meant_job(chosen, job)
        what = "logs and outputs" if wanted is None else "logs, outputs and files of the working folders"
        step = f"copy the {what} of {which} from its nodes into {folder}/<job>/"
        output.steps([step, "note on its head that all was copied, if it was"], json=json)
        return
    name = choose_job(chosen, inventory, job)
    place, unknown = _place(chosen, inventory, name)
    with Cluster(inventory, chosen.folder) as cluster:
        head = None if place is None else cluster.host(place.head)
        remote = None if place is None else place.remote
        names = [node.name for node in inventory.nodes]
        others = Others(names, _visitor(inventory, cluster), output.progress)
        try:
            with progress_bar() as show:
                fetched = partial(
                    fetch, name, head, folder, remote=remote, others=others, show=show, work=wanted
                )
                report = noted(name, head, fetched, with_work=wanted == "")
        except KeyboardInterrupt:
            output.progress(f"\nwhat was copied is in {folder / name}; the same command continues from there")
            raise Exit(code=130) from None
    if unknown is not None and not report.files:
        raise unknown
    if json:
        output.as_json(report)
    else:
        output.result(format_report(report))
    for line in (*remarks(report), *_left(name, report, match)):
        output.progress(line)
    missing = list(_missing(report))
    if report.errors:
        for line in missing:
            output.progress(line)
        raise with_address_age(inventory, ManyNodesError("collecting", report.results))
    if missing:
        raise GiveUpError("\n".join(["some files were not copied", *missing]))


def _wanted(match: str | None, *, with_work: bool) -> str | None:
    """Return the pattern of what is copied of working folders: None for nothing, "" for all."""
    if match is not None and not with_work:
        raise InputError("--match", match, "chooses among files of working folders", "give --work too")
    if match is not None and not match.strip("/ "):
        raise InputError("--match", match, "is no pattern", "write it like 'checkpoints/*.ckpt'")
    return (match or "") if with_work else None


def _left(job: str, report: CollectReport, match: str | None) -> Iterator[str]:
    """Yield what stays in working folders."""
    if report.left is not None:
        yield from left_words({job: report.left})
    if match is not None and not any(files.matched for files in report.files.values()):
        yield f"--match {match}: no file fits that the job left in its working folders"


def noted(
    job: str, head: Host | None, work: Callable[[], CollectReport], *, with_work: bool = False
) -> CollectReport:
    """Return the report of ``work``, which collects the job; note on its head if all was copied.

    ``with_work`` that includes what the job left in its working folders.

    The note is dated at the start of the collect: what a job adds later is newer. A silent head, or
    one with a full disk, has no note: `fab down` then asks before it removes the job.
    """
    is_begun = head is not None and _run(head, f'mkdir -p "$1" && : > "$1/$2.{_OWN}"', job)
    report = work()
    if head is not None and is_begun:
        also = f'cp -p "$1/$2.{_OWN}" "$1/$2{WORK}" && ' if with_work else ""
        done = f'{also}mv "$1/$2.{_OWN}" "$1/$2"'
        _run(head, done if report.is_complete else f'rm -f "$1/$2.{_OWN}"', job)
    return report


def _run(head: Host, script: str, job: str) -> bool:
    try:
        done = head.run(["sh", "-c", script, "sh", COLLECTED, job], timeout=_NOTE_S)
    except RankliftError:
        return False
    return done.exit_status == 0


def _place(stack: Stack, inventory: Inventory, job: str) -> tuple[Place | None, Exception | None]:
    """Return where the job is, else why that is unknown when other nodes may still have their part."""
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
    def visit(work: Callable[[Host], None], names: Iterable[str]) -> Mapping[str, Exception | None]:
        wanted = {*names}
        nodes = [node for node in inventory.nodes if node.name in wanted]
        return fan_out_hosts(cluster.host, nodes, work, what="collecting", limit=_AT_ONCE)

    return visit


def format_report(report: CollectReport) -> str:
    """Return a report as one line."""
    files = report.files.values()
    written, sent = sum(one.written for one in files), sum(one.bytes for one in files)
    more = [
        f"{count} {words}"
        for count, words in (
            (sum(one.continued for one in files), "of them continued"),
            (sum(one.kept for one in files), "already copied"),
        )
        if count
    ]
    return f"{report.folder}: " + ", ".join(
        [counted(written, "file"), f"{size(sent)} from {counted(len(files), 'node')}", *more]
    )


def remarks(report: CollectReport) -> Iterator[str]:
    """Yield what the user may not expect."""
    for node, files in report.files.items():
        yield from _some(
            files.renamed.items(), "{} differs from the file on {node}, which is saved as {}", node
        )
        yield from _some(((path, "") for path in files.vanished), "{} was removed on {node} meanwhile", node)
        yield from _some(files.skipped.items(), "{} on {node} {}: skipped", node)


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
    """Return a name that cannot move the cursor.

    >>> _printable("a b"), _printable("a\\nb")
    ('a b', "'a\\\\nb'")
    """
    return name if name.isprintable() else ascii(name)


@contextmanager
def progress_bar() -> Iterator[Callable[[Progress], object]]:
    """Return a function that displays how far a collect is, on a terminal."""
    with output.progress_bar("collecting") as update:

        def show(now: Progress) -> None:
            if now.come or not now.checked:
                update("collecting", now.come, now.total)
            else:
                update("checking local files", now.checked, None)

        yield show
