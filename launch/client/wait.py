"""The wait for a job's end over a connection that may break."""

from __future__ import annotations

import time
from collections.abc import Callable

from launch.client.events import JobState, Reader
from launch.client.rpc import check, readable, rpc_argv
from launch.errors import NodeUnreachable, StepTimeout
from launch.host import Host
from launch.remote.base import timing

__all__ = ["wait_for_end"]

_ENDED_BY_SIGNAL = 128


def wait_for_end(
    job: str,
    head: Host,
    *,
    remote: str,
    timeout: float | None = None,
    on_break: Callable[[str], None] = lambda _: None,
    patience: float = timing.HEAD_GONE_S,
) -> JobState:
    """Wait until the job has ended or ``timeout`` seconds have passed; return its state then.

    After a break of the connection, retry the head for ``patience`` seconds, then raise
    :class:`~launch.errors.NodeUnreachable` naming the head. ``on_break`` gets each break's reason once.
    Raise :class:`~launch.errors.InputError` when there is no such job.
    """
    command = rpc_argv(remote, "wait", job)
    deadline = None if timeout is None else time.monotonic() + timeout
    state: JobState | None = None
    heard = time.monotonic()
    is_reported = False

    def take(data: bytes) -> None:
        nonlocal heard, state, is_reported
        heard, is_reported = time.monotonic(), False
        reader.feed(data)
        state = reader.state or state

    while True:
        reader = Reader(lambda _: None)
        left = None if deadline is None else max(0.1, deadline - time.monotonic())
        try:
            with readable(head):
                done = head.stream(command, take, timeout=left)
            if done.exit_status < _ENDED_BY_SIGNAL:
                check(done, head, job)
            reason = "it stopped reporting the job's state"
        except StepTimeout as error:
            reason = str(error)
        except NodeUnreachable as error:
            reason = error.reason
        is_late = deadline is not None and time.monotonic() > deadline
        if state is not None and (state.is_terminal or is_late):
            return state
        if is_late or time.monotonic() - heard > patience:
            silent = time.monotonic() - heard
            raise NodeUnreachable(head.name, f"no answer about job {job} for {silent:.0f} s ({reason})")
        if not is_reported:
            is_reported = True
            on_break(reason)
        time.sleep(timing.ASK_AGAIN_S)
