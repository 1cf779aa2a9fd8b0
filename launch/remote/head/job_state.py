"""Where a job is between its queue and its end, and how state.json and the events tell of it."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from launch.remote.base import job_dir
from launch.remote.head import queue

if TYPE_CHECKING:
    from launch.remote.base.records import Plan
    from launch.remote.head.outcome import Outcome
    from launch.remote.head.queue import Turn

__all__ = ["Course"]


class Course:
    """The records of one job, changed by its supervisor alone."""

    def __init__(self, folder: job_dir.Folder, plan: Plan) -> None:
        self._folder, self._plan = folder, plan
        self._begun: float | None = None
        self._first: Outcome | None = None
        """How the first launch failed, where there was another."""
        self._state = job_dir.first_state(plan["id"], plan, time.time(), job_dir.identity(os.getpid()))

    @property
    def restarts(self) -> int:
        """How often the job was launched anew."""
        return int(self._state["restarts"])

    @property
    def has_begun(self) -> bool:
        """Whether the job's time runs."""
        return self._begun is not None

    @property
    def until(self) -> float | None:
        """When the job's time is over, by the monotonic clock; None when it has no limit. It runs from the
        first look at this on."""
        limit = self._plan["timeout_s"]
        if limit is None:
            return None
        if self._begun is None:
            self._begun = time.monotonic()
        return float(self._begun + limit)

    def queued(self) -> None:
        """Says what the job waits for, once for as long as that is the same."""
        if not self.restarts:
            self._begun = None
            self._state["started"] = None
        wait = queue.waiting_for(self._plan["id"])
        reason = "waits for " + (", ".join(wait.words) or "its turn")
        before = dict(self._state)
        self._state.update({"state": "QUEUED", "reason": reason, "place": wait.place, "waits_for": wait.jobs})
        if self._state != before:
            self._write()

    def starting(self, turn: Turn) -> None:
        """Its turn has come."""
        self._state.update({"state": "STARTING", "reason": "", "place": None, "waits_for": []})
        self._state.update({"port": turn.port, "started": self._state["started"] or time.time()})
        self._write()

    def held(self, turn: Turn) -> None:
        """The runners hold what it was given."""
        if self._state["state"] != "STARTING":  # it has waited for another head's job: only now is that over
            self.starting(turn)

    def running(self, turn: Turn, reason: str) -> None:
        """Every rank runs that the job goes on with."""
        self._state.update({"state": "RUNNING", "reason": reason, "port": turn.port})
        self._write()

    def restarting(self, outcome: Outcome) -> str:
        """A launch failed and there is to be another; gives the words for it."""
        count = self.restarts + 1
        self._first = self._first or outcome
        self._note_failure(outcome)
        self._folder.event("restart", count=count, reason=outcome.reason)
        words = f"restart {count} of {self._plan['max_restarts']}: {outcome.reason}"
        self._state.update({"state": "STARTING", "reason": words, "restarts": count})
        self._write()
        return words

    def end(self, outcome: Outcome) -> None:
        """Writes the terminal state."""
        self._note_failure(outcome)
        reason, failure = outcome.reason, outcome.failure
        if self._first is not None and not outcome.ran:  # the launch that was to come after it is no failure
            failure = self._first.failure or failure
        if self._first is not None and outcome.state == "FAILED":
            often = f"restart {self.restarts} of {self._plan['max_restarts']}"
            reason = f"{reason} (in {often}; the first failure was: {self._first.reason})"
        self._state.update({"state": outcome.state, "reason": reason, "place": None, "waits_for": []})
        self._state.update({"exit_status": outcome.exit_status, "failure": failure, "ended": time.time()})
        self._write()

    def _note_failure(self, outcome: Outcome) -> None:
        if outcome.failure is not None:
            self._folder.event("failure", **outcome.failure)

    def _write(self) -> None:
        self._folder.write_state(self._state)
