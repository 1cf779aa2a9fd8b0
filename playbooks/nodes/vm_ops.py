"""What is done to single nodes of a scale set: taking them away, and installing them anew."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from infra.arm.update_errors import AzureFailed
from infra.inventory import Inventory, Node
from launch.errors import RetryError
from launch.nodeset import fold
from launch.remote.agent.autostop import STOPPED
from playbooks.cli import output
from playbooks.project import Stack
from playbooks.ssh.fanout import fan_out

__all__ = ["delete", "distrust_copies", "reimage", "scale_set_of", "stopped"]

OPERATION_S = 900.0
"""How long Azure may take over one operation on nodes unless the user says."""
TELL_S = 60.0
_POLL_S = 1.0
_ASIDE = 'for f in .ranklift/snapshots/*.nodes; do if [ -e "$f" ]; then echo "{}" > "$f"; fi; done'


def scale_set_of(scale_set_id: str) -> tuple[str, str, str]:
    """Subscription, resource group and name.

    >>> scale_set_of("/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/…/n")
    ('s', 'g', 'n')
    """
    parts = scale_set_id.strip("/").split("/")
    return parts[1], parts[3], parts[-1]


def stopped(stack: Stack, scale_set_id: str) -> str:
    """When and why the cluster made its own capacity 0, in brackets behind a blank; empty when it did not.

    Raises :class:`AzureFailed` when Azure does not tell.
    """
    from azure.core.exceptions import AzureError

    from infra.arm import clients

    subscription, group, name = scale_set_of(scale_set_id)
    sets = clients.clients(subscription, stack.environment).compute.virtual_machine_scale_sets
    try:
        told = (sets.get(group, name).tags or {}).get(STOPPED)
    except AzureError as error:
        raise AzureFailed("the scale set did not show", stack.name, error) from error
    return f" (stopped at {told})" if told else ""


def delete(stack: Stack, scale_set_id: str, nodes: Sequence[Node], limit: float = OPERATION_S) -> None:
    """Takes these nodes out of the scale set, each by its id: Azure chooses nothing.

    Raises :class:`AzureFailed` when Azure refuses or fails, and :class:`~launch.errors.RetryError` when it
    has not ended within ``limit`` seconds; it goes on then.
    """

    def begin(sets: Any, group: str, name: str) -> Any:
        return sets.begin_delete_instances(group, name, {"instanceIds": _ids(nodes)})

    _operate(stack, scale_set_id, nodes, "removing", begin, limit)


def reimage(stack: Stack, scale_set_id: str, nodes: Sequence[Node], limit: float = OPERATION_S) -> None:
    """Installs these nodes anew from the image; names and addresses stay. Raises as :func:`delete`."""

    def begin(sets: Any, group: str, name: str) -> Any:
        return sets.begin_reimage(group, name, {"instanceIds": _ids(nodes)})

    _operate(stack, scale_set_id, nodes, "reimaging", begin, limit)


def distrust_copies(stack: Stack, inventory: Inventory, fresh: Sequence[Node]) -> None:
    """Lets the other nodes forget who holds which pushed code: ``fresh`` ones have none of it any more.

    The next push asks every node again. A node that does not answer cannot be the head of that push either;
    it is named all the same.
    """
    from playbooks.ssh.connection import Cluster

    names = {node.name for node in fresh}
    by_name = {node.name: node for node in inventory.nodes if node.name not in names}
    with Cluster(inventory, stack.folder) as cluster:

        def forget(name: str) -> None:
            with cluster.host(by_name[name]) as host:
                host.run(["sh", "-c", _ASIDE], timeout=20)

        answers = fan_out(forget, by_name, what="forgetting", timeout=21)
    silent = [name for name, answer in answers.items() if isinstance(answer, Exception)]
    if silent:
        output.progress(
            f"{fold(silent)} did not hear that {fold(names)} lost the pushed code: use `fab push --verify`"
        )


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

    from infra.arm import clients

    subscription, group, name = scale_set_of(scale_set_id)
    what = f"{verb} {fold(node.name for node in nodes)}"
    output.progress(what)
    began = time.monotonic()
    told = began
    try:
        poller = begin(
            clients.clients(subscription, stack.environment).compute.virtual_machine_scale_sets, group, name
        )
        while not poller.done():
            poller.wait(_POLL_S)
            now = time.monotonic()
            if now - began > limit:
                raise RetryError(
                    f"{what}: Azure has been at it for {now - began:.0f} s and goes on; repeat this later"
                )
            if now - told > TELL_S:
                told = now
                output.progress(f"{what}: Azure has been at it for {now - began:.0f} s")
        poller.result()
    except AzureError as error:
        raise AzureFailed(what, stack.name, error) from error
