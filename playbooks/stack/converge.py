"""Bring a stack to what its configuration asks for: what ``up``, ``scale`` and ``replace`` share."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from infra.inventory import Inventory, Node
from infra.scale_plan import Drift, Use, choose_leaving, reasons_to_leave
from launch.errors import InputError, RetryError
from launch.nodeset import fold
from launch.numbers import counted
from playbooks.cli import output
from playbooks.cli.merged_output import grouped
from playbooks.cli.task import seconds_left
from playbooks.node_price import save_price
from playbooks.nodes import vm_ops
from playbooks.nodes.busy import uses
from playbooks.project import Stack
from playbooks.pulumi.drift import find_settled_drift
from playbooks.pulumi.partial import COUNT, asking_for, nodes_before, scale_set_guid, settle
from playbooks.pulumi.pending import find_replacement
from playbooks.pulumi.recover import recover
from playbooks.pulumi.run import UpdateFailed, pulumi, retry_while_busy
from playbooks.stack.losses import Losses, agree_on_nodes, agree_to_delete_storage, refuse_more
from playbooks.stack.preflight import check_image, check_plan
from playbooks.stack.removal import holder_name, kept_free
from playbooks.stack.teardown import prepared_replacement

if TYPE_CHECKING:
    from infra.preflight.decide import Plan

__all__ = ["build", "leaving", "present", "shrink", "under_lock", "wanted_of"]

_AFTER_LIMIT_S = 60.0
"""How much longer than the command's own limit nodes are held for a command that cannot release them."""


def wanted_of(stack: Stack) -> int | None:
    """Return how many nodes the configuration asks for; None when it is missing or not valid."""
    from infra.config.readers import node_count

    if not stack.configuration.exists():
        return None
    try:
        return node_count(COUNT, stack.settings().get(COUNT, ""), True)
    except InputError:
        return None


def present(inventory: Inventory) -> tuple[Node, ...]:
    """Return the nodes that are not being deleted."""
    return tuple(node for node in inventory.nodes if node.state != "deleting")


def leaving(
    stack: Stack, inventory: Inventory, wanted: int, holder: str = ""
) -> tuple[tuple[Node, ...], Mapping[str, Use]]:
    """Return the nodes to remove so that ``wanted`` remain, none that reports a job; and what all nodes do.

    ``holder`` is as in :func:`~playbooks.nodes.busy.uses`. Raises as
    :func:`~infra.scale_plan.choose_leaving`.
    """
    nodes = present(inventory)
    if len(nodes) <= wanted:
        return (), {}
    used = uses(stack, inventory, holder)
    return choose_leaving(nodes, used, len(nodes) - wanted), used


def shrink(
    stack: Stack, wanted: int, deadline: float, command: str, agreed: Mapping[str, Losses], *, yes: bool
) -> None:
    """Remove idle nodes, each by its id, until ``wanted`` are left; never one with a job.

    Holds the chosen nodes' slots in the ``command``'s name, so that no job starts there, and checks again
    that they are idle, and that no more is lost with them than was ``agreed``, unless ``yes``. Raises
    :class:`~launch.errors.RetryError` naming the jobs, before anything is removed.
    To be called while Pulumi's lock on the stack is held, so that the update is certain to follow.
    """
    outputs = stack.outputs()
    inventory = vm_ops.refresh(stack, outputs)
    holder = holder_name(command)
    limit = seconds_left(deadline)
    chosen, _ = leaving(stack, inventory, wanted)
    while chosen:
        with kept_free(stack, inventory, chosen, holder, limit + _AFTER_LIMIT_S) as failed:
            used = uses(stack, inventory, holder)
            if not failed and all(used[node.name].is_idle for node in chosen):
                refuse_more("remove", chosen, used, agreed, yes=yes)
                vm_ops.delete(stack, outputs.scale_set_id, chosen, limit)
                stay = "stays" if wanted == 1 else "stay"
                gone = fold(node.name for node in chosen)
                output.progress(f"removed {gone}; {counted(wanted, 'node')} {stay}")
                break
        if failed:
            reasons = "; ".join(f"{name}: {why}" for name, why in failed.items())
            raise RetryError(f"jobs could not be kept off nodes; nothing was changed: {reasons}")
        if time.monotonic() > deadline:
            raise RetryError(f"`{command}`: jobs started on the nodes to be removed; nothing was changed")
        # A job came first: choose others, or remove nothing.
        chosen, _ = leaving(stack, inventory, wanted, holder)
    vm_ops.refresh(stack, outputs)


