"""Jobs as text: the rows of ``fab jobs``, the full record of ``fab job``."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from launch.client.events import JobState
from launch.client.query import Happening, JobReport, RankEnd
from launch.durations import span
from launch.moments import cell, utc
from launch.nodeset import fold, ranges
from launch.numbers import counted
from launch.remote.base.health_records import Finding
from launch.remote.base.messages import size
from launch.remote.base.records import DataRecord, EnvironmentRecord
from launch.remote.head.outcome import signal_name

__all__ = [
    "RANK",
    "cancel_text",
    "change_text",
    "ends_text",
    "finding_text",
    "job_rows",
    "job_text",
    "not_started_text",
    "took",
    "waiting",
]

RANK = ("job", "state", "exit", "took", "waits for", "nodes", "started (UTC)", "ranks", "restarts")
"""Columns of the list of jobs by importance: a narrow terminal gets the first that fit."""
_ON = re.compile(r" on ([\w.-]{1,200})", re.ASCII)
_LONGEST = 1000
"""Characters of a reason that are shortened for a line; a node can send a million."""
_ID = re.compile(r"[\w.-]{1,64}-\d{8}-\d{6}-([0-9a-f]{4})", re.ASCII)
_AHEAD = 2
"""Number of jobs that the list names of those that one waits for."""


def job_rows(
    jobs: Iterable[JobState],
    now: datetime | None = None,
    seen: Mapping[str, datetime] | None = None,
    *,
    short: bool = False,
) -> tuple[Sequence[str], list[Sequence[object]]]:
    """Return columns and rows of the list of jobs, without empty columns.

    ``seen`` is when each job's state was read, where that is not ``now``. With ``short`` the jobs that others
    wait for are named by the last parts of their ids, without their nodes.
    """
    columns = ("job", "state", "nodes", "ranks", "restarts", "started (UTC)", "took", "exit", "waits for")
    rows = [
        (
            state.job,
            f"{state.state}, uploading" if state.uploading else _standing(state),
            len(state.nodes),
            state.ranks,
            state.restarts or "",
            cell(state.started),
            took(state, (seen or {}).get(state.job, now)),
            "" if state.exit_status is None else state.exit_status,
            _short(waiting(state), state.nodes) if short else waiting(state),
        )
        for state in jobs
    ]
    always = {"job", "state", "nodes", "ranks", "started (UTC)", "took", "exit"}
    kept = [
        number for number, name in enumerate(columns) if name in always or any(row[number] for row in rows)
    ]
    return [columns[number] for number in kept], [[row[number] for number in kept] for row in rows]


def change_text(state: JobState, now: datetime) -> str:
    """Return a job's state as a line of a list that grows by each change."""
    words = _with_reason(_standing(state), state.reason)
    return f"{utc(now)}  {state.job}  {words}"


def not_started_text(state: JobState, *, is_named: bool) -> str:
    """Return why a job has no rank's output: it waits or is being started, or it ended before.

    Without its id if the job ``is_named`` in the line before.
    """
    words = _with_reason(_standing(state), state.reason)
    if not is_named:
        words = f"job {state.job} {words}"
    if state.is_terminal:
        return f"{words}; it never started"
    return f"{words}; it has not started, and with -f its output follows once it does"


def waiting(state: JobState) -> str:
    """Return the first jobs that a queued job waits for and its place in the queue; empty for any other."""
    if state.state != "QUEUED":
        return ""
    ahead = (state.reason.removeprefix("waits for ") or ", ".join(state.waits_for)).split(", ")
    more = f" and {len(ahead) - _AHEAD} more" if len(ahead) > _AHEAD else ""
    words = ", ".join(ahead[:_AHEAD]) + more
    return f"{words} (place {state.place})" if state.place else words


def _short(text: str, nodes: Iterable[str]) -> str:
    known = frozenset(nodes)
    text = _ON.sub(lambda found: "" if found[1] in known else found[0], text[:_LONGEST])
    return _ID.sub(r"\1", text)


