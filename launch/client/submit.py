"""Submit jobs, follow them and wait for their ends. Each call is one command on the head."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import PurePosixPath

from launch.client.events import Event, JobState, Reader
from launch.client.log_filter import ALL, Selection
from launch.client.rpc import check, readable, rpc_argv
from launch.errors import GiveUpError, NodeUnreachable, StepTimeout
from launch.host import Host
from launch.job.plan import JobPlan
from launch.remote.base import timing
from launch.remote.base.frames import ProtocolError

__all__ = ["follow", "submit", "submit_and_follow", "wait_for_end"]

_SIGNALLED = 128
"""Exit statuses from this one on mean that a signal ended the command, not that it gave up."""


def submit(plan: JobPlan, head: Host) -> str:
    """Submit the plan to the head; return the job's id once a supervisor there has it.

    Raise :class:`~launch.errors.NotPushed`, with nothing done, when not every node of the plan holds the
    node code and its snapshots as far as the head knows; :class:`~launch.errors.GiveUpError` when the head
    cannot run the plan.
    """
    done = head.run(_submit_argv(plan), stdin=_message(plan), timeout=timing.STEP_S)
    check(done, head)
    return plan.id


def submit_and_follow(plan: JobPlan, head: Host, on_event: Callable[[Event], None]) -> JobState:
    """Submit the plan and follow the job over the same connection; return the job's last state. An interrupt
    leaves the job running."""
    command = _submit_argv(plan, "--follow")
    reader = Reader(on_event, partial(_expect, plan), plan.id)
    return _watch(head, command, plan.id, reader, io.BytesIO(_message(plan)))


def follow(
    job: str,
    head: Host,
    on_event: Callable[[Event], None],
    *,
    remote: str,
    selection: Selection = ALL,
    wait: bool = True,
) -> JobState:
    """Report a job's output, as far as ``selection`` lets it pass, until the job ends; return its last state.

    Without ``wait``, report the output so far and return the present state. ``remote`` is the node code's id,
    as for :func:`launch.job.plan.plan`. Raise :class:`~launch.errors.InputError` when the head has no such
    job, or the job no such ranks or nodes.
    """
    command = rpc_argv(remote, "follow", job, selection.as_query(wait=wait))
    reader = Reader(on_event, partial(selection.check, job), job)
    if wait:
        return _watch(head, command, job, reader)
    with readable(head):
        done = head.stream(command, reader.feed)
    check(done, head, job)
    reader.end()
    if reader.state is None:
        raise GiveUpError(f"{head.name}: the job's output came without its state")
    return reader.state


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
        reader = Reader(lambda _: None, job=job)
        left = None if deadline is None else max(0.1, deadline - time.monotonic())
        try:
            with readable(head):
                done = head.stream(command, take, timeout=left)
            if done.exit_status < _SIGNALLED:
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


def _watch(
    head: Host, command: Sequence[str], job: str, reader: Reader, stdin: io.BytesIO | None = None
) -> JobState:
    heard = stdin is None  # else the head may not have the job yet

    def take(data: bytes) -> None:
        nonlocal heard
        heard = True
        reader.feed(data)

    try:
        with readable(head):
            done = head.stream(command, take, stdin=stdin)
    except NodeUnreachable as error:
        if reader.state is not None and reader.state.is_terminal:
            return reader.state
        if not heard:
            raise
        raise _without_head(head, job, error.reason) from error
    if reader.state is None or not reader.state.is_terminal:
        if done.exit_status < _SIGNALLED:
            check(done, head, job)
        raise _without_head(head, job, "it stopped sending the job's output")
    return reader.state


def _expect(plan: JobPlan, nodes: Sequence[str], ranks: int) -> None:
    planned = sum(len(node.ranks) for node in plan.nodes)
    if ranks != planned or list(nodes) != [node.node.name for node in plan.nodes]:
        raise ProtocolError(f"a job of {ranks} ranks on {len(nodes)} nodes, which is not what was submitted")


def _without_head(head: Host, job: str, reason: str) -> NodeUnreachable:
    return NodeUnreachable(
        head.name,
        f"job {job}: its head is gone or unreachable ({reason}); if it is gone, ranks on other nodes end by "
        f"themselves within {timing.TETHER_S:g} s, else the job continues; `fab logs -f {job}` follows it "
        "again, `fab jobs` shows its state",
    )


def _submit_argv(plan: JobPlan, *words: str) -> list[str]:
    return rpc_argv(PurePosixPath(plan.remote).name, "submit", *words)


def _message(plan: JobPlan) -> bytes:
    data = json.dumps(plan.as_dict()).encode()
    return b"%010d" % len(data) + data
