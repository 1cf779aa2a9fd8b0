"""Nodes that Azure created when it could not create all: kept or removed, by ``ranklift:partial``."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from infra.arm.pulumi_state import SCALE_SET, resources
from infra.arm.update_errors import AzureFailed, kind_of
from infra.inventory import Inventory, Node
from infra.scale_plan import Outcome, sort_out
from launch.errors import InputError, RetryError
from launch.nodeset import fold
from playbooks.cli import output
from playbooks.nodes import vm_ops
from playbooks.project import Stack
from playbooks.pulumi.run import UpdateFailed, pulumi

__all__ = ["COUNT", "NotAllCame", "asking_for", "nodes_before", "scale_set_guid", "settle"]

COUNT = "ranklift:nodeCount"
KEY = "ranklift:partial"
_KINDS = ("partial", "no-boot")


class NotAllCame(RetryError):
    """Azure could not create all nodes; ``kept`` is whether those that it created still exist.

    ``again`` is the command that retries.
    """

    def __init__(self, stack: str, outcome: Outcome, kept: bool, why: UpdateFailed, again: str) -> None:
        self.outcome, self.kept = outcome, kept
        reasons = "; ".join(str(trouble) for trouble in why.troubles if kind_of(trouble) in _KINDS)
        lines = [f"stack {stack}: {outcome.in_words()}: {reasons}"]
        if kept and outcome.stay:
            lines.append(f"{fold(node.name for node in outcome.stay)} kept")
        elif outcome.there_before:
            removed = "the new ones were removed again; " if outcome.came else ""
            lines.append(f"{removed}the {outcome.there_before} from before stay")
        elif not kept:
            lines.append("what this try created is removed again")
        if any(kind_of(trouble) == "partial" for trouble in why.troubles):
            other = "remove" if kept else "keep"
            lines.append(
                f"`{again}` tries again; fewer nodes, another zone or region may be available "
                f"sooner; with {KEY} {other} it would {other} those that are created"
            )
        else:
            lines.append(f"`{again}` creates others in place of those that did not boot")
        self.args = ("\n".join(lines),)


def nodes_before(stack: Stack) -> Inventory | None:
    """Return the nodes before a try; without any node where the scale set is gone.

    None when the stack was never wholly up: then nothing of it is in use, and all of it may be removed.
    """
    try:
        outputs = stack.outputs()
    except InputError:
        return None
    try:
        return vm_ops.refresh(stack, outputs)
    except AzureFailed as error:
        if error.trouble.code not in vm_ops.GONE:
            raise
        return Inventory(outputs.stack, outputs.vm_size, outputs.location, outputs.admin_user, ())


def scale_set_guid(stack: Stack) -> str | None:
    """Return the id that Azure gives to this scale set alone, not to another of its name; None without one.

    Raises :class:`~infra.arm.update_errors.AzureFailed` when Azure does not answer.
    """
    from azure.core.exceptions import AzureError

    identifier = _scale_set(stack)
    if identifier is None:
        return None
    subscription, group, name = vm_ops.scale_set_of(identifier)
    try:
        return str(vm_ops.scale_sets(stack, subscription).get(group, name).properties.unique_id)
    except AzureError as error:
        failed = AzureFailed("the scale set did not show", stack.name, error)
        if failed.trouble.code in vm_ops.GONE:
            return None
        raise failed from error


def settle(
    stack: Stack, error: UpdateFailed, before: Inventory | None, wanted: int, deadline: float, again: str
) -> NotAllCame | None:
    """Keep or remove the nodes that a failed try created, and return the error that reports it.

    None, and no change, when the failure is another, or no node of a new cluster boots. Raises
    :class:`~launch.errors.RankliftError` when Azure fails in that too.
    """
    kinds = {kind_of(trouble) for trouble in error.troubles}
    if kinds.isdisjoint(_KINDS):
        return None
    identifier = _scale_set(stack)
    # A node that does not boot concerns that node alone: the others are as requested.
    keep = "partial" not in kinds or stack.settings().get(KEY, "remove") == "keep"
    nodes = () if identifier is None else _listed(stack, identifier)
    there = frozenset(node.instance_id for node in before.nodes) if before is not None else frozenset()
    outcome = sort_out(nodes, there, wanted, keep=keep)
    if "partial" not in kinds and before is None and not outcome.came:
        return None  # none boots: they are needed to find the reason
    if before is None and not (keep and outcome.stay):
        output.progress(f"{outcome.in_words()}: removing what this try created")
        pulumi(stack, ["destroy", "--yes", "--skip-preview", "--stack", stack.name])
        return NotAllCame(stack.name, outcome, False, error, again)
    limit = max(60.0, deadline - time.monotonic())
    if outcome.go and identifier is not None:
        vm_ops.delete(stack, identifier, outcome.go, limit)
    if outcome.stay:
        _update_state(stack, len(outcome.stay), limit)
        vm_ops.refresh(stack, stack.outputs())
    return NotAllCame(stack.name, outcome, keep, error, again)


def _scale_set(stack: Stack) -> str | None:
    known = resources(stack.state())
    return next((str(one["id"]) for one in known if one["type"] == SCALE_SET and one.get("id")), None)


def _listed(stack: Stack, identifier: str) -> Sequence[Node]:
    """Return the VMs of the scale set, without addresses: outputs to read those with may not exist yet."""
    from azure.core.exceptions import AzureError

    from infra.arm import clients

    subscription, group, name = vm_ops.scale_set_of(identifier)
    machines = clients.clients(subscription, stack.environment).compute.virtual_machine_scale_set_vms
    try:
        return [_node(machine) for machine in machines.list(group, name)]
    except AzureError as error:
        raise AzureFailed(f"listing the nodes of {name}", stack.name, error) from error


def _node(machine: Any) -> Node:
    state = str(machine.properties.provisioning_state or "unknown").lower()
    name = machine.properties.os_profile.computer_name
    return Node(name, int(machine.instance_id), "", "", 0, 0, state)


def _update_state(stack: Stack, count: int, limit: float) -> None:
    """Update Pulumi's state to the nodes that exist: run the program with ``count`` nodes."""
    with asking_for(stack, count) as options:
        pulumi(stack, ["up", "--yes", "--skip-preview", *options, "--stack", stack.name], limit=limit)


@contextmanager
def asking_for(stack: Stack, count: int | None) -> Iterator[list[str]]:
    """Give options with which Pulumi creates ``count`` nodes, without changing the configuration.

    Empty when the configuration has that count, or none is given.
    """
    import yaml

    document = yaml.safe_load(stack.configuration.read_text())
    if count is None or str(document["config"].get(COUNT)) == str(count):
        yield []
        return
    document["config"][COUNT] = str(count)
    with stack.scratch() as folder:
        path = folder / stack.configuration.name
        path.write_text(yaml.safe_dump(document))
        yield ["--config-file", str(path)]
