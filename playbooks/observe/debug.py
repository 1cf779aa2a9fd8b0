"""``fab debug``: what each rank of a running job does, and which of them keeps the others waiting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from invoke.context import Context

from infra.inventory import Inventory
from playbooks.cli import output
from playbooks.cli.task import command, open_from
from playbooks.jobs.handle import choose_job
from playbooks.jobs.location import find_job
from playbooks.nodes.push import push_to
from playbooks.project import Stack

if TYPE_CHECKING:
    from launch.client.debug import DebugReport
    from launch.host import Host

__all__ = ["debug", "debug_text"]

_FRAMES = 12
"""Frames of each stack that are printed; --json has more."""


@command(
    "debug",
    example="fab debug train-20260301-090507-0f3a",
    positional=["job"],
    help={"json": "print the verdict, the stacks and all that the nodes reported as JSON"},
)
def debug(context: Context, job: str, stack: str | None = None, json: bool = False) -> None:
    """Show what the ranks of a running job do, equal stacks once, and say what they wait for.

    The ranks go on undisturbed: their stacks are read from outside, three times within two seconds. Of a job
    that --hang-after has ended, show what its ranks did before.
    """
    from launch.client.debug import debug_job
    from playbooks.ssh.connection import Cluster

    chosen = open_from(context, stack)
    inventory = chosen.saved()
    name = choose_job(chosen, inventory, job)
    place = find_job(chosen, inventory, name)
    with Cluster(inventory, chosen.folder) as cluster:
        head = cluster.host(place.head)
        py_spy = _bring_py_spy(chosen, inventory, name, head, place.remote)
        report = debug_job(name, head, remote=place.remote, py_spy=py_spy)
    if json:
        output.as_json(report)
    else:
        output.result(debug_text(report))


def _bring_py_spy(stack: Stack, inventory: Inventory, job: str, head: Host, remote: str) -> str:
    """Push py-spy to the job's nodes that lack it; return its path there, empty without one."""
    from launch.client.query import show_job
    from launch.code.stack_tool import NO_STACKS, py_spy_path, py_spy_snapshot
    from launch.errors import ManyNodesError

    snapshot = py_spy_snapshot()
    if snapshot is None:
        output.progress(NO_STACKS)
        return ""
    state = show_job(job, head, remote=remote).state
    nodes = [node for node in inventory.nodes if node.name in state.nodes]
    if state.state != "RUNNING" or head.name not in (node.name for node in nodes):
        return py_spy_path()
    try:
        push_to(stack, head, nodes, snapshot)
    except ManyNodesError as error:
        output.error(error)  # the other nodes' ranks can be looked at
    return py_spy_path()


def debug_text(report: DebugReport) -> str:
    """Return a report as text: the verdict, each different stack with its ranks, what limits the verdict."""
    parts = [report.verdict, ""]
    for fold in report.folds:
        parts += [_heading(report, fold.ranks), *_stack(fold.frames, fold.why), ""]
    parts += [f"note: {note}" for note in report.notes]
    parts.append(f"looked at in {report.seconds:.1f} s; --json has all threads, processes and devices")
    return "\n".join(parts)


def _heading(report: DebugReport, ranks: Sequence[int]) -> str:
    from launch.nodeset import fold
    from launch.remote.hangs.stack_folding import format_ranks

    states = [report.ranks[rank] for rank in ranks]
    where = fold({state.node for state in states})
    one = states[0]
    facts = [f"{format_ranks(ranks)} on {where}"]
    if len(states) == 1:
        facts.append(f"process {one.pid}")
    facts.append("/".join(sorted({_state(state.state, state.kernel_function) for state in states})[:3]))
    busy = sum(state.cpu_ms for state in states) / len(states) / 1000
    facts.append(f"{busy:.1f} s of processor time{' each' * (len(states) > 1)}")
    silent = [state.silent_s for state in states if state.silent_s >= 0]
    if silent:
        facts.append(f"silent for {min(silent)} s" + (f" to {max(silent)} s" * (max(silent) > min(silent))))
    return ", ".join(facts)


def _state(state: str, function: str) -> str:
    return f"{state} in {function}" if function else state


def _stack(frames: Sequence[tuple[str, str, int]], why: str) -> list[str]:
    if not frames:
        return [f"    {why}"]
    lines = [f"    {function} ({_short(file)}:{line})" for function, file, line in frames[:_FRAMES]]
    left = len(frames) - _FRAMES
    return lines + ([f"    and {left} more"] if left > 0 else [])


def _short(file: str) -> str:
    from launch.remote.hangs.places import short_file

    return short_file(file)
