"""Goodput: which part of a job's time went into steps that were kept.

It is the time in steps that were kept, divided by the time from the job's submission, with what was staged
for it, to its end. Each launch counts from its first step that was printed to its last, without the seconds
that its checkpoints took; the first step itself is not in it, for nobody knows when that began. Where a later
launch begins at an earlier step than the last of one before, the steps from there on were lost, and their
part of the time with them. Steps that begin again in each epoch are put in a row by the metric ``epoch``;
where a launch is restarted and lines do not have it, goodput is not known. Steps are counted as they are
printed: where not each one is, up to one interval of printing too few are lost. The terms are those of
Google's ml-goodput-measurement (Monitor goodput with the ML Goodput Measurement library: productive time that
is preserved, over the elapsed time).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from launch.remote.sample.sample_records import AttemptSteps, History
from launch.report.timeline import PhaseSpan

__all__ = ["NO_EPOCH", "NO_SAMPLES", "NO_STEP", "ONE_STEP", "Goodput", "LostWork", "measure_goodput"]

NO_SAMPLES = "nothing was sampled"
NO_STEP = "no metric `step`"
ONE_STEP = "the samples have one value alone of the metric `step`"
NO_EPOCH = "steps begin again in each epoch, and no metric `epoch` says where a restart went on"


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
    has_epochs: bool
    epoch_steps: float
    first_epoch: float | None
    last_epoch: float | None

    @property
    def train_s(self) -> float:
        return max(0.0, self.last_at - self.first_at - self.checkpoint_s)


def measure_goodput(spans: Sequence[PhaseSpan], history: History | None) -> Goodput | str:
    """Return what the time of a job went to; text where that is unknown: the reason."""
    if history is None or not spans:
        return NO_SAMPLES
    launches = _in_a_row([one for one in map(_steps, history["attempts"]) if one is not None])
    if isinstance(launches, str):
        return launches
    if all(one.last == one.first for one in launches):
        return ONE_STEP
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


def _in_a_row(launches: Sequence[_Steps]) -> Sequence[_Steps] | str:
    """Return the launches with steps that are numbered from the first one's on, or why that is unknown."""
    if not launches:
        return NO_STEP
    pairs = pairwise(launches)
    if not any(one.has_epochs for one in launches) and not any(_is_new_epoch(*pair) for pair in pairs):
        return launches
    begun = [0.0 if one.first_epoch is None else one.first_epoch for one in launches]
    if len(launches) > 1 and None in [one.first_epoch for one in launches]:
        return NO_EPOCH
    longest = max(one.epoch_steps for one in launches)
    ahead = [(epoch - begun[0]) * longest for epoch in begun]
    return [
        replace(one, first=one.first + steps, last=one.last + steps)
        for one, steps in zip(launches, ahead, strict=True)
    ]


def _is_new_epoch(one: _Steps, later: _Steps) -> bool:
    """Return whether a launch began in a later epoch than the one before ended in, at an earlier step."""
    if one.last_epoch is None or later.first_epoch is None:
        return False
    return later.first_epoch > one.last_epoch and later.first <= one.last


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
        of.get("has_epochs", False),  # records of older node code have no epochs
        of.get("epoch_steps") or last,
        of.get("first_epoch"),
        of.get("last_epoch"),
    )
