"""Change the number of nodes: ``scale``."""

from __future__ import annotations

import time
from dataclasses import replace

from invoke.context import Context
from invoke.exceptions import Exit

from infra.inventory import Inventory
from launch.errors import RankliftError
from launch.numbers import counted
from playbooks.cli import options, output
from playbooks.cli.signals import report_half_done
from playbooks.cli.task import command, open_from, seconds_left
from playbooks.project import Stack
from playbooks.stack.limits import CHANGE, LIMIT_HELP, ready_limit

__all__ = ["scale"]


@command(
    "scale",
    example="fab scale 8",
    help={
        "number": "number of nodes that the cluster is to have",
        "yes": "remove nodes without asking, whatever is lost with them",
        "timeout": LIMIT_HELP.format(CHANGE),
        "verbose": "print all that Pulumi prints",
        "dry-run": "print what would be done and lost, which the nodes are asked for",
    },
    positional=["number"],
)
def scale(
    context: Context,
    number: str,
    stack: str | None = None,
    timeout: str | None = None,
    yes: bool = False,
    verbose: bool = False,
    json: bool = False,
    dry_run: bool = False,
) -> None:
    """Add nodes to the cluster or remove some; the remaining nodes are not affected.

    Removes nodes that do not run, then idle ones whose jobs' files are collected, then other idle ones, each
    the newest first, and prints why these; never one with a job that runs or waits: then nothing is changed
    and the jobs are named. Asks first where something would be lost, as `fab down` does: results that were
    never collected, files in jobs' working folders, whatever is on nodes that do not answer. Without a
    terminal it refuses then, with exit status 1, unless --yes is given; --dry-run asks the nodes and shows
    the losses.

    The stack's configuration has the new number afterwards; where the command fails
    before any node was added, it stays as it was.
    """
    from infra.config.schema import parse
    from playbooks.pulumi.partial import COUNT

    remedy = "give 1 or more; `fab down` removes the cluster"
    wanted = options.number("number", number, "nodes", remedy, low=1)
    chosen = replace(open_from(context, stack), shows_pulumi=verbose)
    limit = ready_limit(chosen, timeout, CHANGE)
    parse({**chosen.settings(), COUNT: str(wanted)})
    setting = ["config", "set", COUNT, str(wanted), "--stack", chosen.name]
    if dry_run:
        output.steps(_plan(chosen, wanted, setting, yes=yes), json=json)
        return
    with output.stdout_to_stderr(when=json):
        inventory = _scale(chosen, wanted, setting, time.monotonic() + limit, yes=yes)
    if json:
        output.as_json(inventory)


def _scale(stack: Stack, wanted: int, setting: list[str], deadline: float, *, yes: bool) -> Inventory:
    from playbooks.nodes import vm_ops
    from playbooks.nodes.health import wait_for_nodes
    from playbooks.pulumi.pending import refuse_replacement
    from playbooks.pulumi.recover import recover
    from playbooks.pulumi.run import pulumi
    from playbooks.stack.converge import build, present, wanted_of
    from playbooks.stack.preflight import check_plan
    from playbooks.stack.status import report_idle_stop

    recover(stack)
    if (inventory := _as_wanted(stack, wanted, deadline)) is not None:
        return inventory
    there = vm_ops.refresh(stack, stack.outputs())
    refuse_replacement(stack)
    if len(present(there)) < wanted:
        check_plan(stack, wanted)
    try:
        build(stack, deadline, ["--skip-preview"], there=there, wanted=wanted, yes=yes)
    except (KeyboardInterrupt, Exit, RankliftError) as error:
        _set_count(stack, wanted, len(present(there)), setting, error)
        raise
    if wanted_of(stack) != wanted:
        pulumi(stack, setting)
    with report_half_done(f"nodes may not be ready yet: `fab wait --stack {stack.name}` waits for them"):
        inventory = wait_for_nodes(stack, seconds_left(deadline))
    report_idle_stop(stack, inventory)
    return inventory


def _as_wanted(stack: Stack, wanted: int, deadline: float) -> Inventory | None:
    """Return the nodes if configuration, Pulumi and Azure agree on ``wanted``, and report it; else None."""
    from infra.scale_plan import DEAD
    from playbooks.nodes import vm_ops
    from playbooks.pulumi.drift import find_settled_drift
    from playbooks.stack.converge import wanted_of

    if wanted_of(stack) != wanted:
        return None
    outputs = stack.outputs()
    drift = find_settled_drift(stack, wanted, deadline)
    if outputs.node_count != wanted or drift is None or drift or drift.present != wanted:
        return None
    inventory = vm_ops.refresh(stack, outputs)
    nodes = inventory.nodes
    if len(nodes) != wanted or not all(node.state != "deleting" for node in nodes):
        return None
    output.result(f"stack {stack.name}: has {counted(wanted, 'node')}, as configured")
    for node in nodes:
        if node.state in DEAD:
            remedy = f"`fab replace {node.instance_id} --stack {stack.name}` replaces it"
            output.progress(f"{node.name} is {node.state}: {remedy}")
    return inventory


def _set_count(stack: Stack, wanted: int, before: int, setting: list[str], error: BaseException) -> None:
    """After a failed change, set the configuration's number of nodes to what holds, and report it.

    The number stays where Azure has as many nodes as ``before``; it becomes ``wanted`` where nodes were added
    or removed, and where Azure may continue.
    """
    from playbooks.nodes import vm_ops
    from playbooks.pulumi.locks import InUse
    from playbooks.pulumi.run import Interrupted, TookTooLong, pulumi
    from playbooks.stack.converge import present, wanted_of

    is_new, azure, others = before == wanted, "", ""
    if isinstance(error, InUse):  # another command's changes are not a result of this one
        is_new = False
    elif isinstance(error, Interrupted):  # what continues was printed with it
        is_new = error.has_begun
    elif isinstance(error, TookTooLong):
        is_new, azure = True, f", and Azure may continue: so does `fab scale {wanted} --stack {stack.name}`"
    else:
        try:
            there = len(present(vm_ops.refresh(stack, stack.outputs())))
        except RankliftError as unknown:
            azure = f"; the number in Azure is unknown: {str(unknown).splitlines()[0]}"
        else:
            is_new, azure = is_new or there != before, f", Azure has {there}"
            if is_new and there != wanted:
                others = f": `fab scale {wanted}` adds the others, `fab scale {there}` keeps {there}"
    had = wanted_of(stack)
    if is_new and had != wanted:
        pulumi(stack, setting)
    count = wanted if is_new else had
    nodes = "no valid number of nodes" if count is None else counted(count, "node")
    asks = f"configured for {nodes}{'' if is_new else ' as before'}"
    output.progress(f"stack {stack.name}: {asks}{azure}{others}")


def _plan(stack: Stack, wanted: int, setting: list[str], *, yes: bool) -> list[str]:
    """Return the equivalent commands, and for fewer nodes which would go, why these, and what would be lost.

    That is by the nodes as they were last read from Azure. Raises as
    :func:`~playbooks.stack.converge.leaving`.
    """
    from infra.scale_plan import reasons_to_leave
    from playbooks.cli.merged_output import grouped
    from playbooks.stack.converge import leaving
    from playbooks.stack.losses import consent_steps, losses_with

    chosen, used = leaving(stack, stack.saved(), wanted)
    losing = consent_steps(losses_with(chosen, used), yes=yes) if chosen else ()
    return [
        *grouped(reasons_to_leave(chosen, used)),
        *losing,
        f"pulumi {' '.join(setting)}",
        f"pulumi up --yes --skip-preview --stack {stack.name}",
        f"fab wait --stack {stack.name}",
    ]
