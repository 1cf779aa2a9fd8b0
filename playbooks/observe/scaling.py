"""How well a job scales: ``scaling``."""

from __future__ import annotations

import hashlib
import json as jsons
import os
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from invoke.context import Context
from invoke.exceptions import Exit

from infra.inventory import Inventory, Node
from launch.errors import GiveUpError, InputError, JobFailed, RankliftError
from launch.numbers import counted
from playbooks.check.alone import alone, wait_for_free_nodes
from playbooks.cli import output as shown
from playbooks.cli.access import ACCESS, access_flags
from playbooks.cli.options import number, probe_flag, processes_flag, variables
from playbooks.cli.signals import report_half_done
from playbooks.cli.task import command, open_from, seconds
from playbooks.jobs.job_options import ENVIRONMENT, confirm_identity, environment_flag, found_environment
from playbooks.jobs.launch_file import launch_options, load_of, read_job_file
from playbooks.jobs.submit import Load
from playbooks.nodes.choose import choose_nodes
from playbooks.observe.scaling_files import earlier_study, report_study, write_study
from playbooks.project import Stack

if TYPE_CHECKING:
    from launch.jobfile import Flags, JobFile
    from launch.scaling.scaling_plan import ScalingPlan
    from launch.scaling.scaling_study import Study, Subject
    from playbooks.observe.scaling_runs import ScalingRuns

__all__ = ["largest_price", "scaling"]

_METRIC = "samples_per_s"
_MOST_REPEATS = 100
_HELP = {
    "file": "the job file, as for `fab launch`",
    "nodes": "numbers of nodes to measure at, always the first of the stack: 1,2,4,8 (default: 1, 2, 4 "
    "and so on, up to all)",
    "repeat": "runs at each number of nodes (default: 3)",
    "metric": "what is measured: a name of the file's `ranklift.metrics`, or a regular expression whose "
    f"group is a figure of ranks, higher for faster (default: {_METRIC}, as common frameworks print it)",
    "of": "whose figure a line prints: rank (figures of ranks are added up) or job (default: by the lines)",
    "weak": "each rank's share of the work stays the same (default)",
    "strong": "all the work stays the same, and is shared by more ranks",
    "warm-up": "how many of each rank's first figures do not count (default: 1)",
    "output": "folder for scaling.json, .csv and .html (default: scaling)",
    "resume": "continue the measurement in that folder: runs that it has are not repeated",
    "set": "one value of the file, by its path through the keys: inputs.batch=64; may be repeated",
    "env": "a variable for every rank, over the file's: NAME=VALUE, or NAME for its value here; may be "
    "repeated",
    "nproc-per-node": "processes on each node, over the file's; `auto` for one per slot",
    "environment": "an environment by name, over the file's: environments/NAME.yml, or Microsoft's; bare",
    "timeout": "limit of each run: 90, 90s, 10m or 2h",
    "probe": "prove InfiniBand before every run on several nodes (default: before the first there)",
    "no-probe": "measure without that proof, and without InfiniBand where there is none",
    **{option.replace("_", "-"): text for option, text in ACCESS.items()},
    "dry-run": "print the runs, without any connection or cloud call",
}


