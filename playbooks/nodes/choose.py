"""Which nodes of a stack a command works on: the one place that resolves what users write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from infra.inventory import Inventory, Node
from launch.errors import InputError, RetryError
from launch.nodeset import NodeSet, fold, parse_nodes, ranges
from launch.numbers import counted
from playbooks.cli import output
from playbooks.cli.merged_output import grouped
from playbooks.project import Stack

if TYPE_CHECKING:
    from infra.scale_plan import Use

__all__ = ["choose_free_nodes", "choose_node", "choose_nodes", "freest", "taken_words"]

_SHOWN = 8


def choose_nodes(inventory: Inventory, given: str | None, key: str = "--nodes") -> Sequence[Node]:
    """Return the nodes that ``given`` chooses by :func:`~launch.nodeset.parse_nodes`; all when it is None.

    ``any:N`` are the first N that run. Raises :class:`~launch.errors.InputError` naming those that exist.
    """
    wanted = NodeSet() if given is None else parse_nodes(given, key)
    if not inventory.nodes:
        raise InputError("stack", inventory.stack, "has no nodes", "run `fab status` or `fab up`")
    if wanted.is_all:
        return inventory.nodes
    if wanted.count is not None:
        running = [node for node in inventory.nodes if _runs(node)]
        if wanted.count > len(running):
            problem = f"stack {inventory.stack} has {counted(len(running), 'node')} that run"
            raise InputError(key, given, problem, _existing(inventory))
        return running[: wanted.count]
    names, ids = set(wanted.names), set(wanted.ids)
    chosen = [node for node in inventory.nodes if node.name in names or node.instance_id in ids]
    names.difference_update(node.name for node in chosen)
    ids.difference_update(node.instance_id for node in chosen)
    missing = [*map(str, sorted(ids)), *sorted(names)]
    if missing:
        shown = ", ".join(missing[:_SHOWN]) + (" …" if len(missing) > _SHOWN else "")
        problem = (
            f"{shown} {'is not a node' if len(missing) == 1 else 'are not nodes'} of stack {inventory.stack}"
        )
        raise InputError(key, given, problem, _existing(inventory))
    return chosen


def choose_node(inventory: Inventory, given: str, key: str) -> Node:
    """Return the one node that ``given`` names. Raises as :func:`choose_nodes`, also for several."""
    wanted = parse_nodes(given, key)
    if wanted.count is not None or wanted.is_all:
        raise InputError(key, given, "leaves open which node", "name one, as in 3 or node000003")
    chosen = choose_nodes(inventory, given, key)
    if len(chosen) != 1:
        raise InputError(key, given, f"names {len(chosen)} nodes", "name one, as in 3 or node000003")
    return chosen[0]


def choose_free_nodes(
    stack: Stack, inventory: Inventory, given: str | None, *, dry_run: bool
) -> tuple[Sequence[Node], Sequence[str]]:
    """Return the nodes that a job gets, and notices of what was chosen for the user.

    For ``any:N`` every node is asked for its jobs, except in a dry run. Raises as :func:`choose_nodes` and
    :func:`freest`.
    """
    nodes = choose_nodes(inventory, given)
    if given is None:
        return nodes, (f"no --nodes: the job takes {taken_words(stack, inventory, nodes)}",)
    count = parse_nodes(given).count
    if count is None:
        return nodes, ()
    if dry_run:
        return nodes, (f"{given}: the first nodes that run; a launch asks which are free",)
    from playbooks.nodes.busy import uses

    used = uses(stack, inventory)
    chosen = freest(inventory.nodes, used, count)
    busy = [node.name for node in chosen if used[node.name].jobs]
    notices = [f"{given}: {fold(node.name for node in chosen)}"]
    if busy:
        notices.append(f"too few nodes are free: this job may wait for jobs on {fold(busy)}")
    return chosen, notices


def taken_words(stack: Stack, inventory: Inventory, nodes: Sequence[Node]) -> str:
    """Return in words how many of the stack's nodes a job takes, with their price where it is known."""
    from playbooks.node_price import saved_price

    there, price = len(inventory.nodes), saved_price(stack, inventory)
    much = counted(len(nodes), "node")
    if len(nodes) < there:
        much = f"{len(nodes)} of {counted(there, 'node')}"
    elif there > 1:
        much = f"all {much}"
    if price is None:
        return f"{much} of stack {inventory.stack}"
    cost = f"{len(nodes) * price['per_hour']:.2f} {price['currency']} an hour"
    return f"{much} of stack {inventory.stack}, {cost} ({price['kind']}; {price['source']})"


def freest(nodes: Sequence[Node], used: Mapping[str, Use], count: int) -> Sequence[Node]:
    """Return the ``count`` nodes with the fewest jobs that run or wait there, by id; never a drained one.

    Raises :class:`~launch.errors.RetryError` with the reasons if too few can take a job.
    """
    able = [node for node in nodes if _runs(node) and _takes_jobs(used[node.name])]
    if len(able) < count:
        others = {n.name: _obstacle(n, used[n.name]) for n in nodes if n not in able}
        lines = "\n".join(grouped(others))
        raise RetryError(f"any:{count}: {counted(len(able), 'node')} can take a job now\n{lines}")
    able.sort(key=lambda node: (len(used[node.name].jobs), node.instance_id))
    return sorted(able[:count], key=lambda node: node.instance_id)


def _takes_jobs(use: Use) -> bool:
    return not use.drain and bool(use.jobs or use.is_idle)


def _obstacle(node: Node, use: Use) -> str:
    """Return why the node takes no job."""
    if not _runs(node):
        return node.state
    return f"it is {use.drain}: `fab undrain {node.instance_id}` ends that" if use.drain else str(use)


def _runs(node: Node) -> bool:
    from infra.scale_plan import DEAD

    return node.state not in DEAD and node.state != "deleting"


def _existing(inventory: Inventory) -> str:
    """Return which nodes there were, by name and id, and how to read them again."""
    names = fold(node.name for node in inventory.nodes)
    ids = ranges(node.instance_id for node in inventory.nodes)
    age = output.age(inventory.read_at)
    return f"known {age} ago: {names} (ids {ids}); `fab status` reads them from Azure again"
