"""Goodput: which part of a job's time went into steps that were kept.

It is the time in steps that were kept, divided by the time from the job's submission, with what was staged
for it, to its end. Each launch counts from its first step that was printed to its last, without the seconds
that its checkpoints took; the first step itself is not in it, for nobody knows when that began. Where a later
launch begins at an earlier step than the last of one before, the steps from there on were lost, and their
part of the time with them. Steps are counted as they are printed: where not each one is, up to one interval
of printing too few are lost. The terms are those of Google's ml-goodput-measurement (Monitor goodput with the
ML Goodput Measurement library: productive time that is preserved, over the elapsed time).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from launch.remote.sample.sample_records import AttemptSteps, History
from launch.report.timeline import PhaseSpan

__all__ = ["Goodput", "LostWork", "measure_goodput"]


@dataclass(frozen=True, slots=True)
class LostWork:
    """Steps that a launch repeated."""

    restart: int
    """Number of the launch that repeated them: 1 for the first restart."""
    steps: float
    seconds: float
    """Time that the lost ones had taken."""


@dataclass(frozen=True, slots=True)
class Goodput:
    """What a job's time went to, in seconds."""

    total_s: float
    kept_s: float
    """In steps that were kept."""
    checkpoint_s: float
    checkpoints: int
    before_steps_s: float
    """From the start of the ranks to their first step, of all launches."""
    lost: tuple[LostWork, ...]

    @property
    def share(self) -> float:
        """The part of the time that went into steps that were kept: 0 to 1."""
        return self.kept_s / self.total_s if self.total_s > 0 else 0.0

    @property
    def lost_s(self) -> float:
        """Time in steps that were lost."""
        return sum(one.seconds for one in self.lost)


@dataclass(frozen=True, slots=True)
class _Steps:
    """The steps of a launch that printed some."""

    attempt: int
    started: float
    first: float
    first_at: float
    last: float
    last_at: float
    checkpoints: int
    checkpoint_s: float

    @property
    def train_s(self) -> float:
        return max(0.0, self.last_at - self.first_at - self.checkpoint_s)


def measure_goodput(spans: Sequence[PhaseSpan], history: History | None) -> Goodput | None:
    """Return what the time of a job went to; None where that is unknown: without phases, or without the
    metric ``step``."""
    attempts = [] if history is None else history["attempts"]
    launches = [one for one in map(_steps, attempts) if one is not None]
    if not launches or not spans:
        return None
    lost = []
    for number, one in enumerate(launches):
        later = launches[number + 1 :]
        again = min(later, key=lambda other: other.first, default=None)
        if again is None or again.first > one.last:
            continue
        done = one.last - one.first + 1
        repeated = min(done, one.last - again.first + 1)
        lost.append(LostWork(later[0].attempt, repeated, one.train_s * repeated / done))
    starts = {span.attempt: span.start for span in reversed(spans) if span.phase == "run"}
    return Goodput(
        total_s=max(span.end for span in spans) - min(span.start for span in spans),
        kept_s=sum(one.train_s for one in launches) - sum(one.seconds for one in lost),
        checkpoint_s=sum(one.checkpoint_s for one in launches),
        checkpoints=sum(one.checkpoints for one in launches),
        before_steps_s=sum(max(0.0, one.first_at - starts.get(one.attempt, one.started)) for one in launches),
        lost=tuple(lost),
    )


def _steps(of: AttemptSteps) -> _Steps | None:
    first, last = of["first_step"], of["last_step"]
    first_at, last_at = of["first_step_at"], of["last_step_at"]
    if first is None or last is None or first_at is None or last_at is None:
        return None
    return _Steps(
        of["attempt"],
        of["started"],
        first,
        first_at,
        max(first, last),
        max(first_at, last_at),
        of["checkpoints"],
        min(of["checkpoint_s"], max(0.0, last_at - first_at)),
    )
