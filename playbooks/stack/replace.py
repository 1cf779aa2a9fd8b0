"""``fab replace``: which nodes are meant, and what is printed of their replacement."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace as replace_fields

from invoke.context import Context
from invoke.exceptions import Exit

from launch.errors import InputError
from playbooks.cli import output
from playbooks.cli.task import command, open_from
from playbooks.nodes.choose import choose_node
from playbooks.project import Stack
from playbooks.stack.limits import CHANGE, LIMIT_HELP, ready_limit
from playbooks.stack.replacement import Replaced, Way, refuse_jobs, replace_one

__all__ = ["replace"]


@command(
    "replace",
    example="fab replace 3 --reimage",
    help={
        "node": "node, by instance id or name",
        "sick": "replace the nodes that the last `fab check` called sick, and those at which a look finds "
        "errors now, one after the other; asks first",
        "report": "before that, report to Azure what was found wrong with its host",
        "reimage": "keep the machine, its name and its address, and install it from the image again",
        "cancel-jobs": "end the jobs on it first",
        "yes": "replace nodes without asking, whatever is lost with them, and also where Azure refuses the "
        "report",
        "timeout": f"{LIMIT_HELP.format(CHANGE)}; of each node",
        "verbose": "print all that Pulumi prints",
        "dry-run": "print what would be done and lost, which the nodes are asked for",
    },
    iterable=["node"],
    positional=["node"],
)
def replace(  # noqa: PLR0913, PLR0917
    context: Context,
    node: list[str] | None = None,
    stack: str | None = None,
    sick: bool = False,
    report: bool = False,
    reimage: bool = False,
    cancel_jobs: bool = False,
    yes: bool = False,
    timeout: str | None = None,
    verbose: bool = False,
    json: bool = False,
    dry_run: bool = False,
) -> None:
    """Replace a faulty node and wait until the new one answers; the others are not affected.

    Removes the node and creates another with another name; with --reimage keeps the machine and installs it
    again, which needs no free capacity in Azure. Either way everything on it is lost; the next push copies
    code there again. Asks first where something would be lost that is nowhere else, as `fab down` does:
    results that were never collected, files in jobs' working folders, whatever is on a node that does not
    answer. Without a terminal it refuses then, with exit status 1, unless --yes is given; --dry-run asks the
    nodes and shows the losses.

    Refused while a job has ranks there, unless the node is dead, and while another command changes the stack.
    With --report Azure learns what is wrong with the host, which may come again otherwise; if that fails it
    asks, and without a terminal nothing is replaced unless --yes is given.
    """
    name = _named(node or (), sick=sick)
    if report and reimage:
        raise InputError("--report", None, "is about the host, which --reimage keeps", "give one of both")
    chosen = replace_fields(open_from(context, stack), shows_pulumi=verbose)
    way = Way(ready_limit(chosen, timeout, CHANGE), reimage, cancel_jobs, report, yes)
    if dry_run:
        output.steps(_steps(chosen, name, way), json=json)
        return
    if sick:
        _replace_sick(chosen, way, json=json)
        return
    with output.stdout_to_stderr(when=json):
        done = replace_one(chosen, name, way)
    if json:
        output.as_json(done.shown())
    else:
        output.result(str(done))


def _replace_sick(stack: Stack, way: Way, *, json: bool) -> None:
    """Replace the sick nodes, one after the other; what was replaced before an error is a result, too. Raise
    Exit where nobody could look at a node: it may be sick as well."""
    from playbooks.nodes.busy import uses
    from playbooks.nodes.sick import find_sick
    from playbooks.stack.losses import agree_on_nodes

    done: list[Replaced] = []
    try:
        with output.stdout_to_stderr(when=json):
            inventory, sick, silent = find_sick(stack)
            used = uses(stack, inventory) if sick else {}
            agreed = agree_on_nodes(
                "replace", sick, used, yes=way.yes, ending=way.cancel_jobs, always=bool(sick)
            )
            way = replace_fields(way, agreed=agreed)
            for node in sick:
                done.append(replace_one(stack, node.name, way))
                if not json:
                    output.result(str(done[-1]))
    finally:
        if json:
            output.as_json([one.shown() for one in done])
    if silent:
        raise Exit(code=1)


def _named(nodes: Sequence[str], *, sick: bool) -> str:
    """Return the node that the user names; empty where the sick ones are meant."""
    node = nodes[0] if nodes else ""
    if nodes[1:]:
        raise InputError("node", nodes[1], "is one too many", "replace one after the other")
    if sick and node:
        raise InputError(
            "--sick", None, f"chooses the nodes by itself, and {node} is named", "give one of both"
        )
    if not (sick or node):
        raise InputError("node", None, "is missing", "name one, as in 3 or node000003, or give --sick")
    return node


def _steps(stack: Stack, node: str, way: Way) -> list[str]:
    """Return the steps, and what would be lost by the nodes as they were last read from Azure.

    Raises :class:`~launch.errors.RetryError` naming the jobs that would be in the way of a named node.
    """
    from playbooks.nodes.busy import uses
    from playbooks.nodes.sick import read_checked, sick_nodes
    from playbooks.stack.losses import consent_steps, losses_with

    what = "reimage it" if way.reimage else f"remove it, pulumi up --yes --refresh --stack {stack.name}"
    steps = f"{'report its host to Azure, ' if way.report else ''}{what}, wait until it answers"
    inventory = stack.saved()
    if node:
        nodes = [choose_node(inventory, node, "node")]
        shown = [f"{nodes[0].name}: {steps}"]
    else:
        sick = sick_nodes(inventory, read_checked(stack, time.time()), {})
        nodes = [one.node for one in sick]
        shown = [
            *(f"{one.node.name} ({one}): {steps}" for one in sick),
            f"nodes with errors by a look: {steps}",
        ]
    used = uses(stack, inventory) if nodes else {}
    if node:
        refuse_jobs(nodes[0], used, cancel_jobs=way.cancel_jobs)
    losses = losses_with(nodes, used, ending=way.cancel_jobs)
    return [*consent_steps(losses, yes=way.yes, always=not node), *shown]
