"""Nodes and ranks of a running job at a glance: ``top``."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from invoke.context import Context

from infra.inventory import Inventory
from launch.errors import InputError
from playbooks.cli import output
from playbooks.cli.task import command, open_from
from playbooks.jobs.location import find_job
from playbooks.project import Stack
from playbooks.selection import NEWEST

if TYPE_CHECKING:
    from launch.client.events import JobState
    from launch.client.samples import JobSamples

__all__ = ["top"]

_WIDE = 110
"""Columns of a screen that is printed without a terminal."""
_MANY = 100_000
"""Lines of one that has room for all rows."""


@command(
    "top",
    example="fab top train-20260301-090507-0f3a",
    help={
        "job": "job id, a unique beginning of it or of its last part (default: the newest that runs)",
        "once": "print one screen of text and end; without a terminal, with all nodes and ranks",
        "json": "print the newest samples as one JSON record and end",
    },
    positional=["job"],
)
def top(context: Context, job: str, once: bool = False, stack: str | None = None, json: bool = False) -> None:
    """Show what each node and rank of a running job does, until q or Ctrl-C.

    A row for each node with processors, memory, network, InfiniBand and GPUs, and the course of its use; its
    ranks with the step, loss and rate that they print; above them what is wrong, in words. The screen stays
    while the connection breaks. ? shows the keys. Jobs are not affected.
    """
    if not (once or json or (sys.stdin.isatty() and sys.stdout.isatty())):
        raise InputError("terminal", None, "there is none", "use --once for text, or --json for a record")
    chosen = open_from(context, stack)
    inventory = chosen.saved()
    jobs: Sequence[JobState] | None = None
    if job == NEWEST:
        jobs = _list(chosen, inventory)
        name = _newest(jobs, chosen).job
    else:
        from playbooks.jobs.handle import choose_job

        name = choose_job(chosen, inventory, job, report=False)
    if not (once or json):
        from playbooks.observe.top_session import watch_on_terminal

        watch_on_terminal(chosen, inventory, name, [one for one in jobs or () if not one.is_terminal])
        return
    samples = _ask(chosen, inventory, name)
    if json:
        output.as_json(samples)
    else:
        output.result("\n".join(_screen_text(samples)))


def _list(stack: Stack, inventory: Inventory) -> Sequence[JobState]:
    from launch.nodeset import fold
    from playbooks.jobs.listing import list_jobs
    from playbooks.ssh.connection import Cluster

    with Cluster(inventory, stack.folder) as cluster:
        found = list_jobs(cluster.host, inventory.nodes, 1)
    if found.silent:
        output.progress(f"{fold(found.silent)}: no answer; a job of which it is the head may be missing here")
    return found.jobs


def _newest(jobs: Sequence[JobState], stack: Stack) -> JobState:
    """Return the newest job that runs; else that waits; else that has ended."""
    for states in (("RUNNING", "STARTING"), ("QUEUED",), ()):
        found = [one for one in jobs if one.state in states or not states]
        if found:
            return found[-1]
    raise InputError("job", None, f"stack {stack.name} has no job", "launch one, or give a job's whole id")


def _ask(stack: Stack, inventory: Inventory, job: str) -> JobSamples:
    from launch.client.samples import job_samples
    from playbooks.ssh.connection import Cluster

    place = find_job(stack, inventory, job)
    with Cluster(inventory, stack.folder) as cluster:
        return job_samples(job, cluster.host(place.head), remote=place.remote)


def _screen_text(samples: JobSamples) -> list[str]:
    """Return one screen of text; all rows where there is no terminal."""
    from playbooks.cli.styled import sgr_text
    from playbooks.observe.top_rows import make_rows
    from playbooks.observe.top_screen import draw
    from playbooks.observe.top_view import View

    is_terminal = sys.stdout.isatty()
    columns, lines = shutil.get_terminal_size() if is_terminal else (_WIDE, _MANY)
    shown = make_rows(samples)
    made = draw(shown, (), shown.job.job, View(), None, (columns, lines - 1))
    text = [sgr_text(line, colours=is_terminal).rstrip() for line in made.lines]
    while text and not text[-1]:
        text.pop()
    if made.rows > made.height:
        text.append(f"and {made.rows - made.height} more rows: `fab top --once | less` has all")
    return text
