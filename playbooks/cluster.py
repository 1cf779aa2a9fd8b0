"""The stack as a whole: ``up``, ``down``, ``status``, ``wait``."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from invoke.context import Context
from invoke.exceptions import Exit

from infra.inventory import Inventory, Node
from launch.errors import HostKeyChanged, InputError, ManyNodesError, NodeUnreachable
from playbooks import render
from playbooks.command import command, open_from, seconds
from playbooks.fanout import fan_out
from playbooks.project import Stack
from playbooks.unfinished import mend

__all__ = ["NodeStatus", "down", "probe", "status", "up", "wait", "wait_for_nodes"]

PROBE_S = 20.0
"""How long one node may take to answer one question."""
PAUSE_S = 1.0
NODES_S = 600.0
"""How long nodes are waited for unless the user says."""
REREAD_S = 5.0
"""How often Azure is asked again while nodes are missing."""


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


def probe(stack: Stack, inventory: Inventory, nodes: Sequence[Node]) -> dict[str, Exception | None]:
    """Asks every node for a sign of life; ``None`` for each that gave it."""
    from playbooks.connections import Cluster

    by_name = {node.name: node for node in nodes}
    with Cluster(inventory, stack.folder) as cluster:

        def ask(name: str) -> None:
            with cluster.host(by_name[name]) as host:
                host.run(["true"], timeout=PROBE_S)

        return fan_out(ask, by_name, what="the answer", timeout=PROBE_S + 1)


def wait_for_nodes(stack: Stack, limit: float) -> Inventory:
    """Returns when Azure has as many nodes as the stack wants and each answers.

    Raises :class:`~launch.errors.ManyNodesError` naming those that did not within ``limit`` seconds, and
    :class:`~launch.errors.HostKeyChanged` at once: waiting mends no key.
    """
    deadline = time.monotonic() + limit
    outputs = stack.outputs()
    inventory = stack.refresh(outputs)
    asked = time.monotonic()
    answers: dict[str, Exception | None] = {}
    told = -1
    while True:
        missing = [node for node in inventory.nodes if answers.get(node.name, node) is not None]
        answers |= probe(stack, inventory, missing)
        present = {node.name: answers[node.name] for node in inventory.nodes}
        for answer in present.values():
            if isinstance(answer, HostKeyChanged):
                raise answer
        good = sum(answer is None for answer in present.values())
        if good == len(present) and good >= outputs.node_count:
            render.progress(f"{good} of {outputs.node_count} nodes answer")
            return inventory
        if good != told:
            render.progress(f"{good} of {outputs.node_count} nodes answer")
            told = good
        if time.monotonic() > deadline:
            raise _missing(outputs.node_count, present)
        time.sleep(PAUSE_S)
        if time.monotonic() - asked > REREAD_S:
            inventory = stack.refresh(outputs)
            asked = time.monotonic()


@command("status", example="fab status --stack dev")
def status(context: Context, stack: str | None = None, json: bool = False) -> None:
    """Shows the nodes as Azure has them now, and whether each answers; exit status 1 when one does not."""
    chosen = open_from(context, stack)
    inventory = chosen.refresh(chosen.outputs())
    answers = probe(chosen, inventory, inventory.nodes)
    rows = [
        NodeStatus(
            name=node.name,
            id=node.instance_id,
            address=f"{node.host}:{node.port}" if node.port else "",
            private_ip=node.private_ip,
            size=inventory.size,
            slots=node.slots,
            state=node.state,
            ssh="yes" if answers[node.name] is None else f"no: {_reason(node.name, answers[node.name])}",
        )
        for node in inventory.nodes
    ]
    if json:
        render.as_json(rows)
    else:
        render.table(
            ("name", "id", "address", "private", "size", "slots", "state", "ssh"),
            [(r.name, r.id, r.address, r.private_ip, r.size, r.slots, r.state, r.ssh) for r in rows],
        )
    if any(answers.values()):
        raise Exit(code=1)


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
        from playbooks.waiting import wait_for_jobs

        wait_for_jobs(chosen, job, limit, json=json)
        return
    inventory = wait_for_nodes(chosen, limit or NODES_S)
    if json:
        render.as_json(inventory)


@command("up", example="fab up --stack dev", help={"timeout": "how long to wait for the nodes afterwards"})
def up(context: Context, stack: str | None = None, timeout: str = "10m", dry_run: bool = False) -> None:
    """Makes or changes the cluster, and waits until every node answers.

    Runs `pulumi up --yes`; the stack is made if there is none of that name. What an earlier Pulumi that was
    killed had begun is mended first.
    """
    limit = seconds("--timeout", timeout)
    chosen = open_from(context, stack)
    if not chosen.configuration.exists():
        # Pulumi would make the stack all the same, and a file for it that holds nothing but a salt.
        raise InputError(
            "stack",
            chosen.name,
            f"it has no {chosen.configuration.name} in {chosen.project}",
            "check the name, or write that file first: README.md says what goes into it",
        )
    arguments = ["up", "--yes", "--stack", chosen.name]
    if dry_run:
        render.result(f"pulumi {' '.join(arguments)}\nfab wait --stack {chosen.name} --timeout {timeout}")
        return
    if chosen.exists():
        mend(chosen, lambda words: _pulumi(chosen, words))
    else:
        _pulumi(chosen, ["stack", "init", chosen.name])
    _pulumi(chosen, arguments)
    wait_for_nodes(chosen, limit)


@command("down", example="fab down --stack dev")
def down(context: Context, stack: str | None = None, dry_run: bool = False) -> None:
    """Removes the cluster and the keys kept of it here; may be repeated.

    Runs `pulumi destroy --yes`; the stack's configuration and history stay.
    """
    chosen = open_from(context, stack)
    arguments = ["destroy", "--yes", "--stack", chosen.name]
    if dry_run:
        render.result(f"pulumi {' '.join(arguments)}\nrm -r {chosen.folder}")
        return
    if chosen.exists():
        mend(chosen, lambda words: _pulumi(chosen, words))
        _pulumi(chosen, arguments)
    else:
        render.progress(f"there is no stack {chosen.name}: nothing to destroy")
    # Last, because the keys may still be wanted as long as a node is there.
    chosen.forget()


def _pulumi(stack: Stack, arguments: Sequence[str]) -> None:
    render.command(["pulumi", *arguments])
    try:
        exit_status = stack.pulumi(*arguments)
    except KeyboardInterrupt:
        render.progress(
            f"interrupted; what Pulumi had begun is known to it: `fab up --stack {stack.name}` goes on from "
            f"there, `fab down --stack {stack.name}` removes it"
        )
        raise Exit(code=130) from None
    if exit_status != 0:
        # Pulumi has said why.
        raise Exit(code=exit_status if exit_status > 0 else 128 - exit_status)


def _reason(name: str, error: Exception | None) -> str:
    return str(error).removeprefix(f"{name}: ")


def _missing(wanted: int, answers: Mapping[str, Exception | None]) -> ManyNodesError:
    everyone: dict[str, Exception | None] = dict(answers)
    for number in range(len(answers), wanted):
        everyone[f"(node {number + 1} of {wanted})"] = NodeUnreachable(
            f"(node {number + 1} of {wanted})", "Azure has not made it yet"
        )
    return ManyNodesError("waiting", everyone)