@command(
    "scaling",
    example="fab scaling job.yml --nodes 1,2,4,8 --repeat 3",
    help=_HELP,
    counts=["nodes"],
    iterable=["allow_path", "env", "fill", "set"],
    positional=["file"],
)
def scaling(  # noqa: PLR0913, PLR0917  (each is an option)
    context: Context,
    file: str,
    nodes: str | None = None,
    repeat: str = "3",
    metric: str = _METRIC,
    of: str | None = None,
    weak: bool = False,
    strong: bool = False,
    warm_up: str = "1",
    output: str = "scaling",
    resume: bool = False,
    set: list[str] | None = None,
    env: list[str] | None = None,
    nproc_per_node: str | None = None,
    environment: str | None = None,
    fill: list[str] | None = None,
    allow_path: list[str] | None = None,
    timeout: str | None = None,
    probe: bool = False,
    no_probe: bool = False,
    stack: str | None = None,
    json: bool = False,
    dry_run: bool = False,
) -> None:
    """Measure how a job's throughput grows with its nodes, and what of it is lost.

    Runs the job at each number of nodes, one job at a time, and compares with linear growth from the fewest.
    The exit status is a failed run's; what was measured is kept. Ctrl-C ends the job that runs.
    """
    from launch.jobfile import Flags, wanted_environment, with_assets
    from launch.scaling.scaling_plan import read_metric
    from launch.scaling.scaling_study import Study
    from playbooks.observe.scaling_runs import ScalingRuns

    chosen = open_from(context, stack)
    inventory = chosen.saved()
    folder = Path(output).expanduser()
    folders = [Path(file).expanduser().absolute().parent, Path.cwd(), chosen.project]
    access = access_flags(fill, allow_path)
    job = with_assets(read_job_file(file, set or (), access), folders, access)
    if job.own.on_unhealthy == "replace":
        where = job.places["ranklift.on_unhealthy"].where
        shown.progress(f"{where}: ranklift.on_unhealthy is not used: all runs have the same nodes")
    pattern = read_metric(metric, job.own.metrics)
    plan = _plan(nodes, repeat, (metric, pattern), of, (weak, strong), warm_up, len(inventory.nodes))
    flags = Flags(
        environment=environment_flag({**dict.fromkeys(ENVIRONMENT), "environment": environment}, access),
        processes=None if nproc_per_node is None else processes_flag(nproc_per_node),
        env=variables(env or (), os.environ),
        timeout_s=None if timeout is None else seconds("--timeout", timeout),
        max_restarts=0,
        probe=probe_flag(probe, no_probe),
        identity=confirm_identity(job, access, dry_run=dry_run),
    )
    runs_in = found_environment(
        wanted_environment(job, flags), {"find_links": None, "runtime": None}, folders, access
    )
    options = launch_options(chosen, inventory, job, flags, runs_in, None, None)
    load = load_of(chosen, job, access.folders)
    for note in access.notes:
        shown.progress(note)
    wanted = choose_nodes(inventory, None)[: plan.counts[-1]]
    subject = _subject(chosen, inventory, wanted, job, _Given(file, set or (), flags, load))
    with nullcontext() if dry_run else alone(chosen, "scaling"):
        study = earlier_study(folder, plan, subject, resume=resume) or Study(plan, subject)
        pending = plan.runs(study.done)
        if dry_run:
            shown.steps([one.words for one in pending], json=json)
            return
        _check_figures(study)
        _announce(chosen, inventory, plan, len(pending))
        runs = ScalingRuns(chosen, inventory, wanted, job, options, load, plan, no_probe)
        study = _measure(runs, study, folder)
    report_study(study, folder, json=json)


def _plan(
    nodes: str | None,
    repeat: str,
    metric: tuple[str, str],
    of: str | None,
    modes: tuple[bool, bool],
    warm_up: str,
    there: int,
) -> ScalingPlan:
    """Return what the options ask for. Raise :class:`~launch.errors.InputError`."""
    from launch.scaling.scaling_plan import ScalingPlan, powers_of_two, read_basis
    from launch.scaling.scaling_plan import read_node_counts as read_counts

    if all(modes):
        raise InputError("--weak", None, "cannot be combined with --strong", "give one of the two")
    return ScalingPlan(
        counts=read_counts(powers_of_two(there) if nodes is None else nodes, there),
        repeats=number("--repeat", repeat, "runs", "give 1 or more", low=1, high=_MOST_REPEATS),
        mode="strong" if modes[1] else "weak",
        warm_up=number("--warm-up", warm_up, "figures"),
        metric=metric[0],
        pattern=metric[1],
        basis=read_basis(of),
    )