def job_text(report: JobReport, now: datetime | None = None) -> str:
    """Return the full record of a job, one known fact a line."""
    state = report.state
    port = f", port {state.port}" if state.port else ""
    lines = [
        ("job", state.job),
        ("state", _with_reason(_standing(state), state.reason)),
        ("place", f"{state.place} in its head's queue" if state.place else ""),
        ("exit", "" if state.exit_status is None else str(state.exit_status)),
        ("runs", f"{_where(state)}, {state.kind}{port}"),
        ("command", _line(report.command)),
        ("code", f"snapshot {report.code}" if report.code else ""),
        ("runs in", _runs_in(report.environment)),
        *(("data", _data(one)) for one in report.data),
        ("tags", ", ".join(f"{name}={value}" for name, value in state.tags.items())),
        ("created", utc(state.created)),
        ("started", _started(state)),
        ("ended", utc(state.ended)),
        ("took", took(state, now)),
        ("limit", "" if report.timeout_s is None else f"{span(report.timeout_s)} from its start"),
        ("grace", f"{report.grace_s:g} s from SIGTERM to SIGKILL"),
        ("restarts", f"{state.restarts} of {report.max_restarts}" if report.max_restarts else ""),
        ("health", "off: nobody looked at its nodes" if report.health == "off" else ""),
        ("ranks", ends_text(report)),
        ("transport", _transport(report.events)),
        ("logs", f"{report.folder}/logs/rank-<n>.log on each rank's node"),
    ]
    text = "".join(f"{name:<10}{value}\n" for name, value in lines if value)
    text += _history(report.events)
    if state.failure is not None:
        text += _failure(report)
    return text


def cancel_text(state: JobState, command: Sequence[str]) -> str:
    """Return which job would be ended: its state, its nodes, its command."""
    words = f"job {state.job} {_with_reason(_standing(state), state.reason)}, {_where(state)}"
    return f"{words}: {_line(command)}" if command else words


def _where(state: JobState) -> str:
    return f"{counted(state.ranks, 'rank')} on {fold(state.nodes)}"


def _line(command: Sequence[str]) -> str:
    return command[0] if len(command) == 1 else shlex.join(command)


def _runs_in(environment: EnvironmentRecord) -> str:
    if environment["kind"] == "bare":
        return ""
    by = "" if environment["runtime"] == "bare" else f", by {environment['runtime']}"
    return f"{environment['title']}: {environment['kind']} {environment['id']}{by}"


def _data(one: DataRecord) -> str:
    took = f", staged in {one['seconds']:.1f} s" if one["seconds"] else ", held already"
    return f"{one['name']}: {one['url']}, {counted(one['files'], 'file')}, {size(one['bytes'])}{took}"


def ends_text(report: JobReport) -> str:
    """Return how the ranks of the last attempt ended, grouped by how they ended.

    ``0-6 ended with 0; 7 on node000001 ended by signal 9 (SIGKILL)``
    """
    newest = max((end.attempt for end in report.ends), default=0)
    ends = [end for end in report.ends if end.attempt == newest]
    groups: dict[str, list[RankEnd]] = {}
    for end in ends:
        groups.setdefault(_how(end), []).append(end)
    parts = []
    for how, alike in groups.items():
        nodes = {end.node for end in alike}
        where = f" on {fold(nodes)}" if alike[0].status and len(alike) < report.state.ranks else ""
        parts.append(f"{ranges(end.rank for end in alike)}{where} {how}")
    known = {end.rank for end in ends}
    unknown = [rank for ranks in report.ranks.values() for rank in ranks if rank not in known]
    if ends and unknown:
        parts.append(f"{ranges(unknown)} {'not reported' if report.state.is_terminal else 'running'}")
    return "; ".join(parts)


def _how(end: RankEnd) -> str:
    how = f"ended with {end.status}" if end.signal is None else f"ended by {signal_name(end.signal)}"
    return f"{how} on request" if end.stopped else how


