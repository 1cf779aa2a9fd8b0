"""The proof of transport before a job's first launch: its nodes and runners run another program, and every
connection that the program's libraries print has to be InfiniBand."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from launch.remote.base import frames, job_dir
from launch.remote.base.health_records import ProbeResult, ProbeVerdict, Promise
from launch.remote.base.records import Plan, Taken
from launch.remote.head.attempt import Attempt
from launch.remote.head.job_state import JobState, LaunchOrder
from launch.remote.head.outcome import NOT_FOUND, Outcome, not_started, unfinished
from launch.remote.head.shutdown import Stop
from launch.remote.log.writer import LAUNCHER
from launch.remote.probe import probe_plan, proven_nodes
from launch.remote.probe.probe_limit import ProbeLimit
from launch.remote.probe.probe_plan import Program
from launch.remote.probe.transport_stream import TransportStream
from launch.remote.probe.transport_verdict import Verdict

__all__ = ["Probed", "after_look", "probe_transport"]

_REHEARSAL = "rehearsal"
"""In place of a subject, where nodes are remembered because there is nothing to prove."""
_NO_FABRIC = "rehearsed nodes have no InfiniBand; --probe runs the probe, which refuses the job there"


_REMEDY = "to run without it, launch with --no-probe (ranklift.probe: false)"
_AGAIN = (
    "a probe that does not come to a good end proves nothing: launch again; to start the job unproven, over "
    "whatever network its ranks find, launch with --no-probe (ranklift.probe: false)"
)


class Probed(NamedTuple):
    """What a probe leads to."""

    kept: Outcome | Taken | None
    """What keeps the job from its launch; None where nothing does."""
    looked: bool = False
    """Whether each node was looked at, and may start ranks."""
    networks: dict[str, str] = {}  # noqa: RUF012
    """The marks of the nodes' networks with which InfiniBand is proven."""


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
            proven_nodes.remember(proven, plan, _REHEARSAL, "", {})
        if known is not None or subjects == [_REHEARSAL]:
            return Probed(None, networks={} if known is None else known["networks"])
    state.set_probing()
    began, reasons = time.monotonic(), []
    networks: dict[str, str] = {}
    for program in programs:
        is_first = program is programs[0]
        result, verdict, marks = _run(order if is_first else after_look(order), state, program)
        networks = networks or marks  # the first program is started as the job is
        if not isinstance(result, Outcome):
            return Probed(result)
        is_over = result.state == "CANCELLED" or result.was_timed_out
        if is_over or (is_first and not result.ran):
            result.ran = False  # what kept the probe from its start would keep the job
            return Probed(result)
        reasons.append(verdict.reason)
        if verdict.verdict != "unproven" or result.state == "SUCCEEDED":
            break
    verdict = verdict._replace(reason=verdict.reason if verdict.lines else "; ".join(reasons))
    found = _result(verdict.verdict, verdict.transport, verdict.reason)
    found["seconds"], found["lines"] = round(time.monotonic() - began, 1), verdict.lines
    _record(order, found)
    if verdict.verdict == "proven":
        proven_nodes.remember(proven, plan, probe_plan.subject_of(plan, program), verdict.transport, networks)
        return Probed(None, looked=True, networks=networks)
    if verdict.verdict == "unproven" and plan["probe"]["mode"] == "auto":
        return Probed(None, looked=True)  # nothing speaks against InfiniBand; no probe fits every framework
    return Probed(_refusal(plan, verdict))


def _record(order: LaunchOrder, found: ProbeResult) -> None:
    """Keep a result with the job, and print it."""
    order.folder.event("probe", **found)
    words = found["transport"] or "not proven" + f" ({found['verdict']})" * (found["verdict"] != "unproven")
    line = f"transport: {words}" + (f": {found['reason']}" if found["reason"] else "")
    order.stream.write(LAUNCHER, 0, 2, line.encode() + b"\n")


