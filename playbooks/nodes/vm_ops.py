"""The nodes of a scale set in Azure: read, removed and installed again."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from infra import inventory
from infra.arm.update_errors import AzureFailed
from infra.inventory import Inventory, Node, StackOutputs
from infra.naming import IDLE_TAG, STOPPED_TAG
from launch.errors import RankliftError, RetryError
from launch.nodeset import fold
from playbooks.cli import output
from playbooks.project import Stack

__all__ = ["GONE", "delete", "refresh", "reimage", "scale_set_of", "scale_sets", "stopped"]

GONE = ("ResourceNotFound", "ResourceGroupNotFound")
"""Azure's error codes for a scale set that does not exist any more."""
OPERATION_S = 900.0
"""How long Azure may take over one operation on nodes unless the user sets a limit."""
REPORT_S = 60.0
"""Interval of reports on an operation that still runs."""
_POLL_S = 1.0


def scale_set_of(scale_set_id: str) -> tuple[str, str, str]:
    """Return subscription, resource group and name.

    >>> scale_set_of("/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/…/n")
    ('s', 'g', 'n')
    """
    parts = scale_set_id.strip("/").split("/")
    return parts[1], parts[3], parts[-1]


def scale_sets(stack: Stack, subscription: str) -> Any:
    """Return Azure's client for the scale sets of a subscription."""
    from infra.arm import clients

    return clients.clients(subscription, stack.environment).compute.virtual_machine_scale_sets


def refresh(stack: Stack, outputs: StackOutputs) -> Inventory:
    """Read from Azure which nodes exist now, and save that as the stack's inventory.

    Raises :class:`AzureFailed`, which names the end of the cluster's time where that is the reason.
    """
    from azure.core.exceptions import AzureError

    from infra.arm import clients

    subscription, _, _ = scale_set_of(outputs.scale_set_id)
    try:
        found = inventory.read_azure(outputs, clients.clients(subscription, stack.environment))
    except AzureError as error:
        failed = AzureFailed(f"Azure did not list the nodes of stack {stack.name}", stack.name, error)
        _explain_expiry(stack, failed)
        raise failed from error
    inventory.save(found, outputs, stack.folder)
    return found


def _explain_expiry(stack: Stack, failed: AzureFailed) -> None:
    """Change the message of ``failed`` where the scale set is gone because its time was over."""
    if failed.trouble.code not in GONE:
        return
    from infra.preflight.stale import end_remembered

    try:
        end = end_remembered(stack.state())
    except RankliftError:
        return  # Azure's own message is shown then
    if end is not None and end.at <= datetime.now(UTC):
        failed.args = (
            f"stack {stack.name} has no nodes any more: their lifetime ended at {end}, when they delete the "
            f"scale set\n`fab up --stack {stack.name}` makes it again, with a new time; "
            f"`fab down --stack {stack.name}` removes the rest, which still costs",
        )


def stopped(stack: Stack, scale_set_id: str) -> str:
    """Return why the cluster may have no nodes, in brackets after a blank; nothing where none is known.

    Raises :class:`AzureFailed` when Azure does not answer.
    """
    from azure.core.exceptions import AzureError

    subscription, group, name = scale_set_of(scale_set_id)
    try:
        tags = scale_sets(stack, subscription).get(group, name).tags or {}
    except AzureError as error:
        raise AzureFailed("the scale set did not show", stack.name, error) from error
    if STOPPED_TAG in tags:
        return f" (stopped at {tags[STOPPED_TAG]})"
    minutes = tags.get(IDLE_TAG)
    return f" (idle nodes are deleted after {minutes} minutes: ranklift:idleStopMinutes)" if minutes else ""


def delete(stack: Stack, scale_set_id: str, nodes: Sequence[Node], limit: float = OPERATION_S) -> None:
    """Remove these nodes from the scale set, each by its id, so that Azure chooses none.

    Raises :class:`AzureFailed` when Azure refuses or fails, and :class:`~launch.errors.RetryError` when it
    has not finished within ``limit`` seconds; Azure continues then.
    """

    def begin(sets: Any, group: str, name: str) -> Any:
        return sets.begin_delete_instances(group, name, {"instanceIds": _ids(nodes)})

    _operate(stack, scale_set_id, nodes, "removing", begin, limit)


def reimage(stack: Stack, scale_set_id: str, nodes: Sequence[Node], limit: float = OPERATION_S) -> None:
    """Install these nodes from the image again; names and addresses stay. Raises as :func:`delete`."""

    def begin(sets: Any, group: str, name: str) -> Any:
        return sets.begin_reimage(group, name, {"instanceIds": _ids(nodes)})

    _operate(stack, scale_set_id, nodes, "reimaging", begin, limit)


def _ids(nodes: Sequence[Node]) -> list[str]:
    return [str(node.instance_id) for node in nodes]


def _operate(
    stack: Stack,
    scale_set_id: str,
    nodes: Sequence[Node],
    verb: str,
    begin: Callable[[Any, str, str], Any],
    limit: float,
) -> None:
    from azure.core.exceptions import AzureError

    subscription, group, name = scale_set_of(scale_set_id)
    what = f"{verb} {fold(node.name for node in nodes)}"
    output.progress(what)
    began = reported = time.monotonic()
    try:
        poller = begin(scale_sets(stack, subscription), group, name)
        while not poller.done():
            poller.wait(_POLL_S)
            now = time.monotonic()
            doing = f"{what}: Azure has been working on it for {now - began:.0f} s"
            if now - began > limit:
                raise RetryError(f"{doing} and continues; repeat the command later")
            if now - reported > REPORT_S:
                reported = now
                output.progress(doing)
        poller.result()
    except AzureError as error:
        raise AzureFailed(what, stack.name, error) from error
    except KeyboardInterrupt:
        spent = time.monotonic() - began
        output.progress(f"{what}: Azure has been working on it for {spent:.0f} s, and may continue")
        raise
