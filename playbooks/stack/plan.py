"""What a cluster will cost and whether Azure will grant it, before it is made: ``plan``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from invoke.context import Context

from playbooks.cli import output
from playbooks.cli.options import number
from playbooks.cli.task import command, open_from
from playbooks.project import Stack

if TYPE_CHECKING:
    from infra.preflight.decide import Plan

__all__ = ["plan", "preflight"]

_NODES = "ranklift:nodeCount"


@command(
    "plan",
    example="fab plan --stack dev",
    help={
        "nodes": "plan for this many nodes instead of the configured number; only shows",
        "yes": "make it without asking, unless something speaks against it",
    },
)
def plan(
    context: Context,
    stack: str | None = None,
    nodes: str | None = None,
    yes: bool = False,
    json: bool = False,
) -> None:
    """Shows what will be made, what it costs, and whether Azure will grant it; then asks whether to make it.

    Asks Azure for list prices, quota and what the region offers, and creates nothing before the answer. Where
    there is no terminal it only shows. The exit status is 1 when Azure would refuse, when the price is above
    ranklift:maxPrice, or when that could not be found out.
    """
    from playbooks.stack.cost_tables import plan_tables

    chosen = open_from(context, stack)
    wanted = None if nodes is None else number("--nodes", nodes, "nodes", "give 1 or more")
    found = _planned(chosen, wanted)
    if json:
        output.as_json(found)
    else:
        plan_tables(found)
    found.check()
    if wanted is None and (yes or (not json and _agreed(found))):
        from playbooks.stack.lifecycle import up

        up(context, stack=stack)


def preflight(stack: Stack, nodes: int | None = None) -> Plan:
    """Asks whether Azure will grant the stack as it is configured, or with ``nodes`` nodes.

    Raises :class:`~infra.preflight.refusal.NotGranted` with every reason against it, before anything is made;
    :class:`~infra.arm.errors.NotSignedIn`; :class:`~launch.errors.InputError` for a wrong configuration.
    """
    found = _planned(stack, nodes)
    found.check()
    for text in found.warnings:
        output.progress(f"warning: {text}")
    return found


def _planned(stack: Stack, nodes: int | None) -> Plan:
    from infra.config.schema import parse
    from playbooks.stack.plan_inputs import plan_of

    settings = stack.settings()
    if nodes is not None:
        settings[_NODES] = str(nodes)
    return plan_of(stack, parse(settings))


def _agreed(found: Plan) -> bool:
    """Whether whoever sits at the terminal wants it; nobody there is a no."""
    question = "Create it?" if found.adding else "Nothing is missing. Run `fab up` all the same?"
    return bool(output.ask(question))
