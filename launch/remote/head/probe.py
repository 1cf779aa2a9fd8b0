"""The proof of transport before a job's first launch: its nodes and runners run another program, and every
connection that the program's libraries print has to be InfiniBand."""

from __future__ import annotations

import os
import socket
import time
from typing import Any, NamedTuple

from launch.remote.base import job_dir
from launch.remote.base.health_records import ProbeResult, ProbeVerdict
from launch.remote.base.records import Plan, Taken
from launch.remote.head.attempt import Attempt
from launch.remote.head.job_state import JobState, LaunchOrder
from launch.remote.head.outcome import Outcome, not_started
from launch.remote.log.writer import LAUNCHER
from launch.remote.probe import probe_plan, proven_nodes
from launch.remote.probe.probe_plan import Program
from launch.remote.probe.transport_stream import TransportStream
from launch.remote.probe.transport_verdict import Verdict

__all__ = ["Probed", "after_look", "probe_transport"]

_REHEARSAL = "rehearsal"
"""In place of a subject, where nodes are remembered because there is nothing to prove."""
_NO_FABRIC = "rehearsed nodes have no InfiniBand; --probe runs the probe, which refuses the job there"


class Probed(NamedTuple):
    """What a probe leads to."""

    kept: Outcome | Taken | None
    """What keeps the job from its launch; None where nothing does."""
    looked: bool = False
    """Whether each node was looked at, and may start ranks."""


def after_look(order: LaunchOrder) -> LaunchOrder:
    """Return the order for nodes that this launch has looked at already: a look takes up to 2 s."""
    return order._replace(plan={**order.plan, "health": {**order.plan["health"], "mode": "off"}})


def probe_transport(order: LaunchOrder, state: JobState) -> Probed:
    """Prove the way between the nodes, where that is due."""
    plan, proven = order.plan, proven_nodes.read()
    programs = probe_plan.programs_of(plan)
    if plan["probe"]["mode"] == "auto":
        subjects = (
            [_REHEARSAL]
            if plan["probe"]["rehearsal"]
            else [probe_plan.subject_of(plan, one) for one in programs]
        )
        known = next(filter(None, (proven_nodes.find(proven, plan, name) for name in subjects)), None)
        if known is not None and known["subject"] != _REHEARSAL:
            order.folder.event("probe", **_result("proven", known["transport"], f"by job {known['job']}"))
        elif known is None and subjects == [_REHEARSAL]:
            order.folder.event("probe", **_result("omitted", reason=_NO_FABRIC))
            proven_nodes.remember(proven, plan, _REHEARSAL, "")
        if known is not None or subjects == [_REHEARSAL]:
            return Probed(None)
    state.set_probing()
    began, reasons = time.monotonic(), []
    for program in programs:
        is_first = program is programs[0]
        result, verdict = _run(order if is_first else after_look(order), state, program)
        if not isinstance(result, Outcome):
            return Probed(result)
        if result.state == "CANCELLED" or (is_first and not result.ran):
            result.ran = False  # what kept the probe from its start would keep the job
            return Probed(result)
        if verdict.verdict != "refused" and result.state != "SUCCEEDED":
            verdict = _failed(result, program.name)
        reasons.append(verdict.reason)
        if verdict.verdict != "unproven" or result.exit_status != probe_plan.NOTHING_TO_RUN:
            break
    verdict = verdict._replace(reason=verdict.reason if verdict.lines else "; ".join(reasons))
    found = _result(verdict.verdict, verdict.transport, verdict.reason)
    found["seconds"], found["lines"] = round(time.monotonic() - began, 1), verdict.lines
    _record(order, found)
    if verdict.verdict == "proven":
        proven_nodes.remember(proven, plan, probe_plan.subject_of(plan, program), verdict.transport)
        return Probed(None, looked=True)
    if verdict.verdict == "unproven" and plan["probe"]["mode"] == "auto":
        return Probed(None, looked=True)  # nothing speaks against InfiniBand; no probe fits every framework
    return Probed(_refusal(plan, verdict))


