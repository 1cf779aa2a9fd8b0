"""The state of the cluster: ``status``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
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
    from infra.inventory import Inventory, Node
    from infra.preflight.stale import End
    from infra.scale_plan import Drift
    from launch.host import Host
    from launch.remote.base.health_records import Finding

__all__ = ["NodeStatus", "idle_stop_lines", "idle_words", "report_idle_stop", "status"]

_HOUR_S = 3600.0
_ANSWER_S = 10.0
"""Limit of one node's answer on how long it has been idle."""
_WATCH = "/usr/local/lib/ranklift/watch.py"
"""The nodes' agent, where cloud-init puts it."""
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

    With ranklift:ttlHours it prints when their time is over, with ranklift:idleStopMinutes when they are
    deleted unless a job runs, with ranklift:monitor whether their metrics reach Azure Monitor. The exit
    status is 1 when a node is not ready, when Azure has another number of nodes than the stack's
    configuration asks for, when another resource of the stack is missing in Azure, and when Azure could not
    be queried.
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
    is_lacking, idle_minutes = _report_rest(chosen, answer["rest"], report)
    for line in (
        *idle_stop_lines(chosen, inventory, ready, idle_minutes),
        *monitor_lines(chosen, inventory, ready),
    ):
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


def _rest(stack: Stack) -> tuple[Drift | None, End | None, float | None]:
    """Return what else Azure lacks of the stack, when the nodes' time is over, and after how many minutes
    without a job they are deleted."""
    from infra.preflight.stale import end_remembered, idle_minutes_remembered
    from playbooks.pulumi.drift import find_drift

    state = stack.state()
    return find_drift(stack, None, state), end_remembered(state), idle_minutes_remembered(state)


def _report_rest(stack: Stack, found: Any, report: Callable[[str], None]) -> tuple[bool, float | None]:
    """Report when the nodes' time is over and what else is missing; return whether anything is, and after how
    many idle minutes nodes are deleted."""
    if isinstance(found, RankliftError):
        output.progress(f"whether Azure has the stack's other resources is unknown: {found}")
        return True, None
    if isinstance(found, Exception):
        raise found
    drift, end, idle_minutes = found
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
    return bool(gone), idle_minutes


def idle_stop_lines(
    stack: Stack, inventory: Inventory, ready: Sequence[Node], minutes: float | None
) -> list[str]:
    """Return when the nodes are deleted unless a job runs, in a line; none where they are not (``minutes`` is
    None). ``ready`` are the nodes that can be asked."""
    if minutes is None or not inventory.nodes:
        return []
    from launch.remote.agent.idleness import numbers
    from playbooks.ssh.connection import Cluster
    from playbooks.ssh.fanout import fan_out_hosts

    def query(host: Host) -> dict[str, float]:
        return numbers(host.run(["python3", "-I", "-S", _WATCH, "idle"], timeout=_ANSWER_S).stdout)

    answers: dict[str, dict[str, float]] = {node.name: {} for node in inventory.nodes}
    with Cluster(inventory, stack.folder) as cluster:
        found = fan_out_hosts(
            cluster.host, ready, query, what="reading how long it has been idle", timeout=_ANSWER_S + 1
        )
    answers |= {name: answer for name, answer in found.items() if isinstance(answer, dict)}
    return [idle_words(answers, minutes, datetime.now(UTC))]


def report_idle_stop(stack: Stack, inventory: Inventory) -> None:
    """Report when the nodes are deleted unless a job runs, after a change of the cluster by its settings."""
    from infra.config.limits import idle_stop_minutes

    key = "ranklift:idleStopMinutes"
    value = stack.settings().get(key)
    minutes = None if value is None else idle_stop_minutes(key, value)
    for line in idle_stop_lines(stack, inventory, inventory.nodes, minutes):
        output.progress(line)


def idle_words(answers: Mapping[str, Mapping[str, float]], minutes: float, now: datetime) -> str:
    """Return when the nodes are deleted unless a job runs, by their agents' answers.

    >>> idle_words({"a": {"idle_s": 780.0, "leads": 1}}, 30, datetime(2026, 3, 1, 9, 0, tzinfo=UTC))
    '17 minutes are left until 2026-03-01 09:17 UTC (ranklift:idleStopMinutes is 30), when the nodes are \
deleted unless a job runs or waits'
    """
    from launch.moments import utc
    from launch.nodeset import fold
    from launch.remote.agent.idleness import idleness

    setting = f"ranklift:idleStopMinutes is {minutes:g}"
    known = [one["used_s"] for one in answers.values() if one.get("leads") and "used_s" in one]
    wait_s, _, silent, obstacle = idleness(answers, {}, 0.0, 60 * minutes, min(known, default=None))
    if any(one.get("idle_s") == 0 and not one.get("new") for one in answers.values()):
        return (
            f"a job runs or waits: the nodes are deleted {minutes:g} minutes after the last one ({setting})"
        )
    if len(silent) * 2 > len(answers):
        return f"when the nodes are deleted is unknown: {obstacle} ({setting})"
    wait_s = min(wait_s, 60 * minutes)
    left = counted(round(wait_s / 60), "minute")
    at = utc(now + timedelta(seconds=wait_s), seconds=False)
    line = (
        f"{'at least ' if silent else ''}{left} {'is' if left.startswith('1 ') else 'are'} left until "
        f"{at} ({setting}), when the nodes are deleted unless a job runs or waits"
    )
    if silent:
        line += f"; no answer from {fold(silent)}, which counts as busy for as long"
    if not any(one.get("leads") for one in answers.values()):
        log = "`fab exec 'tail -n 5 .ranklift/agent/watch.log'` shows why not"
        line += f"; no node has confirmed yet that it can delete them, minutes after its boot {log}"
    return line
