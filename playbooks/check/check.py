"""Whether nodes are what their size promises: ``check``."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from invoke.context import Context
from invoke.exceptions import Exit

from infra.inventory import Inventory, Node
from launch.errors import GiveUpError, InputError
from launch.nodeset import fold
from playbooks.check.alone import alone, refuse_beside_check
from playbooks.cli import output
from playbooks.cli.merged_output import grouped
from playbooks.cli.signals import attached
from playbooks.cli.task import command, open_from
from playbooks.nodes.choose import choose_nodes
from playbooks.nodes.sick import Verdict, keep_measured, read_checked, write_checked
from playbooks.private_file import write_private
from playbooks.project import Stack

if TYPE_CHECKING:
    from launch.health.bandwidth_programs import BandwidthProgram
    from launch.health.measurement import Group, Measurement
    from launch.health.search import SearchResult
    from launch.remote.base.health_records import Look
    from playbooks.check.report import CheckReport

__all__ = ["check"]

_CANNOT_START = "cannot start "
"""Of a rank's last words: its program is not on the node (:mod:`launch.remote.base.processes`)."""


@command(
    "check",
    example="fab check --deep --svg pairs.svg",
    help={
        "deep": "measure the bandwidth between the nodes, and find slow ones",
        "pairs": "with --deep: measure every pair of nodes, which finds slow paths too; n - 1 rounds",
        "by": "what measures: nccl (GPUs) or mpi (default: by the size)",
        "svg": "file for a heat map of the measured pairs",
        "first-day": "answer the open questions of docs/rehearsal-limits.md, as far as can be done unasked",
    },
)
def check(  # noqa: PLR0913, PLR0917  (each is an option)
    context: Context,
    nodes: str | None = None,
    stack: str | None = None,
    deep: bool = False,
    pairs: bool = False,
    by: str | None = None,
    svg: str | None = None,
    first_day: bool = False,
    json: bool = False,
    dry_run: bool = False,
) -> None:
    """Look at every node's devices; with --deep measure between them, and name slow nodes.

    With --deep, jobs measure all nodes together, then smaller groups until the slow ones are found; nodes
    that run jobs or are drained are left out. A node that is slow at times only is called unstable: a
    busy machine makes such. `fab replace --sick` takes the nodes called sick. The exit status is 0 when
    nothing was found. --first-day is another report, for the first day on a real cluster.
    """
    for option, value in (("--pairs", pairs), ("--by", by), ("--svg", svg)):
        if value and not deep:
            raise InputError(option, None, "is about measuring", "give --deep too, or leave it out")
    chosen = open_from(context, stack)
    if first_day:
        if deep or nodes is not None:
            raise InputError("--first-day", None, "is a report of its own", "leave out the other options")
        if dry_run:
            output.steps(["ask Azure and every node, and write a report into the stack's folder"], json=json)
            return
        from playbooks.check.first_day_report import report_first_day

        report_first_day(chosen, json=json)
        return
    from launch.health.bandwidth_programs import program_of
    from playbooks.check.report import make_report  # with statistics, 7 ms of every fab's start
    from playbooks.nodes.look import look

    inventory = chosen.saved()
    wanted = choose_nodes(inventory, nodes)
    program = program_of(inventory.size, by) if deep else None
    if dry_run:
        output.steps(_steps(wanted, program, svg, pairs=pairs), json=json)
        return
    if svg is not None:
        _refuse_unwritable(Path(svg))
    found, left_out = None, dict[str, str]()
    with nullcontext() if program is None else alone(chosen):
        looks = look(chosen, inventory, wanted)
        if program is not None:
            left_out = _left_out(chosen, inventory, wanted, looks)
            for line in grouped(left_out):
                output.progress(f"not measured: {line}")
            measurable = [node for node in wanted if node.name not in left_out]
            found = _measure(chosen, inventory, measurable, program, pairs)
    report = make_report(inventory.size, wanted, looks, left_out, program, found)
    measured = () if found is None else [one.node for one in found.nodes]
    verdicts = keep_measured(report.nodes, _earlier(chosen), measured, time.time())
    write_checked(chosen, verdicts, **output.plain(report.more))
    known = {name: verdicts[name] for name in report.nodes}
    is_healthy = report.is_healthy and not any(one.slow for one in known.values())
    report = replace(report, nodes=known, is_healthy=is_healthy)
    _print(report, chosen, json=json)
    if svg is not None and found is not None:
        from playbooks.check.heat_map import heat_map

        try:
            write_private(Path(svg), heat_map(found))
        except OSError as error:
            raise GiveUpError(f"--svg {svg} cannot be written: {error.strerror}") from None
    if not report.is_healthy:
        raise Exit(code=1)


