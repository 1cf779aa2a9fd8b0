"""Making a stack what its configuration says, whatever it is now: what ``up`` and ``scale`` share."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from infra.inventory import Inventory, Node
from infra.scaling import Drift, choose_leaving
from launch.errors import InputError
from launch.nodeset import fold
from playbooks import render
from playbooks.project import Stack
from playbooks.stack import instances
from playbooks.stack.drift import look
from playbooks.stack.occupancy import uses
from playbooks.stack.partial import COUNT, asking_for, nodes_before, settle
from playbooks.stack.unfinished import mend
from playbooks.stack.updating import UpdateFailed, again_and_again, pulumi

__all__ = ["build", "leaving", "present", "shrink", "wanted_of"]


def wanted_of(stack: Stack) -> int | None:
    """How many nodes the configuration asks for; None when there is none here, or it does not say it well."""
    from infra.config.values import node_count

    if not stack.configuration.exists():
        return None
    try:
        return node_count(COUNT, stack.settings().get(COUNT, ""), True)
    except InputError:
        return None


def present(inventory: Inventory) -> tuple[Node, ...]:
    """The nodes that are there to stay."""
    return tuple(node for node in inventory.nodes if node.state != "deleting")


def leaving(stack: Stack, inventory: Inventory, wanted: int) -> tuple[Node, ...]:
    """Which nodes go so that ``wanted`` remain; raises as :func:`~infra.scaling.choose_leaving`."""
    nodes = present(inventory)
    if len(nodes) <= wanted:
        return ()
    doing = uses(stack, inventory)
    chosen = choose_leaving(nodes, doing, len(nodes) - wanted)
    records = {node.name: doing[node.name].records for node in chosen if doing[node.name].records}
    for name, count in records.items():
        render.progress(f"{name} goes with what it keeps of {count} job{'s' * (count > 1)} that have ended")
    return chosen


def shrink(stack: Stack, wanted: int, deadline: float) -> Inventory:
    """Removes idle nodes, each by its id, until ``wanted`` are left; never one with a job.

    Gives the nodes there are then, which may be fewer. Raises :class:`~launch.errors.RetryError` naming the
    jobs, before anything is removed.
    """
    outputs = stack.outputs()
    inventory = stack.refresh(outputs)
    chosen = leaving(stack, inventory, wanted)
    if not chosen:
        return inventory
    instances.delete(stack, outputs.scale_set_id, chosen, max(1.0, deadline - time.monotonic()))
    render.progress(f"removed {fold(node.name for node in chosen)}; {wanted} nodes stay")
    return stack.refresh(outputs)


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
    remembers, that is told to Pulumi, so that it is repaired, and is said. A caller who has seen to all that
    says which nodes are ``there``, and one who scales how many are ``wanted`` instead of the configuration's
    number. Raises :class:`~launch.errors.RankliftError`; the same again goes on from there.
    """
    from playbooks.stack.planning import preflight

    is_new = there is None and not stack.exists()
    if there is None:
        if not is_new:
            mend(stack, lambda words: pulumi(stack, words))
        preflight(stack)
    count = wanted_of(stack) if wanted is None else wanted
    again = f"fab {'up' if wanted is None else f'scale {wanted}'} --stack {stack.name}"
    repairs: list[str] = []
    if is_new:
        pulumi(stack, ["stack", "init", stack.name])
    else:
        drift = look(stack, count)
        if drift is not None:
            repairs = _repairing(stack, drift, deadline, there)
            there = there or nodes_before(stack)
    with asking_for(stack, wanted) as options:
        words = ["up", "--yes", *arguments, *options, "--stack", stack.name, *repairs]
        try:
            again_and_again(
                lambda: pulumi(stack, words, limit=max(1.0, deadline - time.monotonic())), deadline
            )
        except UpdateFailed as error:
            settled = settle(stack, error, there, count or 0, deadline, again)
            raise (error if settled is None else settled) from None


def _repairing(stack: Stack, drift: Drift, deadline: float, there: Inventory | None) -> list[str]:
    known = None if there is None else len(present(there))
    told = replace(drift, remembered=known) if drift.present == known else drift
    for line in told.lines():
        render.progress(f"drift: {line}")
    if drift.surplus:
        with suppress(InputError):  # no outputs: it was never wholly up, and no job can be there
            shrink(stack, drift.wanted, deadline)
    return ["--refresh"] if drift else []
