"""Remove the cluster: ``down``."""

from __future__ import annotations

import time
from dataclasses import replace

from invoke.context import Context
from invoke.exceptions import Exit

from playbooks.cli import output
from playbooks.cli.task import command, limit_help, open_from, seconds, seconds_left

__all__ = ["down"]

_LIMIT = "30m"


@command(
    "down",
    example="fab down --stack dev",
    help={
        "yes": "remove it without asking, whatever is lost with it",
        "timeout": limit_help(_LIMIT),
        "verbose": "print all that Pulumi prints",
        "dry-run": "print what would be done and lost, which the nodes are asked for",
    },
)
def down(
    context: Context,
    stack: str | None = None,
    timeout: str = _LIMIT,
    yes: bool = False,
    verbose: bool = False,
    json: bool = False,
    dry_run: bool = False,
) -> None:
    """Remove the cluster and its keys here, and print what is left; may be repeated.

    Asks first where something would be lost: jobs that run or wait, results that were never collected, as
    far as the jobs' heads know, files in jobs' working folders, whatever is on nodes that do not answer, and
    what is in the stack's own storage. Without a terminal it refuses then, with exit status 1 and one line,
    unless --yes is given; --dry-run asks the nodes and shows the losses.

    Runs `pulumi destroy --yes`; the stack's configuration and history stay. At the end it lists everything in
    the subscription that carries the stack's tag, also where Pulumi has lost the stack: the exit status is 1
    when there is anything but what is kept on purpose (ranklift:retainData, or an account given back to the
    stack that created it), and then the keys stay too.
    """
    limit = seconds("--timeout", timeout)
    chosen = replace(open_from(context, stack), shows_pulumi=verbose)
    arguments = ["destroy", "--yes", "--stack", chosen.name]
    if dry_run:
        from playbooks.stack.teardown import teardown_steps

        kept = f"{chosen.folder}: its keys, ssh_config, inventory and notes of jobs are removed"
        losing = teardown_steps(chosen, yes=yes)
        output.steps([*losing, f"pulumi {' '.join(arguments)}", kept], json=json)
        return
    from infra.arm.clients import endpoint
    from playbooks.pulumi.recover import recover
    from playbooks.pulumi.run import pulumi, retry_while_busy
    from playbooks.stack.account import report_left
    from playbooks.stack.teardown import prepared_teardown

    endpoint(chosen.environment)  # refuses another cloud before anything is destroyed
    if chosen.exists():
        recover(chosen)
        with output.stdout_to_stderr(when=json), prepared_teardown(chosen, limit, yes=yes):
            deadline = time.monotonic() + limit  # the user's time at the question does not count
            retry_while_busy(lambda: pulumi(chosen, arguments, limit=seconds_left(deadline)), deadline)
    else:
        output.progress(f"Pulumi has no stack {chosen.name}: {chosen.meant}nothing to destroy")
    if not report_left(chosen, json=json):
        # Nodes may be left whose record Pulumi has lost: their keys stay.
        raise Exit(code=1)
    chosen.forget()
