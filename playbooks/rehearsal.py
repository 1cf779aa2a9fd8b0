"""Tasks of Azure on this machine: ``rehearsal.start``, ``stop``, ``status``, ``env``, ``fault``."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import get_args

from invoke.context import Context

from launch.errors import InputError
from launch.nodeset import parse_nodes
from launch.numbers import counted
from playbooks.cli import output
from playbooks.cli.options import number
from playbooks.cli.task import command, open_from, project_of
from playbooks.cli.task import seconds as duration_of
from playbooks.nodes.choose import choose_nodes
from playbooks.pulumi.scratch import remove_abandoned
from rehearsal.faults.fault_kinds import KINDS, fault_spec

__all__ = ["env", "fault", "start", "status", "stop"]


@command(
    "start",
    example="fab rehearsal.start --nodes-limit 64",
    help={
        "nodes-limit": "highest number of nodes (default: what this machine's memory holds, at most 300)",
        "node-python": "virtual environment that comes first in the nodes' PATH (default: none)",
    },
)
def start(
    context: Context, nodes_limit: str | None = None, node_python: str | None = None, dry_run: bool = False
) -> None:
    """Start Azure on this machine, for stacks named rehearsal or rehearsal-…."""
    from rehearsal import control

    project = project_of(context)
    limit = (
        None
        if nodes_limit is None
        else number("--nodes-limit", nodes_limit, "nodes", "give 1 or more", low=1, high=1000)
    )
    python = None if node_python is None else Path(node_python).expanduser()
    if dry_run:
        output.steps(control.start_steps(project, limit, python), json=False)
        return
    remove_abandoned(project)
    started = control.start(project, limit, python)
    for line in started.cleaned:
        output.progress(f"removed, left by a killed rehearsal: {line}")
    record = started.record
    output.result(
        f"rehearsal runs as process {record.pid}: up to {counted(record.nodes_limit, 'node')}, ARM on port "
        f"{record.arm_port}, provider on port {record.provider_port}"
    )


@command("stop", example="fab rehearsal.stop")
def stop(context: Context, dry_run: bool = False) -> None:
    """Stop the rehearsal with everything in it, and prove that nothing is left."""
    from rehearsal import control

    project = project_of(context)
    if dry_run:
        output.steps(control.stop_steps(project) or ["no rehearsal runs here"], json=False)
        return
    remove_abandoned(project)
    report = control.stop(project)
    if not report.ran:
        for line in report.cleaned:
            output.progress(f"removed, left by a killed rehearsal: {line}")
        output.result("no rehearsal runs here")
        return
    for stack in report.lost_stacks:
        output.progress(f"removed with the rehearsal: stack {stack}")
    output.result(
        f"rehearsal stopped; verified gone: {counted(report.processes, 'process')}, "
        f"{counted(report.networks, 'network')}, {counted(report.ports, 'port')} and its folder; "
        "no mounts left"
    )


@command("status", example="fab rehearsal.status --json")
def status(context: Context, json: bool = False) -> None:
    """Show the networks and nodes of the rehearsal. Exit status 1 when none runs."""
    from invoke.exceptions import Exit

    from rehearsal import control

    found = control.status(project_of(context))
    if json:
        output.as_json(found)
    elif not found.running or found.record is None:
        output.result("no rehearsal runs here")
        for line in found.leftovers:
            output.result(f"left by a killed rehearsal: {line}")
    else:
        output.result(f"rehearsal runs as process {found.record.pid}, up to {found.record.nodes_limit} nodes")
        for network, its in (found.networks or {}).items():
            cut = f", {len(its['cut'])} cut off" if its["cut"] else ""
            dead = len(its["nodes"]) - len(its["running"])
            lost = f", {dead} dead" if dead else ""
            output.result(f"{network}: {len(its['running'])} of {len(its['nodes'])} nodes run{cut}{lost}")
    if not found.running:
        raise Exit(code=1)


@command("env", example='eval "$(fab rehearsal.env)"; pulumi up')
def env(context: Context) -> None:
    """Print the exports that make plain pulumi use the rehearsal."""
    from rehearsal.run_dir import Folder

    for key, value in Folder(project_of(context)).environment().items():
        output.result(f"export {key}={shlex.quote(value)}")


@command(
    "fault",
    example="fab rehearsal.fault evict --nodes 2",
    help={
        "kind": "; ".join(f"{kind.name}: {kind.does}" for kind in KINDS.values())
        + "; clear: clear all; without a kind: list them",
        "nodes": "names, instance ids and ranges of both: 0-3,node000007; all; any:2",
        "after": "number of requests, operations or nodes that pass first",
        "count": "number of hits (default: the kind's, else until it is cleared)",
        "rate": "MB per second; of a link, Gb/s",
        "state": "of a device: see its kind",
        "device": "place of the InfiniBand device or GPU on its node (default: 0, the first)",
        "counter": "file below the device's ports/1/counters, or carrier_down_count",
        "code": "of the Xid, such as 79",
        "seconds": "length of a notice, a pause or an outage; for clock, how far it is off",
    },
    positional=["kind"],
    iterable=["kind"],
)
def fault(  # noqa: PLR0913, PLR0917 - its parameters are its options
    context: Context,
    kind: list[str] | None = None,
    nodes: str | None = None,
    after: str | None = None,
    count: str | None = None,
    seconds: str | None = None,
    rate: str | None = None,
    state: str | None = None,
    device: str | None = None,
    counter: str | None = None,
    code: str | None = None,
    stack: str | None = None,
    dry_run: bool = False,
) -> None:
    """Inject, list or clear faults of the rehearsed Azure and its nodes."""
    from rehearsal import control
    from rehearsal.vms.api import VmFault

    if dry_run and kind == ["clear"]:
        output.result("clear all faults")
        return
    if not kind or kind == ["clear"]:
        _list_or_clear(context, cleared=bool(kind))
        return
    if len(kind) > 1:
        raise InputError("kind", " ".join(kind), "more than one kind", "give one kind at a time")
    (name,) = kind
    wanted = fault_spec(
        name,
        nodes=() if nodes is None else _numbers(context, stack, nodes),
        after=number("--after", after, "times") if after is not None else None,
        count=number("--count", count, "times") if count is not None else None,
        seconds=_seconds(seconds) if seconds is not None else None,
        rate=number("--rate", rate, "MB per second", "give 1 or more", low=1) if rate is not None else None,
        state=state,
        device=number("--device", device, "devices") if device is not None else None,
        counter=counter,
        code=number("--code", code, "Xids", "give 1 or more", low=1) if code is not None else None,
    )
    chosen = open_from(context, stack)
    if dry_run:
        where = "" if nodes is None else f", on nodes {nodes}"
        output.result(f"in stack {chosen.name}{where}: {name}, {KINDS[name].does}")
        return
    if name in get_args(VmFault):
        names = [node.name for node in choose_nodes(chosen.saved(), nodes)]
        link: dict[str, VmFault] = {one: one for one in get_args(VmFault)}
        control.inject_vm_fault(chosen.project, chosen.name, names, link[name])
    else:
        names = control.inject(chosen.project, chosen.name, wanted)
    output.result(f"{name}: {', '.join(names)}" if names else f"set: {KINDS[name].does}")


def _list_or_clear(context: Context, *, cleared: bool) -> None:
    from rehearsal import control

    project = project_of(context)
    if cleared:
        found = control.clear_faults(project)
        output.result(f"cleared: {', '.join(found)}" if found else "nothing was set")
        return
    for line in control.list_faults(project) or ["no fault is set"]:
        output.result(line)


def _numbers(context: Context, stack: str | None, nodes: str) -> tuple[int, ...]:
    """Return instance ids, which need not exist: some faults are for nodes that are still to be created."""
    if found := parse_nodes(nodes).numbers:
        return found
    return tuple(node.instance_id for node in choose_nodes(open_from(context, stack).saved(), nodes))


def _seconds(text: str) -> float:
    """Return a span of time in seconds, which may be negative.

    >>> _seconds("-2m")
    -120.0
    """
    back = text.startswith("-")
    return duration_of("--seconds", text.removeprefix("-")) * (-1 if back else 1)
