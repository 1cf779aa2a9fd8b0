"""A job's state from its queue to its end, as state.json and the events record it, and what a launch gets."""

from __future__ import annotations

import os
import time
from typing import NamedTuple

from launch.remote.base import job_dir, processes
from launch.remote.base.phase_records import Phase, PhaseName
from launch.remote.base.records import End, Plan, UploadEvent, UploadRecord
from launch.remote.head import queue
from launch.remote.head.outcome import Outcome, without_outputs
from launch.remote.log.writer import StreamWriter

__all__ = ["JobState", "LaunchOrder"]


class JobState:
    """The records of one job, changed by its supervisor alone."""

    def __init__(self, folder: job_dir.Folder, plan: Plan) -> None:
        self._folder, self._plan = folder, plan
        self._begun: float | None = None
        self._first: Outcome | None = None
        """The outcome of the first launch, where another followed."""
        self._state = job_dir.first_state(plan["id"], plan, time.time(), processes.identity(os.getpid()))
        self._phases = _PhaseLog(folder)

    @property
    def restarts(self) -> int:
        """The number of restarts so far."""
        return int(self._state["restarts"])

    @property
    def created(self) -> float:
        """When the job came to its head, in Unix time."""
        return float(self._state["created"])

    @property
    def has_begun(self) -> bool:
        """Whether the job's time runs."""
        return self._begun is not None

    @property
    def deadline(self) -> float | None:
        """The end of the job's time by the monotonic clock, None without a limit. The time runs from the
        first use of this on."""
        limit = self._plan["timeout_s"]
        if limit is None:
            return None
        if self._begun is None:
            self._begun = time.monotonic()
        return float(self._begun + limit)

    def record_stages(self) -> None:
        """Record the phases before the job came to its head."""
        for stage in self._plan.get("stages", []):
            start, end = self.created + stage["start"], self.created + stage["end"]
            self._phases.record({**stage, "start": start, "end": end}, 0)

    def set_queued(self) -> None:
        """Record what the job waits for, if that has changed."""
        if not self.restarts:
            self._begun = None
            self._state["started"] = None
        wait = queue.waiting_for(self._plan["id"])
        reason = "waits for " + (", ".join(wait.words) or "its turn")
        before = dict(self._state)
        self._state.update({"state": "QUEUED", "reason": reason, "place": wait.place, "waits_for": wait.jobs})
        self._phases.enter("queue", self.restarts)
        if self._state != before:
            self._write()

    def set_starting(self, port: int) -> None:
        """Record that the queue gave the job its slots and port."""
        self._state.update({"state": "STARTING", "reason": "", "place": None, "waits_for": []})
        self._state.update({"port": port, "started": self._state["started"] or time.time()})
        self._phases.enter("start", self.restarts)
        self._write()

    def set_probing(self) -> None:
        """Record that a probe runs before the job's ranks."""
        self._state["reason"] = "the transport between its nodes is probed"
        self._phases.enter("probe", self.restarts)
        self._write()

    def set_probed(self) -> None:
        """Record that the probe, if there was one, has ended."""
        if self._phases.phase == "probe":
            self._phases.enter("start", self.restarts)

    def set_held(self, port: int) -> None:
        """Record, for the queue too, that the runners hold all slots."""
        queue.confirm(self._plan["id"])
        if self._state["state"] != "STARTING":  # it has waited for another head's job until now
            self.set_starting(port)
        self._phases.enter("look", self.restarts)

    def set_running(self, port: int, reason: str) -> None:
        """Record that every expected rank runs."""
        self._state.update({"state": "RUNNING", "reason": reason, "port": port})
        if self._phases.phase != "end":
            self._phases.enter("run", self.restarts)
        self._write()

    def set_ending(self) -> None:
        """Record that the launch ends: its last rank has, or all are to."""
        if self._phases.phase != "queue":  # a launch that found no free slots has not left it
            self._phases.enter("end", self.restarts)

    def set_uploading(self, uploads: list[UploadRecord], outcome: Outcome) -> None:
        """Record that the outputs are on their way to storage, and how the ranks have ended: the job ends so,
        without its outputs, if this supervisor is killed meanwhile."""
        self._state["pending"] = self._end_of(without_outputs(outcome))
        self._state["reason"] = f"uploading to {', '.join(one['url'] for one in uploads)}"
        self._phases.enter("upload", self.restarts, _verdict(outcome))
        self._write()

    def set_uploaded(self, event: UploadEvent) -> None:
        """Record how the upload ended."""
        problems = [f"{node}: {errors[0]}" for node, errors in event["errors"].items()]
        self._phases.leave(problems[0] if problems else "", event["bytes"])

    def set_restarting(self, outcome: Outcome) -> str:
        """Record that a launch failed and another follows; return the reason for it."""
        count = self.restarts + 1
        self._first = self._first or outcome
        self._record_failure(outcome)
        self._folder.event("restart", count=count, reason=outcome.reason)
        reason = f"restart {count} of {self._plan['max_restarts']}: {outcome.reason}"
        self._state.update({"state": "STARTING", "reason": reason, "restarts": count})
        self._phases.enter("start", count, _verdict(outcome))
        self._write()
        return reason

    def set_ended(self, outcome: Outcome, uploads: list[UploadRecord] | None = None) -> None:
        """Record the terminal state; its supervisor sends the outputs of ``uploads`` after that."""
        self._record_failure(outcome)
        self._phases.leave(_verdict(outcome))
        self._state.pop("pending", None)
        self._state.update(self._end_of(outcome))  # type: ignore[typeddict-item]  # its fields are State's
        self._state.update({"place": None, "waits_for": [], "ended": time.time()})
        if uploads:
            self._state["uploading"] = [one["url"] for one in uploads]
        self._write()

    def _end_of(self, outcome: Outcome) -> End:
        reason, failure = outcome.reason, outcome.failure
        if self._first is not None and not outcome.ran:  # the launch that was to follow is not a failure
            failure = self._first.failure or failure
        if self._first is not None and outcome.state == "FAILED":
            restart = f"restart {self.restarts} of {self._plan['max_restarts']}"
            reason = f"{reason} (in {restart}; the first failure was: {self._first.reason})"
        return {
            "state": outcome.state,
            "reason": reason,
            "exit_status": outcome.exit_status,
            "failure": failure,
        }

    def _record_failure(self, outcome: Outcome) -> None:
        if outcome.failure is not None:
            self._folder.event("failure", **outcome.failure)

    def _write(self) -> None:
        self._folder.write_state(self._state)


