"""A job's events, its end, and what it left in its working folders, on the terminal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from infra.inventory import Inventory
from launch.client.events import Event, JobState, LogLine, Quiet, StateChange, StreamName
from launch.client.left_files import LeftFiles, left_on, left_words, merged
from launch.client.log_display import Bars, Merge, matches
from launch.client.query import Happening, show_job
from launch.errors import RankliftError
from playbooks.cli import output
from playbooks.cli.merged_output import grouped
from playbooks.nodes.busy import COLLECTED
from playbooks.project import Stack
from playbooks.ssh.fanout import fan_out_hosts
from playbooks.start import sleep_while_read

if TYPE_CHECKING:
    from launch.code.failure_hints import PushedCode
    from launch.environment.environment_spec import Environment
    from launch.host import Host
    from playbooks.ssh.connection import Cluster

__all__ = [
    "EventPrinter",
    "detached_job_commands",
    "end_as",
    "left_by",
    "left_lines",
    "report_left",
]
_LACKS = re.compile(rb"(?:\[\w+\]: ?)?(?:ModuleNotFoundError|ImportError|FileNotFoundError): ")
"""Begins the last line of a traceback; torch puts the rank before it."""
_LOOK_S = 4.0
"""Limit of the look at what a job left: a silent node may not delay the report of the job's end."""
_KEPT = """\
d=.ranklift/jobs/$1
if [ "$2/$1" -nt "$d/state.json" ]; then echo collected; fi
if [ -n "$(find "$d/logs" -type f -size +0c | head -n 1)" ]; then echo logs; fi
if [ -n "$(find "$d/outputs/" -type f | head -n 1)" ]; then echo outputs; fi
"""
"""Prints what a node has of a job that a collect would copy, and whether one has, by the note on the head."""


class EventPrinter:
    """Prints a job's events as they come: ranks' lines to stdout, states to stderr.

    With ``pattern`` only lines that match it; with ``json`` each line as a record; with ``merge`` a line that
    many ranks print at the same time once; with ``lines_only`` no states. A state right at the beginning is
    printed without the id of a job that is ``named`` already. :meth:`finish` prints what merging still holds
    back.
    """

    def __init__(
        self,
        *,
        pattern: re.Pattern[str] | None = None,
        merge: bool = False,
        lines_only: bool = False,
        to_stderr: bool = False,
        json: bool = False,
        named: str = "",
    ) -> None:
        self._json, self._named = json, named
        self._pattern, self._lines_only, self._to_stderr = pattern, lines_only, to_stderr
        self._merge = Merge() if merge else None
        self._bars = Bars()
        self.error_line = ""
        """The last line of a traceback that may name what the job lacked."""

    def __call__(self, event: Event) -> None:
        """Print one event, or hold it back until others show whether they are equal."""
        if isinstance(event, Quiet):
            sleep_while_read(0)
        if isinstance(event, LogLine):
            if _LACKS.match(event.data):
                self.error_line = event.data.decode("utf-8", "replace")
            is_shown = self._json or self._bars.shows(event)
            if not is_shown or (self._pattern and not matches(event, self._pattern)):
                return
            if self._json:
                output.as_json(event, indent=None)
            elif self._merge is None:
                self._print((event.rank,), (event.node,), event.data, event.stream)
        if self._merge is not None:
            for line in self._merge.feed(event):
                self._print(line.ranks, line.nodes, line.data, line.stream)
        if isinstance(event, StateChange) and not self._lines_only:
            state = event.state
            if not state.is_terminal or state.state == "SUCCEEDED":  # the error reports any other end
                reason = f": {state.reason}" if state.reason else ""
                front = "" if state.job == self._named else f"job {state.job} "
                output.progress(f"{front}{state.state}{reason}")
        if not isinstance(event, Quiet):
            self._named = ""

    def finish(self) -> None:
        """Print what merging holds back: no more events will come."""
        if self._merge is not None:
            for line in self._merge.rest():
                self._print(line.ranks, line.nodes, line.data, line.stream)

    def _print(
        self, ranks: Sequence[int | None], nodes: Sequence[str], data: bytes, stream: StreamName
    ) -> None:
        output.log(ranks, nodes, data, stream, to_stderr=self._to_stderr)


