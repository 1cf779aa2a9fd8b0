"""The report of a job as one HTML file, which reads nothing else and runs nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from launch.client.query import Happening
from launch.durations import span as duration
from launch.html_page import html_page
from launch.moments import utc
from launch.nodeset import fold, ranges
from launch.numbers import counted
from launch.printable import for_terminal
from launch.remote.base.messages import size
from launch.report.advice import advise
from launch.report.charts import HEIGHT, WIDTH, Chart, Coordinates, band_charts, phase_bars, rate_chart
from launch.report.cost import NodePrice, cost_text
from launch.report.facts import JobFacts, NodeFigures, parts_of, read_lines, usual
from launch.report.summary import goodput_text

__all__ = ["report_page"]

_LINES = 40
"""Lines of one proof of transport that are shown."""
_LONGEST = 2000
"""Characters of a text that are shown: a page of many such texts has to stay small."""
_COLOURS = (
    *(("stage-code", 3), ("stage-data", 3), ("stage-environment", 3), ("queue", 7), ("probe", 6)),
    *(("start", 5), ("look", 1), ("run", 2), ("end", 4), ("upload", 0)),
)
"""Colour of each phase, by its number."""
_LEGEND = 8
"""Nodes up to which each line of a chart is named in a legend; titles name them all."""


def report_page(facts: JobFacts, price: NodePrice, made: datetime) -> str:
    """Return the page, made at this time. Every text of the job is shown as text, whatever is in it."""
    state = facts.report.state
    rate = None if facts.history is None else rate_chart(facts.history)
    return html_page(
        "launch.report",
        "report.html.j2",
        _shown,
        job=state.job,
        state=state.state,
        reason=state.reason,
        goodput=goodput_text(facts) if facts.spans else "unknown: its node code records no phases",
        made=utc(made),
        facts=[row for row in _facts(facts) if row.text],
        bars=phase_bars(facts.spans),
        colours=_COLOURS,
        width=WIDTH,
        height=HEIGHT,
        total=duration(facts.total_s),
        parts=_parts(facts),
        spans=[
            (
                one.phase,
                one.title,
                one.attempt,
                duration(one.seconds),
                size(one.bytes) if one.bytes else "",
                one.verdict,
            )
            for one in facts.spans
        ],
        advice=advise(facts),
        flags=facts.flags,
        rate=rate,
        legend=() if rate is None or len(rate.lines) > _LEGEND else rate.lines,
        charts=_bands(facts),
        lines=read_lines(facts),
        nodes=_node_rows(facts),
        probes=_probes(facts.report.events),
        failures=list(_failures(facts.report.events)),
        cost=cost_text(facts, price),
    )


@dataclass(frozen=True, slots=True)
class _Fact:
    """A row of what is known of a job; ``text`` is empty for what it does not have."""

    name: str
    text: str


def _facts(facts: JobFacts) -> Iterator[_Fact]:
    report = facts.report
    state = report.state
    yield _Fact(
        "command", "\n".join(report.command) if len(report.command) == 1 else " ".join(report.command)
    )
    yield _Fact("ran", f"{counted(state.ranks, 'rank')} on {fold(state.nodes)}, {state.kind}")
    yield _Fact("code", f"snapshot {report.code}" if report.code else "")
    environment = report.environment
    yield _Fact(
        "environment",
        "" if environment["kind"] == "bare" else f"{environment['title']} ({environment['kind']})",
    )
    for one in report.data:
        yield _Fact(
            "data", f"{one['name']}: {one['url']}, {counted(one['files'], 'file')}, {size(one['bytes'])}"
        )
    yield _Fact("display name", state.display_name)
    yield _Fact("experiment", state.experiment)
    yield _Fact("description", state.description)
    yield _Fact("tags", ", ".join(f"{name}={value}" for name, value in state.tags.items()))
    yield _Fact("created", utc(state.created))
    yield _Fact("started", utc(state.started))
    yield _Fact("ended", utc(state.ended))
    yield _Fact("exit status", "" if state.exit_status is None else str(state.exit_status))
    yield _Fact("restarts", f"{state.restarts} of {report.max_restarts}" if report.max_restarts else "")
    yield _Fact("limit", "" if report.timeout_s is None else duration(report.timeout_s))
    yield _Fact("records", report.folder)


def _parts(facts: JobFacts) -> list[tuple[str, str, str]]:
    total = facts.total_s or 1.0
    return [
        (one.name, duration(one.seconds), f"{100 * one.seconds / total:.1f} %") for one in parts_of(facts)
    ]


def _bands(facts: JobFacts) -> Sequence[Chart]:
    return () if facts.history is None else band_charts(facts.history)


@dataclass(frozen=True, slots=True)
class _NodeRow:
    """A node as the table shows it."""

    name: str
    ranks: str
    cells: tuple[str, ...]


def _node_rows(facts: JobFacts) -> list[_NodeRow]:
    by_name = {one.node: one for one in facts.nodes}
    common = usual([one.rate for one in facts.nodes])
    return [
        _NodeRow(name, ranges(facts.report.ranks.get(name, ())), tuple(_cells(by_name.get(name), common)))
        for name in facts.report.state.nodes
    ]


def _cells(one: NodeFigures | None, common: float | None) -> Iterator[str]:
    """Yield a node's means: throughput, its part of the median, GPUs, processors, memory, InfiniBand,
    network, power."""
    if one is None:
        yield from [""] * 8
        return
    yield "" if one.rate is None else f"{one.rate:.4g}"
    yield "" if one.rate is None or not common else f"{100 * one.rate / common:.0f} %"
    yield _percent(one.gpu)
    yield _percent(one.cpu)
    yield "" if one.memory is None else size(one.memory)
    for rate in (one.infiniband, one.network):
        yield "" if rate is None else f"{size(rate)}/s"
    yield "" if one.power is None else f"{one.power:.0f} W"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.0f} %"


@dataclass(frozen=True, slots=True)
class _Evidence:
    """A record with lines that ranks have printed."""

    time: str
    text: str
    lines: tuple[str, ...]


def _probes(events: Sequence[Happening]) -> list[_Evidence]:
    found = []
    for event in (one for one in events if one.event == "probe"):
        fields = event.fields
        words = [
            str(fields.get("verdict", "")),
            str(fields.get("transport", "")),
            str(fields.get("reason", "")),
        ]
        lines = [
            f"{line.get('node')}, rank {line.get('rank')}: {line.get('line')}"
            for line in _records(fields.get("lines"))
        ]
        more = [f"and {len(lines) - _LINES} more lines"] if len(lines) > _LINES else []
        found.append(_Evidence(utc(event.time), "; ".join(filter(None, words)), (*lines[:_LINES], *more)))
    return found


def _records(value: object) -> list[Mapping[str, object]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def _failures(events: Sequence[Happening]) -> Iterator[_Evidence]:
    for event in events:
        fields = event.fields
        if event.event == "failure":
            rank, node = fields.get("rank"), fields.get("node")
            who = f"rank {rank} on {node}" if rank is not None else str(node or "the launcher")
            found = fields.get("last_lines")
            lines = tuple(str(line) for line in found) if isinstance(found, list) else ()
            yield _Evidence(utc(event.time), f"{who} failed with exit status {fields.get('status')}", lines)
        elif event.event == "restart":
            text = f"restart {fields.get('count')}: {fields.get('reason')}"
            yield _Evidence(utc(event.time), text, ())
        elif event.event in ("lost-node", "eviction"):
            text = f"{fields.get('node')}: {fields.get('reason')}"
            yield _Evidence(utc(event.time), text, ())


def _shown(value: object) -> object:
    """Return a text without what its reader could not see; a long one shortened, unless it is drawn."""
    if not isinstance(value, str) or isinstance(value, Coordinates):
        return value
    text = for_terminal(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} … ({len(text)} characters)"
