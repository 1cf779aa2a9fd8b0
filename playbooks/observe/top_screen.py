"""The screen of ``top`` as lines: a pure function of the rows, the view, the connection and the size."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from launch.client.events import JobState
from launch.numbers import counted
from launch.printable import for_terminal
from playbooks.cli.styled import Line, Span, Style, cut
from playbooks.observe.quantities import duration, metric
from playbooks.observe.top_columns import choose_columns, header_line, node_line, rank_header_line, rank_line
from playbooks.observe.top_rows import NodeRow, Row, TopRows, rows_in_view
from playbooks.observe.top_view import View

__all__ = ["HELP", "Link", "Screen", "draw"]

_STYLES: dict[str, Style] = {
    **{"RUNNING": "green", "SUCCEEDED": "green"},
    **{"INCOMPLETE": "red", "FAILED": "red", "LOST": "red", "CANCELLED": "red"},
}
_MOST_JOBS = 9
"""Jobs that a key chooses."""
_TEXTS_PART = 5
"""Part of the screen's lines that flags may take, and the job's reason."""
_LAST_LINES = 3
HELP = (
    ("up, down, j, k", "one row"),
    ("PgUp, PgDn, blank", "one page"),
    ("Home, End, g, G", "first and last row"),
    ("s", "sort by node, cpu, silence of ranks, flags"),
    ("r", "show or hide the ranks of each node"),
    ("f", "only nodes and ranks with a flag, or all"),
    ("1-9, tab", "another job"),
    ("Ctrl-L", "draw again"),
    ("?", "this help, and back"),
    ("q, Ctrl-C", "end; jobs are not affected"),
)
_HELP_LINES: Sequence[Line] = (
    (("fab top", "bold"),),
    (),
    *(((f"  {keys:<20}", "bold"), (text, "")) for keys, text in HELP),
)


@dataclass(frozen=True, slots=True)
class Link:
    """The connection to the job's head."""

    head: str
    silent_s: float = 0.0
    """Seconds without any answer; 0 while answers come."""
    reason: str = ""
    """Why the connection broke; empty where the head is only silent."""


@dataclass(frozen=True, slots=True)
class Screen:
    """Lines, as many as there are on the terminal, and what a key needs of them."""

    lines: tuple[Line, ...]
    rows: int
    height: int
    """Rows that fit."""
    with_ranks: bool
    view: View


