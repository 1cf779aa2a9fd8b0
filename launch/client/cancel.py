"""Job cancellation from the operator's side, also when the job's head can no longer do it."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

from launch.client.events import JobState, StateName
from launch.client.rpc import ask, version_there
from launch.errors import GiveUpError, RetryError, StepTimeout
from launch.host import Host
from launch.remote.base import timing
from launch.remote.base.payloads import CancelAnswer, EndUploadAnswer, ReleaseAnswer, SweepAnswer

__all__ = ["Ending", "SupervisorTimeout", "Swept", "end_job", "end_supervisor", "end_upload", "sweep_node"]


@dataclass(frozen=True, slots=True)
class Ending:
    """The result of a job's cancellation."""

    state: JobState
    before: StateName
    """The job's state at the first request to end it."""
    lost: tuple[str, ...]
    """Nodes that the job lost or that fell silent: its head does not know what runs there."""

    grace_s: float


@dataclass(frozen=True, slots=True)
class Swept:
    """A job's processes on one node after the sweep."""

    ended: int
    """Number of processes that have exited."""
    left: tuple[int, ...]
    """Ids of processes that survived SIGKILL: the node has to be restarted."""


class SupervisorTimeout(StepTimeout):
    """A job's supervisor, process ``pid`` on the head ``node``, did not obey a request to end the job."""

    def __init__(self, node: str, job: str, pid: int | None, seconds: float) -> None:
        super().__init__(node, f"job {job}", seconds)
        self.pid = pid
        who = "the supervisor" if pid is None else f"the supervisor, process {pid} on {node},"
        self.args = (f"{who} does not react: job {job} was cancelled {seconds:.0f} s ago and still runs",)


def end_job(job: str, head: Host, *, remote: str, grace_s: float | None = None) -> Ending:
    """End the job, ``grace_s`` seconds (None: the job's own grace) after its ranks got SIGTERM.

    A job that has ended stays as it is; repeated and concurrent calls do no harm. The head is polled, so that
    no single call takes long. Raise :class:`SupervisorTimeout` when the job's supervisor exceeds the time for
    the cancellation, :class:`~launch.errors.RetryError` when the head claims more time than is waited for
    without ``grace_s``, and :class:`~launch.errors.InputError` when there is no such job.
    """
    longest = timing.LONGEST_GRACE_S if grace_s is None else grace_s
    words = ["cancel", job, *([] if grace_s is None else [f"{grace_s:g}"])]
    before: StateName | None = None
    until = None
    begun = time.monotonic()
    while True:
        answer = ask(CancelAnswer, head, remote, *words, timeout=timing.CANCEL_STEP_S, job=job)
        before = before or answer["before"]
        state = JobState.from_dict(answer["state"])
        if state.is_terminal:
            grace = min(max(answer["grace"], 0.0), longest)
            return Ending(state, before, tuple(answer["lost"]), grace)
        claimed = answer["within"] - timing.SUPERVISOR_END_S
        until = until or begun + min(claimed, longest) + timing.SUPERVISOR_END_S
        if time.monotonic() > until:
            if grace_s is None and claimed > longest:
                ago = f"{time.monotonic() - begun:.0f} s ago"
                raise RetryError(
                    f"job {job} was cancelled {ago} and still runs: {head.name} "
                    f"says that its processes have {claimed:g} s from SIGTERM to SIGKILL; wait for that, or "
                    f"end it on every node by `fab cancel {job} --grace 10s`"
                )
            supervisor = answer["state"].get("supervisor")
            pid = None if supervisor is None else supervisor["pid"]
            raise SupervisorTimeout(head.name, job, pid, time.monotonic() - begun)
        time.sleep(timing.ASK_AGAIN_S)  # a head that works has waited itself


def end_upload(job: str, head: Host, *, remote: str) -> bool:
    """End uploads of an ended job's outputs; return whether its supervisor was sending them."""
    answer = ask(EndUploadAnswer, head, remote, "end-upload", job, timeout=timing.CANCEL_STEP_S, job=job)
    return answer["uploading"]


def end_supervisor(job: str, head: Host, *, remote: str) -> JobState:
    """Kill a job's supervisor that does not react, once no node runs anything of the job; return the job's
    state, LOST then. Its place in the queue is free."""
    answer = ask(ReleaseAnswer, head, remote, "release", job, timeout=timing.CANCEL_STEP_S, job=job)
    return JobState.from_dict(answer["state"])


def sweep_node(job: str, node: Host, *, remote: str | None, grace_s: float) -> Swept:
    """End the processes that carry the job's id on one node, without its supervisor: SIGTERM, then SIGKILL.

    Use version ``remote`` of the node code; where it is None or the node lacks it, the newest on the node.

    Raise :class:`~launch.errors.GiveUpError` for a node that has processes of the job but no node code.
    """
    version = version_there(node, remote, timing.CANCEL_STEP_S)
    if version is None:
        look = f"grep -lszxF RANKLIFT_JOB_ID={job} /proc/[0-9]*/environ"
        found = node.run(["sh", "-c", look], timeout=timing.CANCEL_STEP_S).stdout
        if found:
            numbers = re.findall(rb"^/proc/([1-9][0-9]{0,6})/environ$", found, re.MULTILINE)
            pids = " ".join(str(pid) for pid in map(int, numbers) if pid > 1)
            raise GiveUpError(
                f"{node.name}: its ~/.ranklift was removed, but job {job} still runs: "
                f"end it by `kill -9 {pids}` there"
            )
        return Swept(0, ())
    timeout = grace_s + timing.CANCEL_STEP_S
    answer = ask(SweepAnswer, node, version, "sweep", job, f"{grace_s:g}", timeout=timeout, job=job)
    return Swept(answer["ended"], tuple(answer["left"]))