def end_as(
    state: JobState,
    error_line: str = "",
    code: PushedCode | None = None,
    environment: Environment | None = None,
) -> None:
    """End the command as the job ended: print the first failing rank's last lines and hints at what the job
    lacked, raise its failure.

    ``error_line`` is :attr:`EventPrinter.error_line`; ``code`` and ``environment`` are the job's, where they
    are known. Raises :class:`~launch.errors.JobFailed` unless the job succeeded.
    """
    failure = state.failure
    last = () if failure is None else failure.last_lines
    if state.is_terminal and failure is not None and last:
        output.progress(f"last lines of {failure.who}:")
        for line in last:
            output.progress(f"  {line}")
    if state.state == "FAILED":
        from launch.code.failure_hints import missing_hints
        from launch.environment.environment_spec import Bare

        made = None if isinstance(environment, Bare) else environment
        runs_in = "" if made is None else made.title or "the job file's own"
        hints = missing_hints([*last, state.reason], code, runs_in)
        for hint in hints or missing_hints([error_line], code, runs_in):
            output.progress(hint)
    (state if state.reason else replace(state, reason=_default_reason(state))).check()


def _default_reason(state: JobState) -> str:
    return "cancel requested" if state.state == "CANCELLED" else "reason unknown"


def left_by(
    state: JobState, events: Iterable[Happening], inventory: Inventory, cluster: Cluster, remote: str
) -> tuple[LeftFiles | None, dict[str, str]]:
    """Return what the job left on its nodes, None for nothing, and by node why that is unknown.

    A job that has not ended, or whose ranks were never started, is not looked at, nor is a node that it lost
    by its ``events``: that one would keep the job's end from being reported.
    """
    if not state.is_terminal or state.started is None:
        return None, {}
    lost = {event.fields.get("node") for event in events if event.event == "lost-node"}
    nodes = [node for node in inventory.nodes if node.name in state.nodes and node.name not in lost]
    answers = fan_out_hosts(
        cluster.host,
        nodes,
        lambda host: left_on(host, remote, state.job),
        what="looking for files that the job left",
        timeout=_LOOK_S,
    )
    unknown = {
        node: "the job lost the node" if node in lost else "the node was removed"
        for node in state.nodes
        if node not in answers
    }
    parts: list[LeftFiles] = []
    for node, answer in answers.items():
        if isinstance(answer, Exception):
            unknown[node] = str(answer).removeprefix(f"{node}: ")
        else:
            parts += answer.values()
    return merged(parts), dict(sorted(unknown.items()))


def left_lines(job: str, left: LeftFiles | None, unknown: dict[str, str]) -> Iterator[str]:
    """Yield in words what :func:`left_by` returned."""
    yield from left_words({} if left is None else {job: left})
    reasons = {
        node: f"what {job} left in its working folder is unknown: {why}" for node, why in unknown.items()
    }
    yield from grouped(reasons)


def report_left(
    state: JobState, inventory: Inventory, cluster: Cluster, remote: str, *, is_watched: bool = False
) -> None:
    """Print what the job left, once it has ended; for a job that a user has watched, the next command too."""
    events: Sequence[Happening] = ()
    head = next((node for node in inventory.nodes if state.nodes[:1] == (node.name,)), None)
    if state.is_terminal and state.state != "SUCCEEDED" and head is not None:
        with suppress(RankliftError):  # how the job ended is known, whatever its head does now
            events = show_job(state.job, cluster.host(head), remote=remote).events
    for line in left_lines(state.job, *left_by(state, events, inventory, cluster, remote)):
        output.progress(line)
    if is_watched:
        _report_uncollected(state, inventory, cluster)


def _report_uncollected(state: JobState, inventory: Inventory, cluster: Cluster) -> None:
    """Print the command that collects a job which succeeded; nothing where that has been done, or where the
    nodes have nothing of it."""
    if state.state != "SUCCEEDED" or state.started is None:
        return

    def query(host: Host) -> set[str]:
        words = ["sh", "-c", _KEPT, "sh", state.job, COLLECTED]
        return {*host.run(words, timeout=_LOOK_S).stdout.decode("utf-8", "replace").split()}

    nodes = [node for node in inventory.nodes if node.name in state.nodes]
    what = "looking for its logs and outputs"
    answers = fan_out_hosts(cluster.host, nodes, query, what=what, timeout=_LOOK_S)
    found = {word for answer in answers.values() if isinstance(answer, set) for word in answer}
    kept = [word for word in ("logs", "outputs") if word in found]
    if kept and "collected" not in found:
        output.progress(
            f"its {' and '.join(kept)} are on the nodes: `fab collect {state.job} --stack {inventory.stack}` "
            "copies them here"
        )


def detached_job_commands(stack: Stack, job: str) -> str:
    """Return the commands for a job that no command follows any more."""
    choices = (("follow", f"logs -f {job}"), ("cancel", f"cancel {job}"), ("fetch", f"collect {job}"))
    return "\n".join(f"  {what}: fab {words} --stack {stack.name}" for what, words in choices)
