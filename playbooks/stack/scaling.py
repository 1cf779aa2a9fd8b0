"""More nodes, fewer nodes, a node made anew: ``scale``, ``replace``."""

from __future__ import annotations

import dataclasses
import time

from invoke.context import Context

from infra.inventory import Inventory, Node
from infra.scaling import Use, in_the_way
from infra.troubles import kind_of
from launch.errors import InputError, RankliftError, RetryError
from launch.nodeset import fold
from playbooks import render
from playbooks.command import command, open_from, seconds
from playbooks.options import number
from playbooks.project import Stack
from playbooks.stack import instances
from playbooks.stack.building import build, present, shrink
from playbooks.stack.occupancy import uses
from playbooks.stack.partial import NotAllCame
from playbooks.stack.readiness import wait_for_nodes
from playbooks.stack.unfinished import mend
from playbooks.stack.updating import UpdateFailed, pulumi

__all__ = ["replace", "scale"]

KEY = "ranklift:nodeCount"
_LIMIT = "30m"


@command(
    "scale",
    example="fab scale 8",
    help={
        "number": "how many nodes the cluster is to have",
        "timeout": f"give up after this long (default: {_LIMIT}); 90s, 10m and 2h are understood too",
    },
    positional=["number"],
)
def scale(
    context: Context, number: str, stack: str | None = None, timeout: str = _LIMIT, dry_run: bool = False
) -> None:
    """Gives the cluster more nodes or fewer; those that stay notice nothing.

    Fewer: idle nodes go, the newest first, never one with a job that runs or waits: rather nothing is changed
    and the jobs are named. The stack's configuration says the new number afterwards.
    """
    from infra.config import parse
    from playbooks.stack.planning import preflight

    wanted = _count(number)
    limit = seconds("--timeout", timeout)
    chosen = open_from(context, stack)
    before = chosen.settings().get(KEY)
    parse({**chosen.settings(), KEY: str(wanted)})
    setting = ["config", "set", KEY, str(wanted), "--stack", chosen.name]
    if dry_run:
        render.result(_plan(chosen, wanted, setting))
        return
    deadline = time.monotonic() + limit
    # First what is there: with fewer in the configuration alone, Azure would choose who goes.
    mend(chosen, lambda words: pulumi(chosen, words))
    there = shrink(chosen, wanted, deadline)
    if len(present(there)) < wanted:
        preflight(chosen, wanted)
    if str(before) != str(wanted):
        pulumi(chosen, setting)
    try:
        build(chosen, deadline, ["--skip-preview"], there=there)
    except RankliftError as error:
        if _nothing_came(error) and before is not None:  # as it was, the configuration too
            pulumi(chosen, ["config", "set", KEY, str(before), "--stack", chosen.name])
        raise
    wait_for_nodes(chosen, max(1.0, deadline - time.monotonic()))


def _nothing_came(error: RankliftError) -> bool:
    """Whether Azure has refused more nodes, so that there are as many as before."""
    if isinstance(error, NotAllCame):
        return not error.kept
    return isinstance(error, UpdateFailed) and any(
        kind_of(one) in ("quota", "size") for one in error.troubles
    )


def _count(text: str) -> int:
    wanted = number("N", text, "nodes", "give 1 or more")
    if wanted == 0:
        raise InputError("N", text, "a cluster has at least 1 node", "`fab down` removes all of it")
    return wanted


def _plan(stack: Stack, wanted: int, setting: list[str]) -> str:
    nodes = present(stack.saved())
    lines = []
    if len(nodes) > wanted:
        lines.append(
            f"remove {len(nodes) - wanted} idle ones of {fold(node.name for node in nodes)}, the newest first"
        )
    lines += [
        f"pulumi {' '.join(setting)}",
        f"pulumi up --yes --skip-preview --stack {stack.name}",
        f"fab wait --stack {stack.name}",
    ]
    return "\n".join(lines)


@command(
    "replace",
    example="fab replace 3 --reimage",
    help={
        "node": "the node, by instance id or name",
        "reimage": "keep the machine, its name and its address, and install it anew from the image",
        "cancel-jobs": "end the jobs on it first",
        "timeout": f"give up after this long (default: {_LIMIT}); 90s, 10m and 2h are understood too",
    },
    positional=["node"],
)
def replace(
    context: Context,
    node: str,
    stack: str | None = None,
    reimage: bool = False,
    cancel_jobs: bool = False,
    timeout: str = _LIMIT,
    dry_run: bool = False,
) -> None:
    """Makes a sick node anew and waits until it answers; the others notice nothing.

    It is removed and a new one, with another name, takes its place; with --reimage it stays and is installed
    anew, which needs no free capacity in Azure. Either way everything on it is lost; pushed code goes there
    again with the next push. Refused while a job has ranks there, unless the node is dead.
    """
    limit = seconds("--timeout", timeout)
    chosen = open_from(context, stack)
    if dry_run:
        sick = _named(chosen.saved(), node)
        what = "reimage it" if reimage else f"remove it, pulumi up --yes --refresh --stack {chosen.name}"
        render.result(f"{sick.name}: {what}, wait until it answers")
        return
    deadline = time.monotonic() + limit
    mend(chosen, lambda words: pulumi(chosen, words))
    outputs = chosen.outputs()
    inventory = chosen.refresh(outputs)
    sick = _named(inventory, node)
    _free(chosen, inventory, sick, cancel_jobs)
    if reimage:
        instances.reimage(chosen, outputs.scale_set_id, [sick], deadline - time.monotonic())
        instances.distrust_copies(chosen, inventory, [sick])
    else:
        instances.delete(chosen, outputs.scale_set_id, [sick], deadline - time.monotonic())
        rest = dataclasses.replace(inventory, nodes=tuple(one for one in inventory.nodes if one != sick))
        build(chosen, deadline, ["--skip-preview"], there=rest)
    names = {one.name for one in inventory.nodes} - {sick.name}
    after = wait_for_nodes(chosen, max(1.0, deadline - time.monotonic()))
    fresh = [one.name for one in after.nodes if one.name not in names]
    render.result(f"{sick.name} {'reimaged' if reimage else 'replaced by ' + fold(fresh)}")


def _named(inventory: Inventory, text: str) -> Node:
    for node in inventory.nodes:
        if text in (node.name, str(node.instance_id)):
            return node
    known = ", ".join(f"{node.instance_id} ({node.name})" for node in inventory.nodes)
    raise InputError("node", text, f"stack {inventory.stack} has none of that id or name", f"it has {known}")


def _free(stack: Stack, inventory: Inventory, sick: Node, cancel_jobs: bool) -> None:
    """Sees to it that no job is on the node; raises RetryError naming those that are."""
    doing = uses(stack, inventory)
    use = doing[sick.name]
    if use.dead:
        return
    if use.jobs and cancel_jobs:
        from playbooks.jobs.ending import ended, told

        for job in use.jobs:
            render.progress(told(ended(stack, inventory, job, None)))
        return
    # One silent node among others that answer is sick; where all are silent it is rather the way there.
    silent_alone = bool(use.unknown) and any(not other.unknown for other in doing.values())
    if use.jobs or (use.unknown and not (silent_alone or cancel_jobs)):
        raise RetryError(
            f"{sick.name} is not replaced\n{in_the_way({sick.name: Use(use.jobs, unknown=use.unknown)})}\n"
            "or give --cancel-jobs"
        )
