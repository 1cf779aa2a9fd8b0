"""``fab replace``: which nodes are meant, and what is printed of their replacement."""

from __future__ import annotations

import time
from collections.abc import Sequence

from invoke.context import Context

from launch.errors import GiveUpError, InputError
from launch.nodeset import fold
from playbooks.cli import output
from playbooks.cli.merged_output import grouped
from playbooks.cli.task import command, open_from
from playbooks.nodes.choose import choose_node
from playbooks.project import Stack
from playbooks.stack.limits import CHANGE, LIMIT_HELP, ready_limit
from playbooks.stack.replacement import Replaced, Way, replace_one

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
        "yes": "do not ask: replace the sick nodes, and those whose report Azure refuses",
        "timeout": f"{LIMIT_HELP.format(CHANGE)}; of each node",
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
    json: bool = False,
    dry_run: bool = False,
) -> None:
    """Replace a faulty node and wait until the new one answers; the others are not affected.

    Removes the node and creates another with another name; with --reimage keeps the machine and installs it
    again, which needs no free capacity in Azure. Either way everything on it is lost; the next push copies
    code there again. Refused while a job has ranks there, unless the node is dead, and while another command
    changes the stack. With --report Azure learns what is wrong with the host, which may come again otherwise;
    if that fails it asks, and without a terminal nothing is replaced unless --yes is given.
    """
    name = _named(node or (), sick=sick)
    if report and reimage:
        raise InputError("--report", None, "is about the host, which --reimage keeps", "give one of both")
    chosen = open_from(context, stack)
    way = Way(ready_limit(chosen, timeout, CHANGE), reimage, cancel_jobs, report, yes)
    if dry_run:
        output.steps(_steps(chosen, name, way), json=json)
        return
    done: list[Replaced] = []
    with output.stdout_to_stderr(when=json):
        for one in _sick_names(chosen, yes=yes) if sick else [name]:
            done.append(replace_one(chosen, one, way))
            if not json:
                output.result(str(done[-1]))
    if json:
        output.as_json([one.shown() for one in done] if sick else done[0].shown())


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
    what = "reimage it" if way.reimage else f"remove it, pulumi up --yes --refresh --stack {stack.name}"
    steps = f"{'report its host to Azure, ' if way.report else ''}{what}, wait until it answers"
    if node:
        return [f"{choose_node(stack.saved(), node, 'node').name}: {steps}"]
    from playbooks.nodes.sick import read_checked, sick_nodes

    inventory = stack.saved()
    found = sick_nodes(inventory, read_checked(stack, time.time()), {})
    return [*(f"{one.node.name} ({one}): {steps}" for one in found), f"nodes with errors by a look: {steps}"]


def _sick_names(stack: Stack, *, yes: bool) -> list[str]:
    """Return the names of the sick nodes, which the user agrees to replace; none where there are none."""
    from playbooks.nodes import vm_ops
    from playbooks.nodes.sick import examine, read_checked

    verdicts = read_checked(stack, time.time())
    inventory = vm_ops.refresh(stack, stack.outputs())
    sick, silent = examine(stack, inventory, inventory.nodes, verdicts)
    for name, error in silent.items():
        output.progress(f"{name} is not looked at, `fab replace {name}` replaces it: {error}")
    if not sick:
        checked = "the last check names no node" if verdicts else "no check was made"
        output.progress(f"nothing is replaced: {checked}, and a look finds no error")
        return []
    for line in grouped({one.node.name: str(one) for one in sick}):
        output.progress(line)
    names = [one.node.name for one in sick]
    agreed = yes or output.ask(f"replace {fold(names)}?")
    if agreed is None:
        raise InputError("--yes", None, "is not given, and without a terminal nobody can be asked", "give it")
    if not agreed:
        raise GiveUpError("nothing was changed")
    return names
