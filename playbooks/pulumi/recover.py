"""Repair of what a killed Pulumi left behind, before the next one works on the stack.

It leaves its lock, at which the next one stops; and resources noted as being created, but not whether Azure
created them: `pulumi up` would stop because they exist, `pulumi destroy` because nodes unknown to it use the
subnet. No job can have used those, so they are removed and created again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from infra.arm.pulumi_state import begun_in, resource_name, resources
from launch.errors import RankliftError
from playbooks.cli import output
from playbooks.project import Stack
from playbooks.pulumi.locks import InUse, locks
from playbooks.pulumi.run import pulumi

__all__ = ["recover", "unfinished"]

_SUBSCRIPTION = re.compile(r"/subscriptions/([^/]+)/")


def recover(stack: Stack) -> None:
    """Remove what a killed Pulumi left of ``stack``.

    Removes a lock only when it is proved that the process that took it has ended. Raises
    :class:`~playbooks.pulumi.locks.InUse` for any other lock, before anything is changed, and
    :class:`~launch.errors.RankliftError` with the remedy when a resource cannot be removed from here.
    """
    found = locks(stack)
    held = tuple(one for one in found if not one.is_left)
    if held:
        raise InUse(stack.name, held, stack.pulumi_command)
    for lock in found:
        output.progress(f"process {lock.process} was killed while it held the lock of stack {stack.name}")
        if lock.path is not None:  # this one alone: `pulumi cancel` would remove another command's as well
            lock.path.unlink(missing_ok=True)
    state = stack.state()
    begun = unfinished(state)
    if not begun:
        return
    _remove(stack, state, [one for one in begun if one["type"].startswith("azure-native:")])
    # After a crash Pulumi's state may be wrong elsewhere too: compare all of it with Azure.
    pulumi(stack, ["refresh", "--yes", "--skip-preview", "--clear-pending-creates", "--stack", stack.name])


def unfinished(state: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return resources in ``pulumi stack export`` whose creation is unfinished; nothing else needs repair."""
    return [one["resource"] for one in begun_in(state) if one["type"] == "creating"]


def _remove(stack: Stack, state: Mapping[str, Any], begun: Sequence[Mapping[str, Any]]) -> None:
    if not begun:
        return
    from azure.core.exceptions import AzureError

    from infra.arm import clients
    from infra.arm.errors import explained
    from infra.arm.types import REMOVABLE

    known = (_SUBSCRIPTION.match(str(one.get("id"))) for one in resources(state))
    subscription = next(filter(None, known), None)
    stuck = [resource_name(one["urn"]) for one in begun if one["type"] not in REMOVABLE]
    if stuck or subscription is None:
        created = ", ".join(stuck or [resource_name(begun[0]["urn"])])
        raise RankliftError(
            f"stack {stack.name}: Pulumi was killed while it created {created}, "
            "and whether it exists in Azure is not known; if the portal shows it, delete it there, then run "
            f"`{stack.pulumi_command} refresh --clear-pending-creates --stack {stack.name}`"
        )
    client = clients.resource_client(subscription[1], stack.environment)
    for one in begun:
        name = resource_name(one["urn"])
        output.progress(f"{name}: Pulumi was killed while it was being created; removing it from Azure")
        try:
            clients.remove(client, subscription[1], one["type"], one.get("inputs") or {})
        except AzureError as error:
            what = f"stack {stack.name}: {name} could not be removed"
            raise RankliftError(f"{what}: {explained(error)}") from error
