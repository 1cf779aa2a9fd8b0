"""Where a job's head is, and how what its ranks say is shown."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from infra.inventory import Inventory, Node
from launch.client.events import Event, JobState, LogLine, StateChange, StreamName
from launch.client.log_display import Bars, Merge, matches
from launch.client.rpc import code_of
from launch.errors import InputError, ManyNodesError, NoSuchJob, RankliftError
from playbooks.cli import output
from playbooks.project import Stack
from playbooks.ssh.fanout import fan_out

__all__ = ["Place", "Shown", "end", "find_job", "forget", "how_to_go_on", "note_of", "remember"]

STEP_S = 30.0
_JOB = re.compile(r"[a-z0-9][a-z0-9-]*")


class Shown:
    """Prints a job's events as they come: ranks' lines to stdout, states to stderr.

    Only lines with ``pattern`` in them; with ``merge`` those that many ranks say at the same time once;
    states unless ``lines_only``. :meth:`finish` prints what merging still holds back.
    """

    def __init__(
        self,
        *,
        pattern: re.Pattern[str] | None = None,
        merge: bool = False,
        lines_only: bool = False,
        to_stderr: bool = False,
    ) -> None:
        self._pattern, self._lines_only, self._to_stderr = pattern, lines_only, to_stderr
        self._merge = Merge() if merge else None
        self._bars = Bars()

    def __call__(self, event: Event) -> None:
        """Shows one event, or keeps it until others show whether they say the same."""
        if isinstance(event, LogLine):
            if not self._bars.shows(event) or (self._pattern and not matches(event, self._pattern)):
                return
            if self._merge is None:
                self._show((event.rank,), (event.node,), event.data, event.stream)
        if self._merge is not None:
            for line in self._merge.feed(event):
                self._show(line.ranks, line.nodes, line.data, line.stream)
        if isinstance(event, StateChange) and not self._lines_only:
            state = event.state
            if not state.is_terminal or state.state == "SUCCEEDED":  # else the error will say it
                reason = f": {state.reason}" if state.reason else ""
                output.progress(f"job {state.job} {state.state}{reason}")

    def finish(self) -> None:
        """No more events will come."""
        if self._merge is not None:
            for line in self._merge.rest():
                self._show(line.ranks, line.nodes, line.data, line.stream)

    def _show(
        self, ranks: Sequence[int | None], nodes: Sequence[str], data: bytes, stream: StreamName
    ) -> None:
        output.log(ranks, nodes, data, stream, to_stderr=self._to_stderr)


def end(state: JobState) -> None:
    """Ends the command as the job ended: the first failing rank's last lines, and its exit status.

    Raises :class:`~launch.errors.JobFailed` unless the job succeeded.
    """
    failure = state.failure
    if state.is_terminal and failure is not None and failure.last_lines:
        output.progress(f"last lines of {failure.who}:")
        for line in failure.last_lines:
            output.progress(f"  {line}")
    (state if state.reason else replace(state, reason=_unsaid(state))).check()


def _unsaid(state: JobState) -> str:
    return "it was asked to end" if state.state == "CANCELLED" else "nothing is known of why"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a job is kept, and which version of the node code it runs under."""

    head: Node
    remote: str
    """Id of the node code: a job is asked after with the version that started it."""


def remember(stack: Stack, job: str, head: str, remote: str, *, taken: bool = True) -> None:
    """Notes where the job is, so that later commands need not ask every node; where it is meant to be, until
    its head has ``taken`` it.

    On a full disk nothing is noted, and they do ask.
    """
    noted = {"head": head, "remote": remote, **({} if taken else {"taken": False})}
    with suppress(OSError):
        stack.jobs.mkdir(mode=0o700, exist_ok=True)
        note_of(stack, job).write_text(json.dumps(noted) + "\n")


def forget(stack: Stack, job: str) -> None:
    """Takes the note of a job away: nothing was made of it."""
    with suppress(OSError):
        note_of(stack, job).unlink()


def note_of(stack: Stack, job: str) -> Path:
    """The file in which :func:`remember` notes where the job is."""
    return stack.jobs / f"{job}.json"


def find_job(stack: Stack, inventory: Inventory, job: str) -> Place:
    """Where the job is: as noted when it was launched from here, else by asking every node.

    Raises :class:`~launch.errors.InputError` when none has it, or it never reached its head.
    """
    if _JOB.fullmatch(job) is None:
        raise InputError("job", job, "is no job's id", "see `fab jobs`")
    by_name = {node.name: node for node in inventory.nodes}
    place, is_taken = None, False
    with suppress(OSError, ValueError, LookupError, TypeError, RecursionError):  # no note, or half of one
        noted = json.loads(note_of(stack, job).read_text())
        place = Place(by_name[noted["head"]], noted["remote"])
        is_taken = noted.get("taken", True)
    if place is not None and is_taken:
        return place
    from playbooks.ssh.connection import Cluster

    with Cluster(inventory, stack.folder) as cluster:

        def ask(name: str) -> bytes:
            with cluster.host(by_name[name]) as host:
                return host.run(["cat", f".ranklift/jobs/{job}/job.json"], timeout=STEP_S).stdout

        if place is not None:
            _see_that_it_came(stack, job, place, ask)
            return place
        answers = fan_out(ask, by_name, what="looking for the job", timeout=STEP_S + 1)
    for name, answer in answers.items():
        if isinstance(answer, bytes) and answer:
            remote = code_of(answer, name)
            remember(stack, job, name, remote)
            return Place(by_name[name], remote)
    if any(isinstance(answer, Exception) for answer in answers.values()):
        # It may be on one of those.
        raise ManyNodesError(f"looking for job {job}", answers)
    raise NoSuchJob(job, f"no node of stack {stack.name} has it")


def _see_that_it_came(stack: Stack, job: str, place: Place, ask: Callable[[str], bytes]) -> None:
    """The launch may have been cut short on either side of the hand-over."""
    head = place.head.name
    try:
        plan = ask(head)
    except RankliftError:
        return  # whoever wanted the job will find its head as silent
    if not plan:
        raise InputError("job", job, f"never reached its head {head}: nothing was started", "launch it again")
    remember(stack, job, head, place.remote)


def how_to_go_on(stack: Stack, job: str) -> str:
    """The commands for a job that nobody watches any more."""
    choices = (("follow", f"logs -f {job}"), ("cancel", f"cancel {job}"), ("fetch", f"collect {job}"))
    return "\n".join(f"  {what}: fab {words} --stack {stack.name}" for what, words in choices)
