"""The state of the cluster: ``status``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from invoke.context import Context
from invoke.exceptions import Exit

from launch.errors import RankliftError
from launch.numbers import counted
from playbooks.cli import output
from playbooks.cli.task import command, open_from
from playbooks.project import Stack
from playbooks.ssh.fanout import ask_all

if TYPE_CHECKING:
    from infra.preflight.stale import End
    from infra.scale_plan import Drift
    from launch.remote.base.health_records import Finding

__all__ = ["NodeStatus", "status"]

_HOUR_S = 3600.0
_RANK = ("name", "state", "ssh", "id", "address", "private", "slots", "size")
"""Columns by importance: a narrow terminal gets the first that fit."""


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """A row of ``fab status``."""

    name: str
    id: int
    address: str
    """Host and port for the operator's ssh."""
    private_ip: str
    size: str
    slots: int
    state: str
    ssh: str
    """``yes``, or ``no:`` and the reason."""
    findings: tuple[Finding, ...]
    """What a look at its devices found; empty for a node that does not answer."""
    drain: str
    """Since when no new job takes it, and whose word that is; empty if it is not drained."""


@command(
    "status",
    example="fab status --stack dev",
    help={"wide": "print all columns, however wide the terminal is"},
)
def status(context: Context, stack: str | None = None, wide: bool = False, json: bool = False) -> None:
    """Show the nodes as Azure has them now, and whether each is ready for jobs.

    With ranklift:ttlHours it prints when their time is over, with ranklift:monitor whether their metrics
    reach Azure Monitor. The exit status is 1 when a node is not ready, when Azure has another number of nodes
    than the stack's configuration asks for, when another resource of the stack is missing in Azure, and when
    Azure could not be queried.
    """
    from playbooks.nodes import vm_ops
    from playbooks.nodes.health import drain_of, fate_of, is_settled, probe, remarks, unfit
    from playbooks.nodes.look import errors_of, finding_lines, findings_of, look
    from playbooks.nodes.monitor_status import monitor_lines
    from playbooks.stack.converge import present, wanted_of

    chosen = open_from(context, stack)
    outputs = chosen.outputs()
    answer = ask_all({"nodes": lambda: vm_ops.refresh(chosen, outputs), "rest": lambda: _rest(chosen)})
    inventory = answer["nodes"]
    if isinstance(inventory, Exception):
        raise inventory
    answers = probe(chosen, inventory, inventory.nodes)
    wrong: dict[str, Exception] = {name: a for name, a in answers.items() if isinstance(a, Exception)}
    ids = {node.name: node.instance_id for node in inventory.nodes}
    wrong |= unfit(answers, ids)
    ready = [node for node in inventory.nodes if node.name not in wrong and is_settled(answers[node.name])]
    looks = look(chosen, inventory, ready)
    wrong |= {name: a for name, a in looks.items() if isinstance(a, Exception)} | errors_of(looks, ids)
    rows = [
        NodeStatus(
            name=node.name,
            id=node.instance_id,
            address=f"{node.host}:{node.port}" if node.port else "",
            private_ip=node.private_ip,
            size=inventory.size,
            slots=node.slots,
            state=", ".join(filter(None, (node.state, fate_of(answer), drain_of(answer) and "drained"))),
            ssh=f"no: {answer}".replace(f"no: {node.name}: ", "no: ")
            if isinstance(answer, Exception)
            else "yes",
            findings=findings_of(looks.get(node.name)),
            drain=drain_of(answer),
        )
        for node, answer in ((node, answers[node.name]) for node in inventory.nodes)
    ]
    if json:
        output.as_json(rows)
    elif rows:
        output.table(
            ("name", "id", "address", "private", "size", "slots", "state", "ssh"),
            [(r.name, r.id, r.address, r.private_ip, r.size, r.slots, r.state, r.ssh) for r in rows],
            rank=_RANK,
            needed=3,
            folds="ssh",
            wide=wide,
        )
    report = output.progress if json else output.result
    is_lacking = _report_rest(chosen, answer["rest"], report)
    for line in monitor_lines(chosen, inventory, ready):
        report(line)
    for name, error in wrong.items():
        if not isinstance(answers[name], Exception):  # those are in the table
            output.progress(str(error))
    for line in [*remarks(answers), *finding_lines(looks)]:
        output.progress(line)
    wanted, there = wanted_of(chosen), len(present(inventory))
    if wanted is not None and wanted != there:
        change = f"adds {wanted - there}" if there < wanted else f"removes {there - wanted}"
        keep = f", `fab scale {there}` keeps {there}" if there else ""
        why = "" if there else vm_ops.stopped(chosen, outputs.scale_set_id)
        output.progress(
            f"configured for {counted(wanted, 'node')}, Azure has {there}{why}: "
            f"`fab up --stack {chosen.name}` {change}{keep}"
        )
    if wrong or is_lacking or wanted not in (None, there):
        raise Exit(code=1)


def _rest(stack: Stack) -> tuple[Drift | None, End | None]:
    """Return what else Azure lacks of the stack, and when the nodes' time is over."""
    from infra.preflight.stale import end_remembered
    from playbooks.pulumi.drift import find_drift

    state = stack.state()
    return find_drift(stack, None, state), end_remembered(state)


def _report_rest(stack: Stack, found: Any, report: Callable[[str], None]) -> bool:
    """Report when the nodes' time is over and what else is missing; return whether anything is."""
    if isinstance(found, RankliftError):
        output.progress(f"whether Azure has the stack's other resources is unknown: {found}")
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
            else "their lifetime ended at"
        )
        report(f"{left} {end}, when the nodes delete themselves")
    gone = () if drift is None else drift.gone
    for name in gone:
        output.progress(f"{name}: Azure no longer has it: `fab up --stack {stack.name}` repairs that")
    return bool(gone)
