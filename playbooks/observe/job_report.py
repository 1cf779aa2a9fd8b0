"""A job's report as one HTML file: ``report``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from invoke.context import Context

from infra.inventory import Inventory
from launch.errors import InputError, RankliftError
from playbooks.cli import output
from playbooks.cli.task import command, open_from
from playbooks.private_file import write_private
from playbooks.project import Stack
from playbooks.selection import NEWEST

if TYPE_CHECKING:
    from launch.report.cost import NodePrice

__all__ = ["report"]

_SPOT = "ranklift:spot"


@command(
    "report",
    example="fab report train-20260301-090507-0f3a",
    help={
        "output": "HTML file to write (default: report-JOB.html)",
        "overwrite": "replace the file where it exists",
        "collected": "folder that `fab collect` has made of a job whose cluster is gone, in place of the job",
    },
    positional=["job"],
)
def report(
    context: Context,
    job: str,
    output: str | None = None,
    overwrite: bool = False,
    collected: str | None = None,
    stack: str | None = None,
    json: bool = False,
) -> None:
    """Write a job's report, one HTML file that needs no network.

    It shows what ran and where, what its time went to, its throughput on each node, the proof of transport,
    failures with their last lines, its cost, and advice. A job that runs is reported as far as it has come.
    """
    if collected is not None:
        if job != NEWEST:
            raise InputError("--collected", collected, "cannot be combined with a job", "give one of the two")
        _report_collected(Path(collected).expanduser(), output, overwrite=overwrite, json=json)
        return
    from datetime import UTC, datetime

    from launch.report.page import report_page
    from playbooks.jobs.handle import choose_job
    from playbooks.jobs.location import find_job
    from playbooks.observe.job_facts import job_facts, readable
    from playbooks.ssh.connection import Cluster

    chosen = open_from(context, stack)
    inventory = chosen.saved()
    name = choose_job(chosen, inventory, job)
    target = _target(output, name, overwrite=overwrite)
    place = find_job(chosen, inventory, name)
    price = _price(chosen, inventory)
    with Cluster(inventory, chosen.folder) as cluster, readable(f"job {name}"):
        facts = job_facts(name, cluster.host(place.head), place.remote)
        page = report_page(facts, price, datetime.now(UTC))
    _write(target, page)
    _print(target, json=json)


def _report_collected(folder: Path, target: str | None, *, overwrite: bool, json: bool) -> None:
    from datetime import UTC, datetime

    from launch.report.collected import collected_facts
    from launch.report.cost import NodePrice
    from launch.report.page import report_page
    from playbooks.observe.job_facts import readable

    price = NodePrice("", "", None, "no price list is asked for collected records")
    with readable(str(folder)):
        facts = collected_facts(folder)
        page = report_page(facts, price, datetime.now(UTC))
    path = _target(target, facts.report.state.job, overwrite=overwrite)
    _write(path, page)
    _print(path, json=json)


def _target(given: str | None, job: str, *, overwrite: bool) -> Path:
    """Raise InputError for a file that cannot be written, before anything is queried."""
    target = Path(given or f"report-{job}.html").expanduser()
    if given is None and target.is_symlink():  # a repository's own, which may lead anywhere
        raise InputError("--output", str(target), "is a link", "remove it, or give a file with --output")
    if target.is_dir():
        raise InputError("--output", str(target), "is a folder", "give the name of a file")
    if target.exists() and not overwrite:
        raise InputError("--output", str(target), "exists already", "give another file, or --overwrite")
    if not target.parent.is_dir():
        raise InputError("--output", str(target), "has no folder", f"make {target.parent} first")
    return target


def _write(target: Path, page: str) -> None:
    try:
        write_private(target, page)
    except OSError as error:
        problem = f"cannot be written: {error.strerror}"
        raise InputError("--output", str(target), problem, "give another file") from None


def _print(target: Path, *, json: bool) -> None:
    if json:
        output.as_json({"report": target})
    else:
        output.result(str(target))


def _price(stack: Stack, inventory: Inventory) -> NodePrice:
    """Return the list price of the stack's nodes, or why it is unknown."""
    from infra.arm.rest import retail_prices
    from infra.preflight.prices import vm_prices
    from launch.report.cost import NodePrice

    size = inventory.size
    try:
        is_spot = str(stack.settings().get(_SPOT, "")).lower() == "true"
        found = vm_prices(retail_prices(stack.environment), size, inventory.location)
    except RankliftError as error:
        return NodePrice(size, "", None, f"its price was not found: {error}")
    kind, price = ("spot", found.spot) if is_spot else ("regular", found.regular)
    return NodePrice(size, kind, price, f"the price list has no {kind} price of {size} there")
