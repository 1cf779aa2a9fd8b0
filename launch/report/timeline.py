"""The phases of a job, one after another, as its head has recorded them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import get_args

from launch.client.events import JobState
from launch.client.query import Happening
from launch.remote.base.phase_records import PhaseName

__all__ = ["TITLES", "PhaseSpan", "timeline"]

TITLES: dict[PhaseName, str] = {
    "stage-code": "push of the code",
    "stage-data": "staging of data",
    "stage-environment": "environment made",
    "queue": "wait in the queue",
    "probe": "proof of transport",
    "start": "start of the runners",
    "look": "nodes made ready",
    "run": "ranks run",
    "end": "end of the ranks",
    "upload": "upload of outputs",
}
"""For people."""
_OF_STATE: dict[str, PhaseName] = {"QUEUED": "queue", "STARTING": "start", "RUNNING": "run"}


@dataclass(frozen=True, slots=True)
class PhaseSpan:
    """A phase of a job; times in Unix seconds by the head's clock."""

    phase: PhaseName
    attempt: int
    start: float
    end: float
    bytes: int = 0
    verdict: str = ""
    is_open: bool = False
    """Whether the job is in it; it ends now then."""

    @property
    def seconds(self) -> float:
        """Its duration."""
        return self.end - self.start

    @property
    def title(self) -> str:
        """Its name for people."""
        return TITLES[self.phase]


def timeline(state: JobState, events: Iterable[Happening], now: float) -> tuple[PhaseSpan, ...]:
    """Return a job's phases, by their begin; none of a job whose node code records none.

    The phase of a job that has not ended is open, and lasts until ``now``.
    """
    ended = sorted(
        (span for event in events if event.event == "phase" and (span := _read(event)) is not None),
        key=lambda span: span.start,
    )
    if not ended or state.is_terminal:
        return tuple(ended)
    last = ended[-1]
    phase = _OF_STATE.get(state.state, last.phase)
    if state.state == "RUNNING" and last.phase == "end":
        phase = "upload"  # the ranks have ended, and the job has not
    elif state.state == "STARTING" and last.phase == "start" and last.attempt == state.restarts:
        phase = "look"
    return (*ended, PhaseSpan(phase, state.restarts, last.end, max(now, last.end), is_open=True))


def _read(event: Happening) -> PhaseSpan | None:
    """Return the phase that an event holds; None for one that newer or damaged code has written."""
    fields = event.fields
    phase, attempt, verdict = fields.get("phase"), fields.get("attempt"), fields.get("verdict")
    start, end, moved = (fields.get(name) for name in ("start", "end", "bytes"))
    if phase not in get_args(PhaseName) or not isinstance(verdict, str):
        return None
    if not (isinstance(attempt, int) and isinstance(moved, int)):
        return None
    if not (isinstance(start, (int, float)) and isinstance(end, (int, float)) and start <= end):
        return None
    return PhaseSpan(phase, attempt, start, end, moved, verdict)  # type: ignore[arg-type]
