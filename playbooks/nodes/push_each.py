"""A snapshot to nodes, whichever of them answer."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from infra.inventory import Inventory, Node
from launch.code.push import PushReport, push
from launch.code.snapshot import Snapshot
from launch.errors import ManyNodesError, NodeUnreachable, RankliftError
from playbooks.project import Stack

__all__ = ["push_snapshot"]


def push_snapshot(
    stack: Stack, inventory: Inventory, nodes: Sequence[Node], snapshot: Snapshot, *, verify: bool = False
) -> PushReport:
    """Pushes through the first of ``nodes`` that answers; it spreads the snapshot to the others.

    Raises :class:`~launch.errors.ManyNodesError` naming every node that could not be served.
    """
    from playbooks.ssh.connection import Cluster

    failed: dict[str, Exception] = {}
    with Cluster(inventory, stack.folder) as cluster:
        for position, head in enumerate(nodes):
            try:
                report = push(snapshot, cluster.host(head), nodes[position:], verify=verify)
            except NodeUnreachable as error:
                failed[head.name] = error
                continue
            except ManyNodesError as error:
                raise ManyNodesError(error.what, {**failed, **error.results}) from None
            results = {**failed, **report.results}
            if failed:
                raise ManyNodesError("push", results)
            return dataclasses.replace(report, results=results)
    if not failed:
        raise RankliftError("there is no node to push to")
    raise ManyNodesError("push", failed)
