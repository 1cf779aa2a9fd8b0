"""Where a job's head is, and how what its ranks say is shown."""

from __future__ import annotations

import json
import re
import tempfile
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from infra.inventory import Inventory, Node
from launch.errors import InputError, ManyNodesError
from launch.events import Event, JobState, LogLine, Reader
from launch.host import Host
from launch.remote import protocol
from launch.remote.records import StreamReader
from playbooks import render
from playbooks.fanout import fan_out
from playbooks.project import Stack

__all__ = ["Place", "Shown", "end", "find_job", "remember", "show_so_far"]

STEP_S = 30.0
_JOB = re.compile(r"[a-z0-9][a-z0-9-]*")


class Shown:
    """Prints a job's events as they come: ranks' lines to stdout, states to stderr."""

    def __init__(self, rank: int | None = None, *, to_stderr: bool = False) -> None:
        self._rank, self._to_stderr = rank, to_stderr
        self._said = ""

    def __call__(self, event: Event) -> None:
        """Shows one event; lines of other ranks than the one asked for are passed over."""
        if isinstance(event, LogLine):
            if self._rank is None or event.rank == self._rank:
                text = event.data.decode("utf-8", "replace")
                render.log(event.rank, event.node, text, event.stream, to_stderr=self._to_stderr)
            return
        state = event.state
        self.check(state.job, state.ranks)
        if not state.is_terminal or state.state == "SUCCEEDED":  # else the error will say it
            said = f"job {state.job} {state.state}{f': {state.reason}' if state.reason else ''}"
            if said != self._said:  # its place in the queue changes as well
                render.progress(said)
            self._said = said

    def check(self, job: str, ranks: int) -> None:
        """Raises :class:`~launch.errors.InputError` when a rank was asked for that the job does not have."""
        if self._rank is not None and self._rank >= ranks:
            remedy = f"give a number from 0 to {ranks - 1}"
            raise InputError("--rank", self._rank, f"job {job} has {ranks} ranks", remedy)


def end(state: JobState) -> None:
    """Ends the command as the job ended: the first failing rank's last lines, and its exit status.

    Raises :class:`~launch.errors.JobFailed` unless the job succeeded.
    """
    failure = state.failure
    if state.is_terminal and failure is not None and failure.last_lines:
        who = "the launcher" if failure.rank is None else f"rank {failure.rank}"
        where = f" on {failure.node}" if failure.node else ""
        render.progress(f"last lines of {who}{where}:")
        for line in failure.last_lines:
            render.progress(f"  {line}")
    (state if state.reason else replace(state, reason=_unsaid(state))).check()


def _unsaid(state: JobState) -> str:
    return "it was asked to end" if state.state == "CANCELLED" else "nothing is known of why"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a job is kept, and which version of the node code it runs under."""

    head: Node
    remote: str
    """Id of the node code: a job is asked after with the version that started it."""


def remember(stack: Stack, job: str, head: str, remote: str) -> None:
    """Notes where the job is, so that later commands need not ask every node."""
    stack.jobs.mkdir(mode=0o700, exist_ok=True)
    (stack.jobs / f"{job}.json").write_text(json.dumps({"head": head, "remote": remote}) + "\n")


def find_job(stack: Stack, inventory: Inventory, job: str) -> Place:
    """Where the job is: as noted when it was launched from here, else by asking every node.

    Raises :class:`~launch.errors.InputError` when none has it.
    """
    if _JOB.fullmatch(job) is None:
        raise InputError("job", job, "is no job's id", "see `fab jobs`")
    by_name = {node.name: node for node in inventory.nodes}
    note = stack.jobs / f"{job}.json"
    if note.exists():
        noted = json.loads(note.read_text())
        if noted["head"] in by_name:
            return Place(by_name[noted["head"]], noted["remote"])
    from playbooks.connections import Cluster

    with Cluster(inventory, stack.folder) as cluster:

        def ask(name: str) -> bytes:
            with cluster.host(by_name[name]) as host:
                return host.run(["cat", f".ranklift/jobs/{job}/job.json"], timeout=STEP_S).stdout

        answers = fan_out(ask, by_name, what="looking for the job", timeout=STEP_S + 1)
    for name, answer in answers.items():
        if isinstance(answer, bytes) and answer:
            remote = PurePosixPath(json.loads(answer)["remote"]).name
            remember(stack, job, name, remote)
            return Place(by_name[name], remote)
    if any(isinstance(answer, Exception) for answer in answers.values()):
        # It may be on one of those.
        raise ManyNodesError(f"looking for job {job}", answers)
    raise InputError("job", job, f"no node of stack {stack.name} has it", "see `fab jobs`")


def show_so_far(job: str, head: Host, shown: Shown) -> None:
    """What the job's ranks have said until now, without waiting for more.

    Raises :class:`~launch.errors.InputError` when the head has no such job.
    """
    folder = f".ranklift/jobs/{job}"
    state = head.run(["cat", f"{folder}/state.json"], timeout=STEP_S)
    if state.exit_status != 0:
        raise InputError("job", job, f"{head.name} has no such job", "see `fab jobs`")
    told = json.loads(state.stdout)
    shown.check(job, told["ranks"])
    log = head.run(["cat", f"{folder}/stream.log"])
    with tempfile.NamedTemporaryFile() as copy:
        copy.write(log.stdout)
        copy.flush()

        def line(event: Event) -> None:
            if isinstance(event, LogLine):
                shown(event)

        reader = Reader(line)
        # The reader wants to know the nodes first, and the end last: unfinished lines come out then.
        reader.feed(protocol.frame(protocol.STATE, json.dumps({**told, "state": "RUNNING"}).encode()))
        for record, _ in StreamReader(copy.name).read():
            reader.feed(protocol.frame(protocol.OUT, record))
        reader.feed(protocol.frame(protocol.STATE, json.dumps({**told, "state": "SUCCEEDED"}).encode()))