def _started(state: JobState) -> str:
    if state.started is None:
        return ""
    queued = (state.started - state.created).total_seconds()
    return utc(state.started) + (f", {span(queued)} after it was created" if queued >= 1 else "")


def _standing(state: JobState) -> str:
    return f"{state.state}, being cancelled" if state.cancelling else state.state


def _with_reason(state: str, reason: str) -> str:
    return f"{state}: {reason}" if reason else state


def _history(events: Iterable[Happening]) -> str:
    """Return states (one of which marks a restart), failures and lost nodes, in order."""
    lines = []
    for event in events:
        fields = event.fields
        if event.event == "state":
            words = _with_reason(str(fields["state"]), str(fields["reason"]))
        elif event.event == "lost-node":
            words = f"{fields['node']} lost: {fields['reason']}"
        elif event.event == "eviction":
            words = f"{fields['node']} {fields['reason']}"
        elif event.event == "failure" and fields["rank"] is not None:
            words = f"rank {fields['rank']} on {fields['node']} failed with {fields['status']}"
        elif event.event == "health":
            words = _findings(fields)
        elif event.event == "upload":
            words = _upload(fields)
        elif event.event == "probe":
            words = _probe(fields)
        else:
            continue
        lines.append(f"  {utc(event.time)}  {words}\n")
    return "".join(["history\n", *lines]) if lines else ""


def _findings(fields: Mapping[str, Any]) -> str:
    return f"\n{' ' * 27}".join(f"{fields['node']} {finding_text(one)}" for one in fields["findings"])


def finding_text(finding: Finding) -> str:
    """Return one finding of a look at a node in words."""
    return (
        f"health {finding['level']}: {finding['subject']}: {finding['measured']}; expected: "
        f"{finding['expected']} ({finding['source']}); {finding['remedy']}"
    )


def _transport(events: Iterable[Happening]) -> str:
    """Return what is known of the way between nodes: by the job's own ranks, else by a probe."""
    found = [event.fields for event in events if event.event == "probe"]
    return "" if not found else f"{found[-1]['transport'] or 'not proven'}{_source(found[-1])}"


def _source(fields: Mapping[str, Any]) -> str:
    if fields["source"] == "ranks":
        return ", as its ranks print"
    return f", proven {fields['reason']}" if fields["verdict"] == "proven" and fields["reason"] else ""


def _probe(fields: Mapping[str, Any]) -> str:
    """Return the result of a probe in words, and its evidence below it."""
    if fields["source"] == "ranks":
        words = f"its ranks' lines: {fields['verdict']}"
    else:
        words = f"probe: {fields['verdict']}" + (f" in {fields['seconds']:g} s" if fields["seconds"] else "")
    reason = str(fields["reason"])
    lines = (one for one in fields["lines"] if one["line"] not in reason)
    shown = [f"\n    {one['node']}, rank {one['rank']}: {one['line']}" for one in lines]
    return "".join([_with_reason(words, reason), *shown])


def _upload(fields: Mapping[str, Any]) -> str:
    """Return an upload in words: where to, how much of it, and which nodes have more."""
    sent = f"{counted(fields['files'], 'file')} and {size(fields['bytes'])} in {fields['seconds']:.1f} s"
    kept = f", {fields['kept']} there already" if fields["kept"] else ""
    failed = f"; not all of {fold(fields['errors'])}" if fields["errors"] else ""
    return f"uploaded to {', '.join(fields['urls'].values())}: {sent}{kept}{failed}"


def _failure(report: JobReport) -> str:
    failure = report.state.failure
    assert failure is not None  # noqa: S101  its only caller checks
    lines = "".join(f"  {line}\n" for line in failure.last_lines)
    return f"first failure: {failure.who}, exit status {failure.status}\n{lines}"


def took(state: JobState, now: datetime | None = None) -> str:
    """Return how long the job has run, to its end or until now; empty when it has not started."""
    if state.started is None:
        return ""
    return span(((state.ended or now or datetime.now(UTC)) - state.started).total_seconds())
