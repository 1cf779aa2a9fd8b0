"""Steps of a launch, counted from the metric ``step``, which some programs begin again in each epoch.

Where a rank prints the metric ``epoch`` too, an earlier step in a later epoch begins one; else a step below
half of the furthest does. The last steps of an epoch are not in the count where they were not printed, or not
sampled. Steps of an evaluation in between, after which a rank goes on where it was before, are not an epoch.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from launch.remote.sample.sample_records import AttemptSteps

__all__ = ["StepCount"]

_NEW_EPOCH = 0.5
"""Part of the furthest step below which a step begins an epoch: lines of two streams are not in order."""


class _Rank:
    """Steps of one rank: the furthest of its epoch, and how many were in the epochs before."""

    def __init__(self, step: float, epoch: float | None) -> None:
        self.furthest = step
        self.before = 0.0
        self.epoch, self._began_in = epoch, epoch
        """The newest epoch that was printed, and that in which steps began again last."""
        self.counts_from_0 = step == 0
        self._ended = self._ended_steps = 0.0
        """Furthest step of the epoch before, and what it has added to those before."""

    def count(self, step: float, epoch: float | None) -> float:
        """Return the number of the furthest step among all of the launch."""
        self.counts_from_0 = self.counts_from_0 or step == 0
        self.epoch = self.epoch if epoch is None else epoch
        if self._begins(step):
            self._ended, self._ended_steps = self.furthest, self.furthest + self.counts_from_0
            self.before += self._ended_steps
            self.furthest, self._began_in = step, self.epoch
        elif self.furthest < _NEW_EPOCH * self._ended and step > self._ended:
            self.before -= self._ended_steps
            self._ended = 0.0
        self.furthest = max(self.furthest, step)
        return self.before + self.furthest

    def _begins(self, step: float) -> bool:
        if self.epoch is None:
            return step < _NEW_EPOCH * self.furthest
        return step < self.furthest and (self._began_in is None or self.epoch > self._began_in)


class StepCount:
    """Enters the steps of a launch's ranks into its record: those of the rank that is furthest."""

    def __init__(self, steps: AttemptSteps) -> None:
        self._steps = steps
        self._ranks: dict[int, _Rank] = {}

    def add(self, rank: int, step: float, epoch: float | None, now: float) -> None:
        """Add a step that a rank has printed, with the epoch that it printed since the step before."""
        steps = self._steps
        known = self._ranks.get(rank)
        if known is None:
            known = self._ranks[rank] = _Rank(step, epoch)
        number = known.count(step, epoch)
        if steps["first_step"] is None:
            steps["first_step"], steps["first_step_at"], steps["first_epoch"] = step, now, epoch
        if steps["last_step"] is None or number > steps["last_step"]:
            steps["last_step"], steps["last_step_at"], steps["last_epoch"] = number, now, known.epoch
        steps["epoch_steps"] = max(steps["epoch_steps"] or 0.0, known.furthest + known.counts_from_0)
        steps["has_epochs"] = known.before > 0
