"""The columns of nodes and the fields of ranks: those that a width has room for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from playbooks.cli.styled import Line, Span, Style, padded
from playbooks.observe.quantities import bars, compact, duration, metric, percent
from playbooks.observe.top_rows import NodeRow, RankRow, TopRows

__all__ = ["Columns", "choose_columns", "header_line", "node_line", "rank_header_line", "rank_line"]

_RANK_FIELDS = (("rank", 6), ("cpu %", 6), ("memory", 6), ("silent", 7))
_METRIC_CELLS = 9
_LEAST_COURSE, _MOST_COURSE = 10, 60
_BUSY, _FULL = 0.9, 0.95
_SILENT_S = 10.0
"""Silence of a rank from which it is shown in colour."""


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    width: int
    text: Callable[[NodeRow], str]
    style: Callable[[NodeRow], Style] = lambda _: ""
    left: bool = False


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of one table, in their order."""

    shown: tuple[_Column, ...]
    course: int
    """Cells of the course; 0 without one."""


def _cpu(node: NodeRow) -> str:
    return percent(node.live["cpu_permille"] / 1000) if node.live else ""


def _memory(node: NodeRow) -> str:
    return f"{compact(node.live['memory_used'])}/{compact(node.live['memory_total'])}" if node.live else ""


def _memory_style(node: NodeRow) -> Style:
    live = node.live
    return "red" if live and live["memory_used"] > _FULL * max(1, live["memory_total"]) else ""


def _network(node: NodeRow) -> str:
    return compact(node.live["net_rx"] + node.live["net_tx"]) if node.live else ""


def _infiniband(node: NodeRow) -> str:
    return compact(node.live["ib_rx"] + node.live["ib_tx"]) if node.live and node.live["ib_rx"] >= 0 else ""


def _of_gpus(node: NodeRow, name: str) -> list[int]:
    """Return a figure of each GPU that reports it."""
    gpus = node.live["gpus"] if node.live else []
    figures = (gpu[name] for gpu in gpus)  # type: ignore[literal-required]  # the fields of GpuSample
    return [int(figure) for figure in figures if figure >= 0]


def _gpu(node: NodeRow) -> str:
    used = _of_gpus(node, "utilisation")
    return f"{sum(used) / len(used):.0f}" if used else ""


def _gpu_memory(node: NodeRow) -> str:
    total = _of_gpus(node, "memory_total")
    return f"{compact(sum(_of_gpus(node, 'memory_used')))}/{compact(sum(total))}" if total else ""


def _power(node: NodeRow) -> str:
    power = _of_gpus(node, "power_mw")
    return compact(sum(power) / 1000) if power else ""


def _each_gpu(node: NodeRow) -> str:
    gpus = node.live["gpus"] if node.live else []
    return bars([gpu["utilisation"] / 100 if gpu["utilisation"] >= 0 else None for gpu in gpus])


def _silence(node: NodeRow) -> str:
    return duration(node.silent_s) if any(not rank.ended for rank in node.ranks) else ""


def _state_style(node: NodeRow) -> Style:
    return {"ok": "green", "ended": "dim"}.get(node.state, "red")  # type: ignore[return-value]


