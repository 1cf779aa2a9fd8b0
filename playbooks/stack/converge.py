"""Making a stack what its configuration says, whatever it is now: what ``up`` and ``scale`` share."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from infra.inventory import Inventory, Node
from infra.scale_plan import Drift, Use, choose_leaving
from launch.errors import InputError, RetryError
from launch.nodeset import fold
from launch.numbers import counted
from playbooks.cli import output
from playbooks.nodes import vm_ops
from playbooks.nodes.busy import uses
from playbooks.project import Stack
from playbooks.pulumi.drift import look
from playbooks.pulumi.partial import COUNT, asking_for, nodes_before, settle
from playbooks.pulumi.recover import mend
from playbooks.pulumi.run import UpdateFailed, again_and_again, pulumi
from playbooks.stack.removal import holder_name, kept_free

__all__ = ["build", "leaving", "present", "shrink", "under_lock", "wanted_of"]

_AFTER_LIMIT_S = 60.0
"""How much longer than the command's own limit nodes are held whose command cannot let go of them."""


def wanted_of(stack: Stack) -> int | None:
    """How many nodes the configuration asks for; None when there is none here, or it does not say it well."""
    from infra.config.readers import node_count

    if not stack.configuration.exists():
        return None
    try:
        return node_count(COUNT, stack.settings().get(COUNT, ""), True)
    except InputError:
        return None


def present(inventory: Inventory) -> tuple[Node, ...]:
    """The nodes that are there to stay."""
    return tuple(node for node in inventory.nodes if node.state != "deleting")


def leaving(stack: Stack, inventory: Inventory, wanted: int, holder: str = "") -> tuple[Node, ...]:
    """Which nodes go so that ``wanted`` remain, none of which has a job as far as they say.

    ``holder`` is as in :func:`~playbooks.nodes.busy.uses`. Raises as
    :func:`~infra.scale_plan.choose_leaving`.
    """
    nodes = present(inventory)
    if len(nodes) <= wanted:
        return ()
    return choose_leaving(nodes, uses(stack, inventory, holder), len(nodes) - wanted)


def shrink(stack: Stack, wanted: int, deadline: float, command: str) -> None:
    """Removes idle nodes, each by its id, until ``wanted`` are left; never one with a job.

    The nodes chosen are given no job any more, in the ``command``'s name, and asked again what they do before
    they go. Raises :class:`~launch.errors.RetryError` naming the jobs, before anything is removed. To be
    called while Pulumi's lock on the stack is held: the update that follows is then sure to.
    """
    outputs = stack.outputs()
    inventory = stack.refresh(outputs)
    holder = holder_name(command)
    limit = max(1.0, deadline - time.monotonic())
    chosen = leaving(stack, inventory, wanted)
    while chosen:
        with kept_free(stack, inventory, chosen, holder, limit + _AFTER_LIMIT_S) as failed:
            doing = uses(stack, inventory, holder)
            if not failed and all(doing[node.name].is_idle for node in chosen):
                _tell_records(chosen, doing)
                vm_ops.delete(stack, outputs.scale_set_id, chosen, limit)
                stay = "stays" if wanted == 1 else "stay"
                gone = fold(node.name for node in chosen)
                output.progress(f"removed {gone}; {counted(wanted, 'node')} {stay}")
                break
        if failed:
            reasons = "; ".join(f"{name}: {why}" for name, why in failed.items())
            raise RetryError(f"jobs could not be kept off nodes; nothing was changed: {reasons}")
        if time.monotonic() > deadline:
            raise RetryError(f"`{command}`: jobs came to the nodes that were to go; nothing was changed")
        # A job was quicker: others are idle, or nothing is removed.
        chosen = leaving(stack, inventory, wanted, holder)
    stack.refresh(outputs)


def under_lock(stack: Stack, count: int, deadline: float, work: Callable[[], object]) -> None:
    """Do ``work`` in an update that asks for ``count`` nodes, once Pulumi has locked the stack for it.

    Where ``count`` is what Pulumi remembers, the update itself changes no node. Raises what ``work`` raises,
    and :class:`~playbooks.pulumi.locks.InUse`, before any work, when another command has the stack.
    """
    with asking_for(stack, count) as options:
        words = ["up", "--yes", "--skip-preview", *options, "--stack", stack.name]
        pulumi(stack, words, limit=max(1.0, deadline - time.monotonic()), before=work)


def _tell_records(chosen: Sequence[Node], doing: Mapping[str, Use]) -> None:
    for node in chosen:
        count = doing[node.name].records
        if count:
            have = "has" if count == 1 else "have"
            output.progress(
                f"{node.name} goes with what it keeps of {counted(count, 'job')} that {have} ended"
            )


def build(
    stack: Stack,
    deadline: float,
    arguments: Sequence[str] = (),
    *,
    there: Inventory | None = None,
    wanted: int | None = None,
) -> None:
    """Mends what a killed Pulumi left, takes away surplus nodes that are idle, and runs ``pulumi up``.

    Azure is asked first whether it will grant all of it, and at what price. Where it differs from what Pulumi
    remembers, that is told to Pulumi, so that it is repaired, and is said. Surplus nodes go once Pulumi has
    the stack for this update alone. A caller who has seen to all that says which nodes are ``there``, and one
    who scales how many are ``wanted`` instead of the configuration's number. Raises
    :class:`~launch.errors.RankliftError`; the same again goes on from there.
    """
    from playbooks.stack.plan import preflight

    is_new = there is None and not stack.exists()
    if there is None:
        if not is_new:
            mend(stack, lambda words: pulumi(stack, words))
        preflight(stack)
    count = wanted_of(stack) if wanted is None else wanted
    command = "fab up" if wanted is None else f"fab scale {wanted}"
    again = f"{command} --stack {stack.name}"
    repairs: list[str] = []
    before: Callable[[], None] | None = None
    if is_new:
        pulumi(stack, ["stack", "init", stack.name])
    else:
        drift = look(stack, count)
        if drift is not None:
            repairs = _repairing(drift, there)
            if drift.surplus and _may_have_jobs(stack, drift.wanted):
                before = partial(shrink, stack, drift.wanted, deadline, command)
            there = there or nodes_before(stack)
    with asking_for(stack, wanted) as options:
        words = ["up", "--yes", *arguments, *options, "--stack", stack.name, *repairs]

        def update() -> None:
            pulumi(stack, words, limit=max(1.0, deadline - time.monotonic()), before=before)

        try:
            again_and_again(update, deadline)
        except UpdateFailed as error:
            settled = settle(stack, error, there, count or 0, deadline, again)
            raise (error if settled is None else settled) from None


def _may_have_jobs(stack: Stack, wanted: int) -> bool:
    """Whether nodes have to be chosen: of a cluster that was never wholly up none can have a job.

    Raises :class:`~launch.errors.RetryError`, before Pulumi has begun, when too few are idle.
    """
    try:
        outputs = stack.outputs()
    except InputError:
        return False
    leaving(stack, stack.refresh(outputs), wanted)
    return True


def _repairing(drift: Drift, there: Inventory | None) -> list[str]:
    known = None if there is None else len(present(there))
    told = replace(drift, remembered=known) if drift.present == known else drift
    for line in told.lines():
        output.progress(f"drift: {line}")
    return ["--refresh"] if drift else []
