"""What a cluster's nodes are doing: jobs, records, removals."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from infra.inventory import Inventory
from infra.scale_plan import DEAD, Use
from launch.remote.base.names import is_removal
from playbooks.project import Stack
from playbooks.ssh.fanout import fan_out_hosts

if TYPE_CHECKING:
    from launch.client.events import JobState
    from launch.host import Host

__all__ = ["uses"]

STEP_S = 20.0
"""Limit of one node's answer to one query."""


def uses(stack: Stack, inventory: Inventory, holder: str = "") -> dict[str, Use]:
    """Return what every node of the inventory is doing, by name.

    A job counts for its head and for all nodes that it occupies or waits for; a node that does not answer is
    ``unknown`` unless Azure reports that it does not run. Slots that ``holder``, the caller, has count as
    free.
    """
    from playbooks.ssh.connection import Cluster

    by_name = {node.name: node for node in inventory.nodes}
    alive = [node for node in inventory.nodes if node.state not in DEAD]
    with Cluster(inventory, stack.folder) as cluster:
        answers = fan_out_hosts(
            cluster.host,
            alive,
            lambda host: _query(host, by_name[host.name].slots),
            what="listing its jobs",
            timeout=3 * STEP_S,
        )
    jobs: dict[str, list[str]] = {name: [] for name in by_name}
    records: dict[str, int] = {}
    unknown: dict[str, str] = {}
    removals: dict[str, str] = {}
    for name, answer in answers.items():
        if isinstance(answer, Exception):
            unknown[name] = str(answer).removeprefix(f"{name}: ")
            continue
        states, records[name], holders = answer
        others = [one for one in holders if one != holder]
        jobs[name] += [one for one in others if not is_removal(one)]
        removals[name] = next(filter(is_removal, others), "")
        for state in states:
            for where in (name, *state.nodes):
                if where in jobs:
                    jobs[where].append(state.job)
    return {
        name: Use(
            tuple(dict.fromkeys(jobs[name])),
            records.get(name, 0),
            unknown.get(name, ""),
            by_name[name].state in DEAD,
            removals.get(name, ""),
        )
        for name in by_name
    }


def _query(host: Host, slots: int) -> tuple[tuple[JobState, ...], int, tuple[str, ...]]:
    """Return the jobs with this head that have not ended, how many have, and who holds the node's slots."""
    from launch.client.query import list_some
    from launch.client.rpc import rpc_argv, version_there
    from launch.code.push import remote_id

    remote = version_there(host, remote_id(), STEP_S)
    if remote is None:  # no job was ever launched there
        return (), 0, ()
    found = list_some(host, remote=remote, last=0)
    done = host.run(rpc_argv(remote, "slots", str(slots)), timeout=STEP_S)
    taken: Sequence[tuple[int, str]] = json.loads(done.stdout)
    return found.jobs, found.left_out, tuple(holder for _, holder in taken)
