"""Create or update the cluster: ``up``."""

from __future__ import annotations

import time
from dataclasses import replace

from invoke.context import Context

from playbooks.cli import output
from playbooks.cli.signals import report_half_done
from playbooks.cli.task import command, open_from, seconds_left
from playbooks.stack.limits import CHANGE, LIMIT_HELP, ready_limit

__all__ = ["up"]


@command(
    "up",
    example="fab up --stack dev",
    help={
        "yes": "remove surplus nodes, and replace all nodes if settings need it, without asking, whatever is "
        "lost with them",
        "timeout": LIMIT_HELP.format(CHANGE),
        "verbose": "print all that Pulumi prints",
    },
)
def up(
    context: Context,
    stack: str | None = None,
    timeout: str | None = None,
    yes: bool = False,
    verbose: bool = False,
    json: bool = False,
    dry_run: bool = False,
) -> None:
    """Create or update the cluster, and wait until every node answers.

    Runs `pulumi up --yes`, and creates the stack if it does not exist. First repairs what a killed Pulumi
    left behind, and what was changed or deleted in Azure since. Removes surplus nodes only if they are idle,
    and asks first where something would be lost with them, as `fab scale` does. Where changed settings
    replace all nodes, it names the settings and what would be lost, and asks first; without a terminal it
    refuses then, with exit status 1, unless --yes is given.
    """
    chosen = replace(open_from(context, stack), shows_pulumi=verbose)
    limit = ready_limit(chosen, timeout, CHANGE)
    chosen.settings()
    if dry_run:
        waiting = f"fab wait --stack {chosen.name} --timeout {limit:g}"
        output.steps([f"pulumi up --yes --stack {chosen.name}", waiting], json=json)
        return
    from playbooks.nodes.health import wait_for_nodes
    from playbooks.stack.converge import build
    from playbooks.stack.status import report_idle_stop

    deadline = time.monotonic() + limit
    with output.stdout_to_stderr(when=json):
        build(chosen, deadline, yes=yes)
        with report_half_done(f"nodes may not be ready yet: `fab wait --stack {chosen.name}` waits for them"):
            inventory = wait_for_nodes(chosen, seconds_left(deadline))
        report_idle_stop(chosen, inventory)
        output.progress(
            f"next: `fab launch job.yml --stack {chosen.name}` starts a job on the nodes, "
            f"`fab status --stack {chosen.name}` shows them"
        )
    if json:
        output.as_json(inventory)
