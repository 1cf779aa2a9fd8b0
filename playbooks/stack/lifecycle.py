"""The stack as a whole: ``up``, ``down``, ``status``, ``wait``."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from invoke.context import Context
from invoke.exceptions import Exit

from launch.errors import RankliftError
from launch.numbers import counted
from playbooks.cli import output
from playbooks.cli.task import command, open_from, seconds
from playbooks.project import Stack
from playbooks.ssh.fanout import fan_out

if TYPE_CHECKING:
    from infra.preflight.stale import End
    from infra.scale_plan import Drift

__all__ = ["NodeStatus", "down", "status", "up", "wait"]

NODES_S = 600.0
"""How long nodes are waited for unless the user says."""
_HOUR_S = 3600.0
_UP = "30m"
"""How long Azure and the nodes may take unless the user says."""


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """A row of ``fab status``."""

    name: str
    id: int
    address: str
    """Where the operator's ssh connects."""
    private_ip: str
    size: str
    slots: int
    state: str
    ssh: str
    """``yes``, or ``no:`` and the reason."""


@command("status", example="fab status --stack dev")
def status(context: Context, stack: str | None = None, json: bool = False) -> None:
    """Shows the nodes as Azure has them now, and whether each answers and is fit for work.

    With ranklift:ttlHours it says when their time is over. The exit status is 1 when one is not fit, when
    Azure has another number of nodes than the stack's configuration asks for, when it has something else of
    the stack no more, and when that could not be asked.
    """
    from playbooks.nodes.health import fate_of, probe, unfit
    from playbooks.nodes.vm_ops import stopped
    from playbooks.stack.converge import present, wanted_of

    chosen = open_from(context, stack)
    outputs = chosen.outputs()
    questions: dict[str, Callable[[], Any]] = {
        "nodes": lambda: chosen.refresh(outputs),
        "rest": lambda: _beside_the_nodes(chosen),
    }
    asked = fan_out(lambda name: questions[name](), questions)
    inventory = asked["nodes"]
    if isinstance(inventory, Exception):
        raise inventory
    answers = probe(chosen, inventory, inventory.nodes)
    wrong: dict[str, Exception] = {name: a for name, a in answers.items() if isinstance(a, Exception)}
    wrong |= unfit(answers, {node.name: node.instance_id for node in inventory.nodes})
    rows = [
        NodeStatus(
            name=node.name,
            id=node.instance_id,
            address=f"{node.host}:{node.port}" if node.port else "",
            private_ip=node.private_ip,
            size=inventory.size,
            slots=node.slots,
            state=f"{node.state}, {fate}" if (fate := fate_of(answers[node.name])) else node.state,
            ssh=f"no: {answers[node.name]}".replace(f"no: {node.name}: ", "no: ")
            if isinstance(answers[node.name], Exception)
            else "yes",
        )
        for node in inventory.nodes
    ]
    if json:
        output.as_json(rows)
    else:
        output.table(
            ("name", "id", "address", "private", "size", "slots", "state", "ssh"),
            [(r.name, r.id, r.address, r.private_ip, r.size, r.slots, r.state, r.ssh) for r in rows],
        )
    troubles = _tell_rest(chosen, asked["rest"], output.progress if json else output.result)
    for name, error in wrong.items():
        if not isinstance(answers[name], Exception):  # those are in the table
            output.progress(str(error))
    wanted, there = wanted_of(chosen), len(present(inventory))
    if wanted is not None and wanted != there:
        mending = f"`fab up --stack {chosen.name}` mends that"
        otherwise = f", `fab scale {there}` leaves it so" if there else ""
        why = "" if there else stopped(chosen, outputs.scale_set_id)
        output.progress(f"{wanted} nodes are wanted, Azure has {there}{why}: {mending}{otherwise}")
    if wrong or troubles or wanted not in (None, there):
        raise Exit(code=1)


def _beside_the_nodes(stack: Stack) -> tuple[Drift | None, End | None]:
    from infra.preflight.stale import end_remembered
    from playbooks.pulumi.drift import look

    state = stack.state()
    return look(stack, None, state), end_remembered(state)


def _tell_rest(stack: Stack, found: Any, say: Callable[[str], None]) -> bool:
    """Says when the nodes' time is over and what is gone beside them; whether the latter is amiss."""
    if isinstance(found, RankliftError):
        output.progress(f"whether Azure has all else of the stack is not known: {found}")
        return True
    if isinstance(found, Exception):
        raise found
    drift, end = found
    if end is not None:
        hours = (end.at - datetime.now(UTC)).total_seconds() / _HOUR_S
        much = f"{hours:.1f} hours" if hours >= 1 else counted(round(60 * hours), "minute")
        left = (
            f"{much} {'is' if much.startswith('1 ') else 'are'} left until"
            if hours > 0
            else "their time is over since"
        )
        say(f"{left} {end}, when the nodes delete themselves")
    gone = () if drift is None else drift.gone
    for name in gone:
        output.progress(f"{name}: Azure has it no more: `fab up --stack {stack.name}` mends that")
    return bool(gone)