@dataclass(frozen=True, slots=True)
class _Given:
    """What decides which job is measured."""

    file: str
    settings: Sequence[str]
    flags: Flags
    load: Load

    @property
    def fingerprint(self) -> str:
        """A hash of file, options and code; of variables the names alone: their values may be secrets."""
        text = Path(self.file).expanduser().read_bytes()
        given = (
            *(sorted(self.settings), sorted(self.flags.env), self.flags.processes),
            *(repr(self.flags.environment), [one.id for one in self.load.snapshots]),
        )
        return hashlib.sha256(text + jsons.dumps(given).encode()).hexdigest()[:16]


def _subject(
    stack: Stack, inventory: Inventory, nodes: Sequence[Node], job: JobFile, given: _Given
) -> Subject:
    from launch.jobfile import name_of
    from launch.scaling.scaling_study import Subject

    return Subject(
        job_file=given.file,
        name=name_of(job, given.flags),
        fingerprint=given.fingerprint,
        stack=stack.name,
        size=inventory.size,
        rehearsed=stack.is_rehearsed,
        nodes=tuple(node.name for node in nodes),
        benchmark=job.tags.get("benchmark", ""),
    )


def _check_figures(study: Study) -> None:
    """Raise GiveUpError where the runs that are there give no throughput with these options: the next ones
    would give none either."""
    from launch.scaling.metric_numbers import NoThroughput

    try:
        study.samples()
    except NoThroughput as error:
        raise GiveUpError(str(error)) from None


def _announce(stack: Stack, inventory: Inventory, plan: ScalingPlan, pending: int) -> None:
    """Print how many runs there will be, and what the largest costs."""
    most = plan.counts[-1]
    where = ", ".join(map(str, plan.counts))
    if not pending:
        shown.progress(f"all runs on {where} nodes are measured: nothing is left to run")
        return
    shown.progress(f"{counted(pending, 'run')} on {where} nodes, one after the other; {plan.mode} scaling")
    if stack.is_rehearsed:
        shown.progress("rehearsed nodes on one machine: they cost nothing, and say nothing of Azure")
    else:
        shown.progress(
            f"largest point: {largest_price(stack, inventory, most)}; how long a run takes is not known"
        )


def largest_price(stack: Stack, inventory: Inventory, nodes: int) -> str:
    """Return the list price of that many nodes in words."""
    from infra.arm.rest import retail_prices
    from infra.preflight.prices import vm_prices

    what = f"{nodes} x {inventory.size}"
    try:
        found = vm_prices(retail_prices(stack.environment), inventory.size, inventory.location)
    except RankliftError as error:
        return f"{what}, at an unknown price ({error})"
    if found.regular is None:
        return f"{what}, which the price list of {inventory.location} does not have"
    spot = "" if found.spot is None else f" (spot {nodes * found.spot:.2f})"
    return f"{what}, {nodes * found.regular:.2f} USD an hour at list price{spot}"


def _measure(runs: ScalingRuns, study: Study, folder: Path) -> Study:
    """Measure what is pending; keep the measurement after every run, also one that fails."""
    from launch.scaling.scaling_study import FailedRun
    from playbooks.observe.scaling_runs import RunFailed

    pending = runs.plan.runs(study.done)
    if pending:  # before the folder is made and the code is pushed
        wait_for_free_nodes(runs.stack, runs.inventory, runs.nodes[: pending[0].nodes])
    write_study(study, folder)
    kept = f"what was measured is in {folder}; the same command with --resume continues"
    with report_half_done(kept, (KeyboardInterrupt, Exit)):
        if pending:
            runs.push()
        for place, run in enumerate(pending):
            shown.progress(f"run {place + 1} of {len(pending)}: {run.words}")
            try:
                wait_for_free_nodes(runs.stack, runs.inventory, runs.nodes[: run.nodes])
                study = study.with_run(runs.measure(run, is_first=place == 0))
            except RankliftError as error:
                if isinstance(error, RunFailed) and error.measured is not None:
                    study = study.with_run(error.measured)
                else:
                    job = error.job if isinstance(error, JobFailed | RunFailed) else ""
                    study = study.with_failure(FailedRun(run, job, str(error)))
                write_study(study, folder)
                shown.progress(f"{run.words} failed; {kept}")
                raise
            write_study(study, folder)
    return study