def _verdict(outcome: Outcome) -> str:
    return "" if outcome.state == "SUCCEEDED" else outcome.reason or outcome.state


class _PhaseLog:
    """Records each phase of a job when it ends; one follows another."""

    def __init__(self, folder: job_dir.Folder) -> None:
        self._folder = folder
        self.phase: PhaseName | None = None
        """The phase that the job is in."""
        self._attempt = 0
        self._start = 0.0

    def enter(self, phase: PhaseName, attempt: int, verdict: str = "") -> None:
        """Begin a phase, unless the job is in it; ``verdict`` is that of the one before."""
        if (phase, attempt) == (self.phase, self._attempt):
            return
        self.leave(verdict)
        self.phase, self._attempt, self._start = phase, attempt, time.time()

    def leave(self, verdict: str = "", moved: int = 0) -> None:
        """End the phase that the job is in, if any; it has moved this number of bytes."""
        if self.phase is not None:
            start, end = self._start, time.time()
            ended: Phase = {
                "phase": self.phase,
                "start": start,
                "end": end,
                "bytes": moved,
                "verdict": verdict,
            }
            self.record(ended, self._attempt)
            self.phase = None

    def record(self, phase: Phase, attempt: int) -> None:
        """Record a phase that has ended."""
        self._folder.event("phase", attempt=attempt, **phase)


class LaunchOrder(NamedTuple):
    """``restarts`` is the number of launches before; ``deadline``, by the monotonic clock, the end of the
    job's time, None without a limit; ``networks`` the nodes' marks of what InfiniBand was proven with, empty
    where nothing is proven."""

    folder: job_dir.Folder
    plan: Plan
    slots: dict[str, list[int]]
    port: int
    stream: StreamWriter
    restarts: int
    deadline: float | None
    networks: dict[str, str] = {}  # noqa: RUF012