@command(
    "wait",
    example="fab wait --timeout 5m\n    fab wait train-20260301-090507-0f3a",
    help={
        "job": "wait for this job's end instead; may be repeated, and given without --job",
        "timeout": "give up after this many seconds (default: 10m for the nodes, never for a job); "
        "90s, 10m and 2h are understood too",
    },
    positional=["job"],
    iterable=["job"],
)
def wait(
    context: Context,
    job: list[str] | None = None,
    stack: str | None = None,
    timeout: str | None = None,
    json: bool = False,
) -> None:
    """Waits until every node answers, naming those that do not in time; with jobs, until they have ended.

    `fab wait JOB` says nothing until then and ends as the job does; of several, as the first of them that
    failed. When the time is over first, the exit status is 124 and the job goes on. A connection that breaks
    is made again for two minutes.
    """
    limit = None if timeout is None else seconds("--timeout", timeout)
    chosen = open_from(context, stack)
    if job:
        from playbooks.jobs.wait import wait_for_jobs

        wait_for_jobs(chosen, job, limit, json=json)
        return
    from playbooks.nodes.health import wait_for_nodes

    inventory = wait_for_nodes(chosen, limit or NODES_S)
    if json:
        output.as_json(inventory)


@command(
    "up",
    example="fab up --stack dev",
    help={"timeout": f"give up after this long (default: {_UP}); 90s, 10m and 2h are understood too"},
)
def up(context: Context, stack: str | None = None, timeout: str = _UP, dry_run: bool = False) -> None:
    """Makes or changes the cluster, and waits until every node answers.

    Runs `pulumi up --yes`; the stack is made if there is none of that name. What an earlier Pulumi that was
    killed had begun is mended first, and what was changed or deleted in Azure since is repaired. Of too many
    nodes idle ones go, never one with a job.
    """
    limit = seconds("--timeout", timeout)
    chosen = open_from(context, stack)
    chosen.settings()
    if dry_run:
        waiting = f"fab wait --stack {chosen.name} --timeout {timeout}"
        output.result(f"pulumi up --yes --stack {chosen.name}\n{waiting}")
        return
    from playbooks.nodes.health import wait_for_nodes
    from playbooks.stack.converge import build

    deadline = time.monotonic() + limit
    build(chosen, deadline)
    wait_for_nodes(chosen, max(1.0, deadline - time.monotonic()))


@command(
    "down",
    example="fab down --stack dev",
    help={
        "yes": "remove it without asking, whatever is lost with it",
        "timeout": f"give up after this long (default: {_UP}); 90s, 10m and 2h are understood too",
    },
)
def down(
    context: Context, stack: str | None = None, timeout: str = _UP, yes: bool = False, dry_run: bool = False
) -> None:
    """Removes the cluster and the keys kept of it here, and says what is left; may be repeated.

    Asks first where something would be lost: jobs that run or wait, results that were never collected, as
    far as the jobs' heads know, and whatever is on nodes that do not answer. Without a terminal it refuses
    then, with exit status 1 and one line, unless --yes is given.

    Runs `pulumi destroy --yes`; the stack's configuration and history stay. In the end the subscription is
    asked for all that carries the stack's tag, also where Pulumi has lost the stack: the exit status is 1
    when there is anything but what is kept on purpose (ranklift:retainData, or an account given back to the
    stack that made it), and then the keys stay too.
    """
    limit = seconds("--timeout", timeout)
    chosen = open_from(context, stack)
    arguments = ["destroy", "--yes", "--stack", chosen.name]
    if dry_run:
        kept = f"{chosen.folder}: its keys, ssh_config, inventory and notes of jobs are removed"
        output.result(f"pulumi {' '.join(arguments)}\n{kept}")
        return
    from infra.arm.clients import endpoint
    from playbooks.pulumi.recover import mend
    from playbooks.pulumi.run import again_and_again, pulumi
    from playbooks.stack.account import tell_left
    from playbooks.stack.teardown import given_up

    endpoint(chosen.environment)  # another cloud is refused before anything is destroyed
    if chosen.exists():
        deadline = time.monotonic() + limit
        mend(chosen, lambda words: pulumi(chosen, words))
        with given_up(chosen, limit, yes=yes):
            again_and_again(
                lambda: pulumi(chosen, arguments, limit=max(1.0, deadline - time.monotonic())), deadline
            )
    else:
        output.progress(f"Pulumi has no stack {chosen.name}: it has nothing to destroy")
    if not tell_left(chosen):
        # What is left may be nodes, of which Pulumi has lost its record: their keys stay.
        raise Exit(code=1)
    chosen.forget()
