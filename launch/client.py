"""The operator's side of jobs: hand a plan over, watch, end, fetch. Each call is one command on the head."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from launch.errors import GiveUpError, InputError, NodeUnreachable
from launch.events import Event, JobState, Reader
from launch.fetched import CollectReport, Fetch
from launch.host import Completed, Host
from launch.plan import JobPlan
from launch.remote import protocol
from launch.remote.commands import REFUSED

__all__ = ["cancel", "collect", "follow", "list_jobs", "submit", "submit_and_follow"]

_STEP_S = 60.0
_CANCEL_S = 60.0
_NOT_FOUND = (2, 127)
_SIGNALLED = 128
"""From here on an exit status says that the command was ended, not that it gave up."""


def submit(plan: JobPlan, head: Host) -> str:
    """Hands the plan to the head and returns the job's id once a supervisor there has it.

    Raises :class:`~launch.errors.GiveUpError` when the head cannot run it.
    """
    done = head.run(_command(plan.remote, "submit"), stdin=_message(plan), timeout=_STEP_S)
    _check(done, head)
    return plan.id


def submit_and_follow(plan: JobPlan, head: Host, on_event: Callable[[Event], None]) -> JobState:
    """:func:`submit`, then :func:`follow` over the same connection; returns the job's last state.

    Interrupting it leaves the job running.
    """
    return _watch(
        head, _command(plan.remote, "submit", "--follow"), plan.id, on_event, io.BytesIO(_message(plan))
    )


def follow(
    job: str, head: Host, on_event: Callable[[Event], None], *, remote: str, tail: int | None = None
) -> JobState:
    """A job's output from its beginning (or its last ``tail`` pieces) until it ends; returns its last state.

    ``remote`` is the node code's id, as for :func:`launch.plan.plan`. Raises
    :class:`~launch.errors.InputError` when the head has no such job.
    """
    command = _command(_folder(remote), "follow", job, *([] if tail is None else [str(tail)]))
    return _watch(head, command, job, on_event, None)


def list_jobs(head: Host, *, remote: str) -> list[JobState]:
    """Every job this head has, oldest first; one whose supervisor is gone shows as LOST."""
    states = _ask(head, _command(_folder(remote), "list"), _STEP_S)
    return [JobState.from_dict(state) for state in states]


def cancel(job: str, head: Host, *, remote: str) -> JobState:
    """Ends the job and returns its state once nothing of it is left; a job that has ended stays as it is."""
    return JobState.from_dict(_ask(head, _command(_folder(remote), "cancel", job), _CANCEL_S, job))


def collect(job: str, head: Host, into: Path, *, remote: str) -> CollectReport:
    """Brings the job's logs and outputs from all its nodes into ``into/<job>/``, through the head.

    ``logs/rank-<n>.log``, ``outputs/<node>/...`` and the head's records. Files that are there already are
    kept as they are and counted. Nodes that do not answer are in the report's ``results``, the others'
    files are brought.
    """
    fetch = Fetch(job, into)
    decoder = protocol.Decoder()

    def take(data: bytes) -> None:
        for kind, payload in decoder.feed(data):
            fetch.take(kind, payload)

    with fetch:
        done = head.stream(_command(_folder(remote), "collect", job), take)
        _check(done, head, job)
    return fetch.report()


def _watch(
    head: Host, command: Sequence[str], job: str, on_event: Callable[[Event], None], stdin: io.BytesIO | None
) -> JobState:
    reader = Reader(on_event)
    heard = stdin is None  # else the head may not have the job yet

    def take(data: bytes) -> None:
        nonlocal heard
        heard = True
        reader.feed(data)

    try:
        done = head.stream(command, take, stdin=stdin)
    except NodeUnreachable as error:
        if reader.state is not None and reader.state.is_terminal:
            return reader.state
        if not heard:
            raise
        raise _without_head(head, job, error.reason) from error
    if reader.state is None or not reader.state.is_terminal:
        if done.exit_status < _SIGNALLED:
            _check(done, head, job)
        raise _without_head(head, job, "it stopped showing the job")
    return reader.state


def _without_head(head: Host, job: str, reason: str) -> NodeUnreachable:
    return NodeUnreachable(
        head.name,
        f"job {job}: its head is gone or unreachable ({reason}); if it is gone, ranks on other nodes end by "
        f"themselves within {protocol.TETHER:g} s, else the job goes on; `fab logs -f {job}` follows it "
        "again, `fab jobs` shows its state",
    )


def _ask(
    head: Host, command: Sequence[str], timeout: float, job: str | None = None
) -> list[dict[str, object]] | dict[str, object]:
    done = head.run(command, timeout=timeout)
    _check(done, head, job)
    for kind, payload in protocol.Decoder().feed(done.stdout):
        if kind == protocol.STATE:
            return json.loads(payload)  # type: ignore[no-any-return]
    raise GiveUpError(f"{head.name}: no answer to {command[-1]}")


def _folder(remote: str) -> str:
    return f".ranklift/remote/{remote}"


def _command(remote: str, *words: str) -> list[str]:
    return ["python3", "-I", "-S", f"{remote}/__main__.py", *words]


def _message(plan: JobPlan) -> bytes:
    data = json.dumps(plan.as_dict()).encode()
    return b"%010d" % len(data) + data


def _check(done: Completed, head: Host, job: str | None = None) -> None:
    if done.exit_status == 0:
        return
    said = done.stderr.decode("utf-8", "replace").strip()
    last = said.splitlines()[-1] if said else f"exit status {done.exit_status}"
    if done.exit_status == REFUSED:
        raise InputError("job", job, last, "see the list of jobs")
    if done.exit_status in _NOT_FOUND:
        raise GiveUpError(f"{head.name} lacks python3 or the project's node code ({last}): push first")
    raise GiveUpError(f"{head.name}: {last}")