def _record(order: LaunchOrder, found: ProbeResult) -> None:
    """Keep a result with the job, and print it."""
    order.folder.event("probe", **found)
    words = found["transport"] or f"not proven ({found['verdict']})"
    line = f"transport: {words}" + (f": {found['reason']}" if found["reason"] else "")
    order.stream.write(LAUNCHER, 0, 2, line.encode() + b"\n")


def _run(order: LaunchOrder, state: JobState, program: Program) -> tuple[Outcome | Taken, Verdict]:
    plan = probe_plan.make(order.plan, program)
    folder = _ProbeFolder(order.folder)
    os.makedirs(folder.path, mode=0o700, exist_ok=True)
    names = [node["name"] for node in plan["nodes"]]
    stream = TransportStream(folder.path, names, plan["health"]["promise"], reads_all=True)
    try:
        port = _free_port(plan["master_addr"])  # connections of the probe may be left on its port
        launched = order._replace(folder=folder, plan=plan, stream=stream, port=port)
        attempt = Attempt(launched, _ProbeState(state))
        result = attempt.run()
        if isinstance(result, Outcome) and result.ran:
            attempt.health.write(order.stream)  # the job's own launch does not look again
    finally:
        stream.close()
    ranks = {given["rank"]: node["name"] for node in plan["nodes"] for given in node["ranks"]}
    return result, stream.evidence.verdict(ranks, is_by_node=program.is_by_node)


def _free_port(address: str) -> int:
    with socket.socket() as one:
        one.bind((address, 0))
        return int(one.getsockname()[1])


def _failed(result: Outcome, program: str) -> Verdict:
    """Return the verdict where the probe itself failed."""
    failure = result.failure
    node = "" if failure is None else failure["node"] or ""
    lines = [] if failure is None else failure["last_lines"][-1:]
    reason = "; ".join([f"the probe by {program} failed: {result.reason}", *lines])
    return Verdict("unproven", "", reason, node, [])


def _refusal(plan: Plan, verdict: Verdict) -> Outcome:
    size = plan["health"]["promise"]["size"]
    reason = (
        f"{verdict.reason}; {size} promises InfiniBand between nodes: to run without it, launch with "
        "--no-probe (ranklift.probe: false)"
    )
    node = verdict.node or plan["nodes"][0]["name"]
    return not_started(node, reason, [line["line"] for line in verdict.lines])


def _result(verdict: ProbeVerdict, transport: str = "", reason: str = "") -> ProbeResult:
    return {
        "source": "probe",
        "verdict": verdict,
        "transport": transport,
        "reason": reason,
        "seconds": 0.0,
        "lines": [],
    }


class _ProbeFolder(job_dir.Folder):
    """A folder in the job's, with records of its own; the job's cancel request counts, and what looks find
    is the job's."""

    def __init__(self, job: job_dir.Folder) -> None:
        super().__init__(os.path.join(job.job, probe_plan.FOLDER))
        self._of_job = job

    def file(self, name: str) -> str:
        """Return the path of a file in the folder, or of the job's own."""
        return self._of_job.file(name) if name in ("cancel", "job.json") else super().file(name)

    def event(self, what: str, **fields: Any) -> None:
        """Append an event, what a look found to the job's."""
        if what == "health":
            self._of_job.event(what, **fields)
        else:
            super().event(what, **fields)


class _ProbeState(JobState):
    """The job's state meanwhile, which the probe's ranks do not change."""

    def __init__(self, job: JobState) -> None:
        self._of_job = job

    def set_held(self, port: int) -> None:
        """Record nothing: the job's own runners will hold the slots."""

    def set_running(self, port: int, reason: str) -> None:
        """Record nothing: no rank of the job runs."""

    def set_ending(self) -> None:
        """Record nothing: the probe ends."""
