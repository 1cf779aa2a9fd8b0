"""Queries of a head: the list of its jobs, and the full report of one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from launch.client.events import JobState
from launch.client.rpc import ask, readable
from launch.errors import GiveUpError
from launch.host import Host
from launch.remote.base import payloads
from launch.remote.base.health_records import HealthMode
from launch.remote.base.records import BARE, DataRecord, EnvironmentRecord, Event, ExitEvent
from launch.remote.reading import Malformed

__all__ = [
    "Happening",
    "JobReport",
    "Listing",
    "RankEnd",
    "list_every",
    "list_some",
    "report_of",
    "show_job",
    "tag_job",
]


@dataclass(frozen=True, slots=True)
class Listing:
    """The jobs of one head."""

    jobs: tuple[JobState, ...]
    """Oldest first; a job whose supervisor is gone is LOST."""
    left_out: int
    damaged: tuple[str, ...] = ()
    """Records that cannot be used, each in words; their jobs are missing in ``jobs``."""
    aside: tuple[str, ...] = ()
    """What the head moved aside because it was in the place of a file, below ``~/.ranklift``."""


@dataclass(frozen=True, slots=True)
class RankEnd:
    """A rank's most recent exit."""

    rank: int
    node: str
    status: int
    """128+n for signal n."""
    signal: int | None
    stopped: bool
    attempt: int
    """Number of the launch, 0 for the job's first."""
    time: datetime


@dataclass(frozen=True, slots=True)
class Happening:
    """An entry in a job's history: a change of state, a failure, a restart, a lost node."""

    time: datetime
    event: str
    fields: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class JobReport:
    """Everything known of a job but its ranks' output."""

    state: JobState
    command: tuple[str, ...]
    """The user's command: a script and its arguments, or a line for a shell."""
    code: str
    """Id of the snapshot that the job runs in; empty without one."""
    timeout_s: float | None
    grace_s: float
    max_restarts: int
    ranks: Mapping[str, tuple[int, ...]]
    ends: tuple[RankEnd, ...]
    """Sorted by rank, without ranks that are running or whose exit was not reported."""
    events: tuple[Happening, ...]
    folder: str
    """The job's folder on the head; each rank's log lies in its ``logs`` folder on the rank's own node."""
    health: HealthMode = "strict"
    """What findings at its nodes do to it."""
    environment: EnvironmentRecord = field(default_factory=lambda: BARE)
    """What the ranks run in."""
    data: tuple[DataRecord, ...] = ()
    """Data that was staged for it."""


def list_some(head: Host, *, remote: str, last: int | None = None) -> Listing:
    """Return a head's jobs: all that have not ended, and the ``last`` (None: all) that have."""
    damaged: list[str] = []

    def drop(record: object, error: Malformed) -> None:
        name = record.get("job") if isinstance(record, dict) else None
        damaged.append(f"the record of job {name!s:.80} is damaged: {error.where} {error.problem}")

    words = [] if last is None else [str(last)]
    found = ask(payloads.JobListing, head, remote, "list", *words, drop=drop)
    jobs = tuple(map(JobState.from_dict, found["jobs"]))
    return Listing(jobs, found["left_out"], tuple(damaged), tuple(found.get("aside", ())))


def list_every(head: Host, *, remote: str) -> tuple[JobState, ...]:
    """Return all of a head's jobs, for whoever removes nodes. Raise :class:`~launch.errors.GiveUpError` where
    the record of one is damaged: that job may run."""
    listing = list_some(head, remote=remote)
    if listing.damaged:
        raise GiveUpError(f"{head.name}: {listing.damaged[0]}")
    return listing.jobs


def show_job(job: str, head: Host, *, remote: str) -> JobReport:
    """Return the full report of the job. Raise :class:`~launch.errors.InputError` when the head has no such
    job."""
    with readable(head):
        return report_of(ask(payloads.JobReport, head, remote, "show", job, job=job))


def tag_job(job: str, head: Host, tags: Mapping[str, str], *, remote: str) -> JobReport:
    """Add tags to the job; return its report. Raise as :func:`show_job`, and
    :class:`~launch.errors.GiveUpError` where the head has no room for them."""
    with readable(head):
        return report_of(ask(payloads.JobReport, head, remote, "tag", job, json.dumps(dict(tags)), job=job))


def report_of(answer: payloads.JobReport) -> JobReport:
    """Return the report that an answer to ``show`` holds. Raise :class:`~launch.remote.reading.Malformed` for
    an event without a time."""
    plan = answer["plan"]
    ends = [
        RankEnd(
            rank=end["rank"],
            node=end["node"],
            status=end["status"],
            signal=end["signal"],
            stopped=bool(end["stopped"]),
            attempt=end["attempt"],
            time=_time(end),
        )
        for end in answer["ends"]
    ]
    happenings = [
        Happening(
            _time(event), event["event"], {k: v for k, v in event.items() if k not in ("time", "event")}
        )
        for event in answer["events"]
    ]
    return JobReport(
        state=JobState.from_dict(answer["state"]),
        command=tuple(plan["command"]),
        code=plan["snapshot"],
        timeout_s=plan["timeout_s"],
        grace_s=plan["grace_s"],
        max_restarts=plan["max_restarts"],
        health=plan["health"],
        ranks={node: tuple(ranks) for node, ranks in answer["ranks"].items()},
        ends=tuple(ends),
        events=tuple(happenings),
        folder=answer["folder"],
        environment=plan["environment"],
        data=tuple(plan["data"]),
    )


def _time(record: Event | ExitEvent) -> datetime:
    if "time" not in record:
        raise Malformed("has no time", f"event {record['event']}")
    return datetime.fromtimestamp(record["time"], UTC)
