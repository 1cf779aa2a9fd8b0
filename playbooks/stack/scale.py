"""More nodes, fewer nodes: ``scale``."""

from __future__ import annotations

import time

from invoke.context import Context
from invoke.exceptions import Exit

from launch.errors import InputError, RankliftError
from launch.nodeset import fold
from launch.numbers import counted
from playbooks.cli import output
from playbooks.cli.options import number
from playbooks.cli.task import command, open_from, seconds
from playbooks.project import Stack

__all__ = ["scale"]

_LIMIT = "30m"
_INTERRUPTED = 130


@command(
    "scale",
    example="fab scale 8",
    help={
        "number": "how many nodes the cluster is to have",
        "timeout": f"give up after this long (default: {_LIMIT}); 90s, 10m and 2h are understood too",
    },
    positional=["number"],
)
def scale(
    context: Context, number: str, stack: str | None = None, timeout: str = _LIMIT, dry_run: bool = False
) -> None:
    """Gives the cluster more nodes or fewer; those that stay notice nothing.

    Fewer: idle nodes go, the newest first, never one with a job that runs or waits: rather nothing is changed
    and the jobs are named. The stack's configuration says the new number afterwards; where it fails before
    any node came, it stays as it was.
    """
    from infra.config.schema import parse
    from playbooks.nodes.health import wait_for_nodes
    from playbooks.pulumi.partial import COUNT
    from playbooks.pulumi.recover import mend
    from playbooks.pulumi.run import pulumi
    from playbooks.stack.converge import build, present, wanted_of
    from playbooks.stack.plan import preflight

    wanted = _count(number)
    limit = seconds("--timeout", timeout)
    chosen = open_from(context, stack)
    parse({**chosen.settings(), COUNT: str(wanted)})
    setting = ["config", "set", COUNT, str(wanted), "--stack", chosen.name]
    if dry_run:
        output.result(_plan(chosen, wanted, setting))
        return
    deadline = time.monotonic() + limit
    mend(chosen, lambda words: pulumi(chosen, words))
    if _is_there(chosen, wanted):
        return
    there = chosen.refresh(chosen.outputs())
    if len(present(there)) < wanted:
        preflight(chosen, wanted)
    try:
        build(chosen, deadline, ["--skip-preview"], there=there, wanted=wanted)
    except (KeyboardInterrupt, Exit, RankliftError) as error:
        _settle_on(chosen, wanted, len(present(there)), setting, error)
        raise
    if wanted_of(chosen) != wanted:
        pulumi(chosen, setting)
    wait_for_nodes(chosen, max(1.0, deadline - time.monotonic()))


def _is_there(stack: Stack, wanted: int) -> bool:
    """Whether configuration, Pulumi and Azure have ``wanted`` nodes, and nothing is missing; then says so."""
    from infra.scale_plan import DEAD
    from playbooks.pulumi.drift import look
    from playbooks.stack.converge import wanted_of

    if wanted_of(stack) != wanted:
        return False
    outputs = stack.outputs()
    drift = look(stack, wanted)
    if outputs.node_count != wanted or drift is None or drift or drift.present != wanted:
        return False
    nodes = stack.refresh(outputs).nodes
    if len(nodes) != wanted or not all(node.state != "deleting" for node in nodes):
        return False
    there = f"there {'is' if wanted == 1 else 'are'} {counted(wanted, 'node')}"
    output.result(f"stack {stack.name}: {there}, as many as its configuration asks for")
    for node in nodes:
        if node.state in DEAD:
            remedy = f"`fab replace {node.instance_id} --stack {stack.name}` makes it anew"
            output.progress(f"{node.name} is {node.state}: {remedy}")
    return True


def _settle_on(stack: Stack, wanted: int, before: int, setting: list[str], error: BaseException) -> None:
    """After a change that failed: lets the configuration say what is to be, and says what that is.

    It stays as it was where Azure has as many nodes as ``before``; it says what was ``wanted`` where others
    came or went, and where Azure may go on with it.
    """
    from playbooks.pulumi.locks import InUse
    from playbooks.pulumi.run import TookTooLong, pulumi
    from playbooks.stack.converge import present, wanted_of

    is_new, azure, others = before == wanted, "", ""
    if isinstance(error, InUse):  # what another command makes is no outcome of this one
        is_new = False
    elif isinstance(error, TookTooLong) or (isinstance(error, Exit) and error.code == _INTERRUPTED):
        is_new, azure = True, f", and Azure may go on: `fab scale {wanted} --stack {stack.name}` does, too"
    else:
        try:
            there = len(present(stack.refresh(stack.outputs())))
        except RankliftError as unknown:
            azure = f"; how many Azure has is not known: {str(unknown).splitlines()[0]}"
        else:
            is_new, azure = is_new or there != before, f", Azure has {there}"
            if is_new and there != wanted:
                others = f": `fab scale {wanted}` makes the others, `fab scale {there}` leaves it so"
    had = wanted_of(stack)
    if is_new and had != wanted:
        pulumi(stack, setting)
    count = wanted if is_new else had
    asks = f"asks for {count} node{'s' * (count != 1)}{'' if is_new else ' as before'}"
    output.progress(f"stack {stack.name}: its configuration {asks}{azure}{others}")


def _count(text: str) -> int:
    wanted = number("N", text, "nodes", "give 1 or more")
    if wanted == 0:
        raise InputError("N", text, "a cluster has at least 1 node", "`fab down` removes all of it")
    return wanted


def _plan(stack: Stack, wanted: int, setting: list[str]) -> str:
    """The same by hand."""
    from playbooks.stack.converge import present

    nodes = present(stack.saved())
    lines = []
    if len(nodes) > wanted:
        lines.append(
            f"remove {len(nodes) - wanted} idle ones of {fold(node.name for node in nodes)}, the newest first"
        )
    lines += [
        f"pulumi {' '.join(setting)}",
        f"pulumi up --yes --skip-preview --stack {stack.name}",
        f"fab wait --stack {stack.name}",
    ]
    return "\n".join(lines)