def choose_columns(shown: TopRows, width: int) -> Columns:
    """Return the columns that fit into ``width`` cells: the most important ones, and the course. Of a job
    that has ended there is nothing else."""
    name_width = max((len(node.name) for node in shown.nodes), default=10)
    has_infiniband = any(_infiniband(node) for node in shown.nodes)
    most_gpus = max((len(node.live["gpus"]) for node in shown.nodes if node.live), default=0)
    first = [
        _Column("node", max(4, name_width), lambda node: node.name, left=True),
        _Column("state", 8, lambda node: node.state, _state_style, left=True),
        _Column("cpu %", 5, _cpu),
    ]
    gpu = [_Column("gpu %", 5, _gpu)] if shown.is_gpu_course else []
    order = [
        *first,
        *gpu,
        _Column("memory", 9, _memory, _memory_style),
        *([_Column("ib B/s", 6, _infiniband)] if has_infiniband else []),
        _Column("net B/s", 7, _network),
        *([_Column("gpu mem", 9, _gpu_memory), _Column("power W", 7, _power)] if shown.has_gpus else []),
        _Column("silent", 7, _silence),
        *(
            [_Column("gpus", most_gpus, _each_gpu, left=True)]
            if most_gpus > 1 and shown.is_gpu_course
            else []
        ),
    ]
    if shown.job.is_terminal:
        order = order[:2]
    reserved = _LEAST_COURSE + 1 if shown.interval_s else 0
    left = width - 1  # the mark of a flag
    kept: list[_Column] = []
    for number, column in enumerate(order):
        must = number < len(first) + len(gpu)
        if column.width + (0 if must else reserved) > left and kept:
            break
        kept.append(column)
        left -= column.width + 1
    course = min(_MOST_COURSE, left) if shown.interval_s and left >= _LEAST_COURSE else 0
    return Columns(tuple(kept), course)


def header_line(columns: Columns, shown: TopRows) -> Line:
    """Return the line of the columns' names; that of the course has the time that it spans."""
    texts = [padded(column.name, column.width, right=not column.left) for column in columns.shown]
    if columns.course:
        longest = max((len(node.course) for node in shown.nodes), default=0)
        span = duration(min(columns.course, longest) * shown.interval_s)
        texts.append(padded(f"{'gpu' if shown.is_gpu_course else 'cpu'}, {span}", columns.course))
    return ((" " + " ".join(texts), "bold"),)


def node_line(node: NodeRow, columns: Columns) -> Line:
    """Return a node's line, with a mark where a flag names it."""
    spans: list[Span] = [("!" if node.flags else " ", "yellow")]
    for column in columns.shown:
        text = padded(column.text(node), column.width, right=not column.left)
        spans += [(text, column.style(node)), (" ", "")]
    if columns.course:
        newest = node.course[-columns.course :]
        spans.append((bars(newest), "cyan"))
    return tuple(spans)


def rank_header_line(width: int, metrics: Sequence[str]) -> Line:
    """Return the line of the names of ranks' figures."""
    return ((" " + " ".join(padded(*one, right=True) for one in _rank_fields(width, metrics)), "bold"),)


def rank_line(rank: RankRow, width: int, metrics: Sequence[str]) -> Line:
    """Return a rank's line, with a mark where a flag names it: as many of its figures as fit."""
    is_late = rank.silent_s >= _SILENT_S
    texts: dict[str, Span] = {
        "rank": (str(rank.rank), ""),
        "cpu %": ("" if rank.ended else percent(rank.cpu), ""),
        "memory": ("" if rank.ended else compact(rank.memory), ""),
        "silent": ("ended", "dim") if rank.ended else (duration(rank.silent_s), "yellow" if is_late else ""),
    }
    spans: list[Span] = [("!" if rank.is_flagged else " ", "yellow")]
    for number, (name, cells) in enumerate(_rank_fields(width, metrics)):
        value = rank.metrics.get(name)
        of_metric: Span = ("" if value is None else metric(value), "")
        text, style = texts[name] if number < len(texts) else of_metric
        spans += [(padded(text, cells, right=True), style), (" ", "")]
    return tuple(spans)


def _rank_fields(width: int, metrics: Sequence[str]) -> list[tuple[str, int]]:
    """Return the names and widths of ranks' figures that fit, the most important first."""
    kept: list[tuple[str, int]] = []
    left = width - 1
    for name, cells in (*_RANK_FIELDS, *((name, max(_METRIC_CELLS, len(name))) for name in metrics)):
        if cells > left:
            break
        kept.append((name, cells))
        left -= cells + 1
    return kept
