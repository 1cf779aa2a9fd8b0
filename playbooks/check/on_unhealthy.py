"""Nodes at which a look finds errors, replaced before a job: ``--on-unhealthy``, ``ranklift.on_unhealthy``.

The look is that of the gate in front of the job's ranks, which refuses what is still unhealthy: each node is
replaced at most once a launch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, get_args

from infra.inventory import Inventory, Node
from launch.errors import InputError, RetryError
from launch.nodeset import fold
from launch.numbers import counted
from playbooks.cli import output
from playbooks.cli.options import one_of
from playbooks.project import Stack

if TYPE_CHECKING:
    from launch.remote.base.health_records import HealthMode
    from playbooks.nodes.sick import Sick

__all__ = ["ON_UNHEALTHY_HELP", "OnUnhealthy", "on_unhealthy_flag", "with_healthy_nodes"]

OnUnhealthy = Literal["refuse", "replace"]
"""What is done about nodes at which a look finds errors."""
ON_UNHEALTHY_HELP = (
    "what is done about a node at which a look finds errors before the job: refuse the job, or replace the "
    "node, at most once, as `fab replace` does"
)


def on_unhealthy_flag(text: str | None) -> OnUnhealthy | None:
    """Return the value of ``--on-unhealthy``; None when it was not given.

    >>> on_unhealthy_flag("replace"), on_unhealthy_flag(None)
    ('replace', None)

    Raises :class:`~launch.errors.InputError` for anything else.
    """
    return one_of("--on-unhealthy", text, get_args(OnUnhealthy), "is not known", "give refuse or replace")


def with_healthy_nodes(
    stack: Stack,
    inventory: Inventory,
    nodes: Sequence[Node],
    env: Mapping[str, str],
    health: HealthMode,
    *,
    dry_run: bool,
) -> tuple[Inventory, Sequence[Node], Sequence[str]]:
    """Look at a job's nodes, replace those with errors; return the inventory, the job's nodes and notices.

    The job must be known to be valid: no node is replaced for one that is then refused. ``env``, its
    variables, may say that it does without InfiniBand. Raises :class:`~launch.errors.InputError` for a job
    without looks, and that or :class:`~launch.errors.RetryError`, before any node is replaced, for one that
    must stay.
    """
    if health == "off":
        problem = "cannot be combined with health: off, by which nobody looks at the nodes"
        raise InputError("--on-unhealthy", "replace", problem, "leave one of the two out")
    if dry_run:
        return inventory, nodes, ("a launch looks at the nodes first, and replaces those with errors",)
    from playbooks.nodes.sick import examine
    from playbooks.stack.replacement import replace_node

    found, _ = examine(stack, inventory, nodes, {}, env)
    shared = _shared_rules(found, len(nodes))
    if shared:
        why = f"all {len(nodes)} break {', '.join(shared)}, as new ones of the same image may"
        notice = f"no node is replaced: {why}; `fab replace --sick` replaces them nevertheless"
        return inventory, nodes, (notice,)
    if found:
        _refuse_losses(stack, inventory, nodes, found)
    names = [node.name for node in nodes]
    for sick in found:
        output.progress(f"{sick.node.name} is replaced before the job: {sick}")
        fresh = replace_node(stack, sick.node.name)
        output.progress(f"{sick.node.name} replaced by {fold(fresh)}")
        names[names.index(sick.node.name)] = fresh[0]
        inventory = stack.saved()
    chosen = [node for node in inventory.nodes if node.name in names]
    return inventory, chosen, ()


def _refuse_losses(stack: Stack, inventory: Inventory, nodes: Sequence[Node], found: Sequence[Sick]) -> None:
    """Raise an error where one of the ``found`` nodes must stay, or another of the job's takes no job."""
    from playbooks.nodes.busy import uses
    from playbooks.stack.losses import losses_with

    used = uses(stack, inventory)
    for node in nodes:
        if used[node.name].drain:
            problem = f"{node.name} is {used[node.name].drain}; no node is replaced"
            raise InputError("--nodes", None, problem, f"`fab undrain {node.instance_id}`, or choose others")
    for sick in found:
        use, name = used[sick.node.name], sick.node.name
        if use.jobs or use.unknown:
            why = use.unknown or f"it has {', '.join(use.jobs)}"
            raise RetryError(f"{name} is sick ({sick}) and is not replaced: {why}; no node is replaced")
        if use.uncollected:
            held = f"has files of {counted(len(use.uncollected), 'job')}, not collected"
            problem = f"{name} is sick ({sick}) and {held}"
            replaces = f"`fab replace {sick.node.instance_id}`"
            remedy = f"`fab collect {use.uncollected[0]}`, or give them up with {replaces}"
            raise InputError("--on-unhealthy", "replace", problem, remedy)
        if use.left:
            job, left = use.left[0]
            problem = f"{name} is sick ({sick}) and has what {job} left in its working folder: {left}"
            replaces = f"`fab replace {sick.node.instance_id}`"
            remedy = f"`fab collect {job} --work`, or give them up with {replaces}"
            raise InputError("--on-unhealthy", "replace", problem, remedy)
    losses = losses_with([sick.node for sick in found], used)
    for name, why in losses.unknown.items():
        problem = f"what is lost with sick nodes is unknown: {name}: {why}"
        remedy = f"`fab replace {found[0].node.instance_id}` asks whether to give that up"
        raise InputError("--on-unhealthy", "replace", problem, remedy)
    for line in losses.lines():
        output.progress(line)


def _shared_rules(found: Sequence[Sick], nodes: int) -> list[str]:
    """Return the rules that each of several nodes breaks: there the image is at fault, or the look itself."""
    if not 1 < nodes == len(found):
        return []
    return sorted(set.intersection(*({one["rule"] for one in sick.findings} for sick in found)))