def draw(
    shown: TopRows | None,
    jobs: Sequence[JobState],
    chosen: str,
    view: View,
    link: Link | None,
    size: tuple[int, int],
) -> Screen:
    """Return the screen of ``size`` (columns, lines).

    ``shown`` is None until the first answer about the job ``chosen``; ``jobs`` are those that keys choose;
    ``link`` is None where there is no connection to speak of, as in a screen that is printed once.
    """
    width, height = size
    if view.help:
        return Screen(_exactly(_HELP_LINES, width, height), 0, 1, False, view)
    few = max(1, height // _TEXTS_PART)
    top = [*_job_lines(shown, jobs, chosen, (width, few)), *_link_lines(shown, link)]
    if shown is None:
        return Screen(_exactly(top, width, height), 0, 1, False, view)
    top += _end_lines(shown.job, (width, few))
    top += _flag_lines(shown.flags, few)
    foot = 1 if link is not None else 0
    body = max(1, height - len(top) - 1 - foot)
    with_ranks = any(node.ranks for node in shown.nodes) and (
        view.ranks if view.ranks is not None else _all_fit(shown, body - 1)
    )
    body = max(1, body - with_ranks)
    rows = rows_in_view(shown, view, with_ranks=with_ranks)
    view = view.within(len(rows), body)
    columns = choose_columns(shown, width)
    visible = _with_node(rows, view.first, body)
    metrics = list(shown.spread)
    lines: list[Line] = [*top, header_line(columns, shown)]
    if with_ranks:
        lines.append(rank_header_line(width, metrics))
    for row in visible:
        lines.append(node_line(row, columns) if isinstance(row, NodeRow) else rank_line(row, width, metrics))
    if view.only_flagged and not rows:
        lines.append(((" no node has a flag", "dim"),))
    made = _exactly(lines, width, height)
    if foot:
        made = (*made[:-1], cut(_foot(view, rows, len(visible), with_ranks=with_ranks), width))
    return Screen(made, len(rows), body, with_ranks, view)


def _with_node(rows: Sequence[Row], first: int, count: int) -> list[Row]:
    """Return the rows from ``first`` on; the first is a node, if need be in place of one of its ranks."""
    visible = list(rows[first : first + count])
    if len(visible) > 1 and not isinstance(visible[0], NodeRow):
        visible[0] = next(row for row in reversed(rows[:first]) if isinstance(row, NodeRow))
    return visible


def _all_fit(shown: TopRows, body: int) -> bool:
    return len(shown.nodes) + sum(len(node.ranks) for node in shown.nodes) <= body


def _exactly(lines: Sequence[Line], width: int, height: int) -> tuple[Line, ...]:
    made = [cut(line, width) for line in lines[:height]]
    return (*made, *[()] * (height - len(made)))


def _wrapped(text: str, style: Style, room: tuple[int, int]) -> list[Line]:
    """Return a text in lines of a width, at most as many as there is room for; ``fab job`` has all of it."""
    width, most = room
    text = for_terminal(text[: width * (most + 1)])  # tabs of megabytes take seconds
    made = textwrap.wrap(text, max(2, width), max_lines=most, placeholder=" …")
    return [((line, style),) for line in made]


def _job_lines(
    shown: TopRows | None, jobs: Sequence[JobState], chosen: str, room: tuple[int, int]
) -> list[Line]:
    lines: list[Line] = []
    if shown is None:
        lines.append(((chosen, "bold"), ("  waits for its head's answer", "dim")))
    else:
        job = shown.job
        end = job.ended.timestamp() if job.ended else shown.now
        began = job.started.timestamp() if job.started else job.created.timestamp()
        words = [f"{counted(len(job.nodes), 'node')}, {counted(job.ranks, 'rank')}"]
        if job.restarts:
            words.append(counted(job.restarts, "restart"))
        if job.place:
            words.append(f"place {job.place} in its head's queue")
        state = f"{job.state}, being cancelled" if job.cancelling and not job.is_terminal else job.state
        lines.append(
            (
                (job.job, "bold"),
                ("  ", ""),
                (state, _STYLES.get(job.state, "yellow")),
                (f"  {'waited' if job.started is None else 'for'} {duration(end - began)}  ", ""),
                ("  ".join(words), ""),
            )
        )
    if len(jobs) > 1:
        lines.append(_choice_line(jobs, chosen))
    if shown is not None and shown.spread:
        lines.append(tuple(_spread_spans(shown)))
    if shown is not None and not shown.job.is_terminal and shown.job.reason:
        lines += _wrapped(shown.job.reason, "yellow", room)
    return lines


def _choice_line(jobs: Sequence[JobState], chosen: str) -> Line:
    spans: list[Span] = [("jobs:", "dim")]
    for number, job in enumerate(jobs[:_MOST_JOBS], start=1):
        place = f" (place {job.place})" if job.place else ""
        style: Style = "reverse" if job.job == chosen else ""
        spans += [("  ", ""), (f"{number} {job.job} {job.state}{place}", style)]
    if len(jobs) > _MOST_JOBS:
        spans.append((f"  and {len(jobs) - _MOST_JOBS} more: `fab jobs`", "dim"))
    return tuple(spans)


def _spread_spans(shown: TopRows) -> list[Span]:
    spans: list[Span] = []
    for name, (low, high) in shown.spread.items():
        values = metric(low) if low == high else f"{metric(low)} to {metric(high)}"
        spans += [(f"{name} ", "dim"), (f"{values}   ", "")]
    return spans


def _link_lines(shown: TopRows | None, link: Link | None) -> list[Line]:
    if link is None or not link.silent_s:
        return []
    kept = "; below is what it last sent" if shown is not None else ""
    why = f" ({link.reason})" if link.reason else ""
    words = f"no answer for {duration(link.silent_s)} from {link.head}, connects again{kept}{why}"
    return [((words, "reverse"),)]


def _end_lines(job: JobState, room: tuple[int, int]) -> list[Line]:
    if not job.is_terminal:
        return []
    words = f"ended {job.state}"
    if job.exit_status is not None:
        words += f", exit status {job.exit_status}"
    words = f"{words}: {job.reason}" if job.reason else words
    lines = _wrapped(words, _STYLES.get(job.state, ""), room)
    if job.failure is not None:
        lines.append(((f"first failure: {job.failure.who}; its last lines:", ""),))
        lines += [((f"  {line}", "dim"),) for line in job.failure.last_lines[-_LAST_LINES:]]
    return lines


def _flag_lines(flags: Sequence[str], most: int) -> list[Line]:
    if len(flags) <= most:
        return [(("! ", "yellow"), (flag, "")) for flag in flags]
    more = f"and {len(flags) - most + 1} more: f shows their nodes alone"
    return [*((("! ", "yellow"), (flag, "")) for flag in flags[: most - 1]), (("! ", "yellow"), (more, ""))]


def _foot(view: View, rows: Sequence[Row], visible: int, *, with_ranks: bool) -> Line:
    last = view.first + visible
    where = f"{view.first + 1}-{last} of {len(rows)}  " if visible < len(rows) else ""
    words = [
        f"{where}q quit",
        "? help",
        f"s sort: {view.sorting}",
        f"r {'hide' if with_ranks else 'show'} ranks",
        f"f {'all nodes' if view.only_flagged else 'flagged only'}",
    ]
    return (("  ".join(words), "dim"),)
