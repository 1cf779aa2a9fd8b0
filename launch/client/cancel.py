"""Ending a job from the operator's side, also when its head cannot do it any more."""

from __future__ import annotations

import time
from dataclasses import dataclass

from launch.client.events import JobState, StateName
from launch.client.rpc import ask, asked, node_code, version_there
from launch.errors import GiveUpError, StepTimeout
from launch.host import Host
from launch.remote.base import timing
from launch.remote.base.payloads import CancelAnswer, ReleaseAnswer, SweepAnswer

__all__ = ["Ending", "Swept", "Unheeded", "end_job", "end_supervisor", "sweep_node"]


@dataclass(frozen=True, slots=True)
class Ending:
    """What came of the wish that a job end."""

    state: JobState
    before: StateName
    """Where the job was when it was first asked to end."""
    lost: tuple[str, ...]
    """Nodes that went away from the job or fell silent: its head knows nothing of what runs there."""

    grace_s: float
    """What its processes were given between SIGTERM and SIGKILL."""


@dataclass(frozen=True, slots=True)
class Swept:
    """What was found of a job on one node."""

    ended: int
    """Processes that are gone now."""
    left: tuple[int, ...]
    """Those that not even SIGKILL ended: the node has to be restarted."""


class Unheeded(StepTimeout):
    """The supervisor of a job, process ``pid`` on its head ``node``, got a request to end it and did not."""

    def __init__(self, node: str, job: str, pid: int | None, seconds: float) -> None:
        super().__init__(node, f"job {job}", seconds)
        self.pid = pid
        who = "the supervisor" if pid is None else f"the supervisor, process {pid} on {node},"
        self.args = (f"{who} does not react: job {job} was asked to end {seconds:.0f} s ago, and has not",)


def end_job(job: str, head: Host, *, remote: str, grace_s: float | None = None) -> Ending:
    """Ends the job, ``grace_s`` seconds (None: as many as the job says) after its ranks got SIGTERM.

    One that has ended stays as it is, and it does not matter how often or by how many this is asked. The head
    is asked again and again, so that no single question takes long. Raises :class:`Unheeded` when the job's
    supervisor lets the time for it pass, and :class:`~launch.errors.InputError` when there is no such job.
    """
    words = ["cancel", job, *([] if grace_s is None else [f"{grace_s:g}"])]
    before: StateName | None = None
    until = None
    begun = time.monotonic()
    while True:
        told: CancelAnswer = ask(head, asked(node_code(remote), *words), timing.CANCEL_STEP_S, job)
        before = before or told["before"]
        state = JobState.from_dict(told["state"])
        if state.is_terminal:
            return Ending(state, before, tuple(told["lost"]), told["grace"])
        until = until or begun + told["within"]
        if time.monotonic() > until:
            supervisor = told["state"].get("supervisor")
            pid = None if supervisor is None else supervisor["pid"]
            raise Unheeded(head.name, job, pid, time.monotonic() - begun)


def end_supervisor(job: str, head: Host, *, remote: str) -> JobState:
    """End the supervisor of a job that does not react to a request to end it; return the job's state then.

    For when no node has anything of the job any more: it is LOST then, and its place in the queue is free.
    """
    told: ReleaseAnswer = ask(head, asked(node_code(remote), "release", job), timing.CANCEL_STEP_S, job)
    return JobState.from_dict(told["state"])


def sweep_node(job: str, node: Host, *, remote: str | None, grace_s: float) -> Swept:
    """Ends what carries the job's id on one node, without its supervisor: SIGTERM, then SIGKILL.

    It is done by this version of the node code, or by the newest there where it is None or the node lacks it.

    Raises :class:`~launch.errors.GiveUpError` for one that has none, but processes of the job.
    """
    version = version_there(node, remote, timing.CANCEL_STEP_S)
    if version is None:
        look = f"grep -lszxF RANKLIFT_JOB_ID={job} /proc/[0-9]*/environ"
        found = node.run(["sh", "-c", look], timeout=timing.CANCEL_STEP_S).stdout.decode()
        if found:
            pids = " ".join(path.split("/")[2] for path in found.split())
            raise GiveUpError(
                f"{node.name}: its ~/.ranklift is gone, the job is not: end it by `kill -9 {pids}` there"
            )
        return Swept(0, ())
    told: SweepAnswer = ask(
        node, asked(node_code(version), "sweep", job, f"{grace_s:g}"), grace_s + timing.CANCEL_STEP_S, job
    )
    return Swept(told["ended"], tuple(told["left"]))