def under_lock(stack: Stack, count: int, deadline: float, work: Callable[[], object]) -> None:
    """Do ``work`` in an update that asks for ``count`` nodes, once Pulumi has locked the stack for it.

    Where ``count`` is what Pulumi remembers, the update itself changes no node. Raises what ``work`` raises,
    and :class:`~playbooks.pulumi.locks.InUse`, before any work, when another command has the stack.
    """
    with asking_for(stack, count) as options:
        words = ["up", "--yes", "--skip-preview", *options, "--stack", stack.name]
        pulumi(stack, words, limit=seconds_left(deadline), before=work)


def build(
    stack: Stack,
    deadline: float,
    arguments: Sequence[str] = (),
    *,
    there: Inventory | None = None,
    wanted: int | None = None,
    yes: bool = False,
) -> None:
    """Repair what a killed Pulumi left, remove surplus nodes that are idle, and run ``pulumi up``.

    Checks first whether Azure will grant all of it, and at what price. Where Azure differs from Pulumi's
    state, reports that and has Pulumi refresh. Surplus nodes are removed while Pulumi's lock is held. Where
    something is lost with them, or changed settings replace all nodes, asks first, unless ``yes``. After
    these checks a caller passes the nodes that are ``there``; one that scales passes how many are ``wanted``
    instead of the configuration's number. Raises :class:`~launch.errors.RankliftError`; a repeated call
    continues from there.
    """
    is_new = there is None and not stack.exists()
    planned: Plan | None = None
    if there is None:
        if not is_new:
            recover(stack)
        planned = check_plan(stack)
    count = wanted_of(stack) if wanted is None else wanted
    command = "fab up" if wanted is None else f"fab scale {wanted}"
    again = f"{command} --stack {stack.name}"
    repairs: list[str] = []
    before: Callable[[], None] | None = None
    replaced: AbstractContextManager[None] = nullcontext()
    guid: str | None = None
    if is_new:
        pulumi(stack, ["stack", "init", stack.name])
    else:
        agree_to_delete_storage(stack, yes=yes)
        drift = find_settled_drift(stack, count, deadline)
        if drift is not None:
            repairs = _repairing(drift, there)
            cause = None
            if there is None:
                there = nodes_before(stack)
                if there is not None and there.nodes:
                    cause = find_replacement(stack, repairs)
                    arguments = [*arguments, "--skip-preview"]  # that was one
                    if cause is not None:
                        check_image(stack)
                        guid = scale_set_guid(stack)
                        limit = seconds_left(deadline) + _AFTER_LIMIT_S
                        replaced = prepared_replacement(stack, there, cause, limit, yes=yes)
            if cause is None and drift.surplus:
                before = _shrinking(stack, drift.wanted, deadline, command, yes=yes)
    with replaced, asking_for(stack, wanted) as options:
        words = ["up", "--yes", *arguments, *options, "--stack", stack.name, *repairs]

        def update() -> None:
            hint = None if wanted is None else again
            pulumi(stack, words, limit=seconds_left(deadline), before=before, again=hint)

        try:
            retry_while_busy(update, deadline)
        except UpdateFailed as error:
            if guid is not None and there is not None and scale_set_guid(stack) != guid:
                there = replace(there, nodes=())  # in a new scale set, instance ids start at 0
            settled = settle(stack, error, there, count or 0, deadline, again)
            raise (error if settled is None else settled) from None
    if planned is not None:
        _keep_price(stack, planned)


def _keep_price(stack: Stack, plan: Plan) -> None:
    """Keep the nodes' price for the jobs that are launched on them."""
    save_price(stack, plan.size, plan.location, plan.node_per_hour, spot=plan.spot)


def _shrinking(
    stack: Stack, wanted: int, deadline: float, command: str, *, yes: bool
) -> Callable[[], None] | None:
    """Return what removes the surplus nodes, with consent to what is lost with them unless ``yes``; None for
    a cluster that was never wholly up, whose nodes have nothing.

    Raises :class:`~launch.errors.RetryError`, before Pulumi has begun, when too few are idle, and as
    :func:`~playbooks.stack.losses.agree_on_nodes`.
    """
    try:
        outputs = stack.outputs()
    except InputError:
        return None
    chosen, used = leaving(stack, vm_ops.refresh(stack, outputs), wanted)
    for line in grouped(reasons_to_leave(chosen, used)):
        output.progress(line)
    agreed = agree_on_nodes("remove", chosen, used, yes=yes) if chosen else {}
    if time.monotonic() > deadline:
        raise RetryError(f"`{command}`: --timeout had passed when the answer came; nothing was changed")
    return partial(shrink, stack, wanted, deadline, command, agreed, yes=yes)


def _repairing(drift: Drift, there: Inventory | None) -> list[str]:
    known = None if there is None else len(present(there))
    shown = replace(drift, remembered=known) if drift.present == known else drift
    for line in shown.lines():
        output.progress(f"drift: {line}")
    return ["--refresh"] if drift else []