def _steps(
    nodes: Sequence[Node], program: BandwidthProgram | None, svg: str | None, *, pairs: bool
) -> list[str]:
    where = fold(node.name for node in nodes)
    look = f"look at the devices of {where}, and note the verdicts here"
    if program is None:
        return [look]
    groups = "every pair of them" if pairs else "all of them, then smaller groups until slow nodes are found"
    measure = f"measure by {program.name}, in jobs on those that are idle and not drained: {groups}"
    return [look, measure, *([] if svg is None else [f"write {svg}"])]


def _refuse_unwritable(path: Path) -> None:
    """Raise :class:`~launch.errors.InputError` for a file that cannot be written, before anything is measured
    for it; leave none behind."""
    existed = path.exists()
    try:
        with path.open("a", encoding="utf-8"):
            pass
        if not existed:
            path.unlink()
    except OSError as error:
        problem = f"cannot be written: {error.strerror}"
        raise InputError("--svg", str(path), problem, "name a file in a folder that exists") from None


def _earlier(stack: Stack) -> Mapping[str, Verdict]:
    """Return the verdicts of the check before this one; none where they do not count any more."""
    try:
        return read_checked(stack, time.time())
    except InputError:
        return {}


def _print(report: CheckReport, stack: Stack, *, json: bool) -> None:
    if json:
        output.as_json({**output.plain(report.more), "stack": stack.name, "nodes": report.nodes})
        return
    rows = [
        (name, one.instance_id, one.verdict, "; ".join(one.reasons)) for name, one in report.nodes.items()
    ]
    output.table(("name", "id", "verdict", "reasons"), rows, folds="reasons", needed=3)
    if report.search is not None:
        from playbooks.check.report import format_search

        for line in format_search(report.search):
            output.result(line)
    sick = [str(one.instance_id) for one in report.nodes.values() if one.verdict == "sick"]
    if sick:
        output.progress(f"`fab replace --sick --stack {stack.name}` replaces {', '.join(sick)}")


def _left_out(
    stack: Stack, inventory: Inventory, nodes: Sequence[Node], looks: Mapping[str, Look | Exception]
) -> dict[str, str]:
    """Return the nodes that are not measured, and why."""
    from playbooks.nodes.busy import uses

    used = uses(stack, inventory)
    refuse_beside_check(stack, {node.name: used[node.name].jobs for node in nodes})
    reasons: dict[str, str] = {}
    for node in nodes:
        seen, use = looks[node.name], used[node.name]
        if isinstance(seen, Exception):
            reasons[node.name] = "nothing is known of its devices"
        elif any(one["level"] == "error" for one in seen["findings"]):
            reasons[node.name] = "its devices have errors"
        elif use.jobs or not use.is_idle or use.drain:
            reasons[node.name] = str(use)
    return reasons


def _measure(
    stack: Stack, inventory: Inventory, nodes: Sequence[Node], program: BandwidthProgram, every_pair: bool
) -> SearchResult | None:
    """Measure and search; Ctrl-C ends the jobs under way."""
    from launch.health.bandwidth_programs import figure_of
    from launch.health.search import search, search_all_pairs
    from playbooks.check.bandwidth_jobs import BandwidthJobs
    from playbooks.ssh.connection import Cluster

    if len(nodes) < 2:  # noqa: PLR2004
        raise InputError("--nodes", None, "leaves fewer than two nodes to measure", "choose more, or wait")
    names = [node.name for node in nodes]
    with Cluster(inventory, stack.folder) as cluster:
        jobs = BandwidthJobs(stack, inventory, program, cluster)
        rounds = 0

        def measure(groups: Sequence[Group]) -> Sequence[Measurement]:
            nonlocal rounds
            rounds += 1
            measured = jobs.measure(groups)
            if all(one.gbs is None for one in measured) and _CANNOT_START in measured[0].problem:
                remedy = (
                    "give --by mpi, which needs an MPI alone" if program.name != "mpi" else "install an MPI"
                )
                raise InputError("--by", program.name, f"cannot measure: {measured[0].problem}", remedy)
            output.progress(f"round {rounds}: {_round(measured)}")
            return measured

        def on_signal(_number: int) -> str:
            ended = jobs.end()
            return f"interrupted: ended {', '.join(ended)}" if ended else "interrupted: no job was running"

        with attached(on_signal):
            find = search_all_pairs if every_pair else search
            return find(names, measure, figure_of(inventory.size, program))


def _round(measured: Sequence[Measurement]) -> str:
    """Return what a round measured, in a line."""
    values = sorted(one.gbs for one in measured if one.gbs is not None)
    sizes = sorted({len(one.group) for one in measured})
    what = (
        f"{len(measured)} groups of {' and '.join(map(str, sizes))} nodes"
        if len(measured) > 1
        else (f"{fold(measured[0].group)} together")
    )
    parts = (
        [f"{values[0]:.3g} to {values[-1]:.3g} GB/s" if len(values) > 1 else f"{values[0]:.3g} GB/s"]
        if values
        else []
    )
    failed = [one for one in measured if one.gbs is None]
    parts += [f"{len(failed)} failed, the first by {failed[0].problem}"] if failed else []
    return f"{what}: {', '.join(parts)}"