def _run(
    order: LaunchOrder, state: JobState, program: Program
) -> tuple[Outcome | Taken, Verdict, dict[str, str]]:
    plan = probe_plan.make(order.plan, program)
    folder = _ProbeFolder(order.folder)
    os.makedirs(folder.path, mode=0o700, exist_ok=True)
    names = [node["name"] for node in plan["nodes"]]
    limit = ProbeLimit()
    stream = _ProbeStream(folder.path, names, plan["health"]["promise"], limit)
    try:
        port = _free_port(plan["master_addr"])  # connections of the probe may be left on its port
        launched = order._replace(folder=folder, plan=plan, stream=stream, port=port)
        attempt = _ProbeAttempt(launched, _ProbeState(state), limit)
        result = attempt.run()
        if isinstance(result, Outcome) and result.ran:
            attempt.health.write(order.stream)  # the job's own launch does not look again
    finally:
        stream.close()
    ranks = {given["rank"]: node["name"] for node in plan["nodes"] for given in node["ranks"]}
    verdict = stream.evidence.verdict(ranks, is_by_node=program.is_by_node)
    if isinstance(result, Outcome) and result.state != "SUCCEEDED" and verdict.verdict != "refused":
        verdict = _without_proof(result, program.name, was_ended=attempt.was_ended)
    return result, verdict, attempt.networks


def _free_port(address: str) -> int:
    with socket.socket() as one:
        one.bind((address, 0))
        return int(one.getsockname()[1])


def _without_proof(result: Outcome, program: str, *, was_ended: bool) -> Verdict:
    """Return the verdict on a program that was ended, that failed, or that the nodes do not have."""
    failure = result.failure
    node = "" if failure is None else failure["node"] or ""
    lines = [] if failure is None else failure["last_lines"][-1:]
    kind: ProbeVerdict = "failed"
    words = f"the probe by {program} failed"
    if was_ended:
        kind, words = "unfinished", f"the probe by {program} was ended"
    elif result.exit_status in (probe_plan.NOTHING_TO_RUN, NOT_FOUND):
        kind, words = "unproven", f"there is nothing to probe with by {program}"
    return Verdict(kind, "", "; ".join([f"{words}: {result.reason}", *lines]), node, [])


def _refusal(plan: Plan, verdict: Verdict) -> Outcome:
    size = plan["health"]["promise"]["size"]
    remedy = _AGAIN if verdict.verdict in ("failed", "unfinished") else _REMEDY
    reason = f"{verdict.reason}; {size} promises InfiniBand between nodes: {remedy}"
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


class _ProbeStream(TransportStream):
    """The output of a probe; what its runners send shows whether it moves."""

    def __init__(self, folder: str, nodes: Sequence[str], promise: Promise, limit: ProbeLimit) -> None:
        super().__init__(folder, nodes, promise, reads_all=True)
        self._probe_limit = limit

    def on_frame(self, kind: bytes, payload: bytes, node: int, name: str) -> bool:
        """Handle a runner's frame; return whether it concerns output."""
        now = time.monotonic()
        if kind == frames.SAMPLE:
            for one in frames.unpack(payload)["ranks"]:
                self._probe_limit.on_usage(one["rank"], one["cpu_permille"], one["memory"], now)
        is_output = super().on_frame(kind, payload, node, name)
        if is_output:
            self._probe_limit.on_output(now)
        return is_output


class _ProbeAttempt(Attempt):
    """A launch of a probe's program, which is ended once its limit is reached."""

    def __init__(self, order: LaunchOrder, job_state: JobState, limit: ProbeLimit) -> None:
        super().__init__(order, job_state)
        self._limit = limit
        self.was_ended = False

    def _on_tick(self, now: float) -> None:
        super()._on_tick(now)
        if self._shutdown.has_begun:
            return
        why = self._limit.over(now, all_run=self._ranks.all_started)
        if why:
            self.was_ended = True
            self._apply(Stop(unfinished(why, self._order.stream, self._running())))


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
