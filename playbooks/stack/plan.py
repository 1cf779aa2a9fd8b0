"""What a cluster will cost and whether Azure will grant it, before it is created: ``plan``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from invoke.context import Context

from playbooks.cli import output
from playbooks.cli.options import number
from playbooks.cli.task import command, open_from

if TYPE_CHECKING:
    from infra.preflight.decide import Plan

__all__ = ["plan"]


@command(
    "plan",
    example="fab plan --stack dev",
    counts=["nodes"],
    help={
        "nodes": "plan for this many nodes instead of the configured number, without creating them",
        "yes": "create it without asking, unless the plan finds a reason against it",
    },
)
def plan(
    context: Context,
    stack: str | None = None,
    nodes: str | None = None,
    yes: bool = False,
    json: bool = False,
) -> None:
    """Show what will be created, what it costs, and whether Azure will grant it; then ask whether to do it.

    Queries list prices, quota and what the region offers, and creates nothing before the answer. Without a
    terminal it only shows the plan. The exit status is 1 when Azure would refuse, when the price is above
    ranklift:maxPrice, or when that could not be found out.
    """
    from playbooks.stack.cost_tables import print_plan
    from playbooks.stack.preflight import plan_of

    chosen = open_from(context, stack)
    wanted = None if nodes is None else number("--nodes", nodes, "nodes", "give 1 or more")
    found = plan_of(chosen, wanted)
    if json:
        output.as_json(found)
    else:
        print_plan(found)
    found.check()
    if wanted is None and (yes or (not json and _agreed(found))):
        from playbooks.stack.up import up

        with output.stdout_to_stderr(when=json):
            up(context, stack=stack)


def _agreed(found: Plan) -> bool:
    """Return whether the user at the terminal wants it; False without a terminal."""
    question = "Create it?" if found.adding else "Nothing is missing. Run `fab up` anyway?"
    return bool(output.ask(question))
