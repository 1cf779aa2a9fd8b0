"""What a check says of each node, and of all together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from infra.inventory import Node
from launch.errors import NodeUnreachable
from launch.health.measurement import Figure, Measurement, NodeBandwidth
from launch.health.search import SearchResult
from launch.numbers import counted
from playbooks.nodes.sick import Verdict

if TYPE_CHECKING:
    from launch.health.bandwidth_programs import BandwidthProgram
    from launch.remote.base.health_records import Finding, Look

__all__ = ["CheckReport", "format_search", "make_report"]

_LEVELS = {"error": "sick", "warning": "suspect", "unknown": "unknown"}
_ORDER = ("sick", "suspect", "unknown", "healthy")


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The result of a check."""

    nodes: Mapping[str, Verdict]
    more: Mapping[str, Any]
    """Everything else that was measured."""
    search: SearchResult | None
    is_healthy: bool


def make_report(
    size: str,
    nodes: Sequence[Node],
    looks: Mapping[str, Look | Exception],
    left_out: Mapping[str, str],
    program: BandwidthProgram | None,
    found: SearchResult | None,
) -> CheckReport:
    """Return the worst of what each node's look and the measurements say."""
    measured = {} if found is None else {one.node: one for one in found.nodes}
    verdicts = {node.name: _verdict(node, looks[node.name], measured.get(node.name)) for node in nodes}
    more: dict[str, Any] = {"size": size, "left_out": left_out}
    if found is not None and program is not None:
        more |= {"program": program.name, "bandwidth": found, "summary": format_search(found)}
    is_known = not any(isinstance(one, Exception) or _is_of_unknown_size(one) for one in looks.values())
    is_healthy = is_known and all(one.verdict in ("healthy", "unknown") for one in verdicts.values())
    return CheckReport(verdicts, more, found, is_healthy and (found is None or found.is_healthy))


def _is_of_unknown_size(seen: Look) -> bool:
    """Return whether the node's size has no row: nothing is promised of it, which a check cannot confirm."""
    return any(one["rule"] == "size" for one in seen["findings"])


def _verdict(node: Node, seen: Look | Exception, bandwidth: NodeBandwidth | None) -> Verdict:
    if isinstance(seen, Exception):
        reason = str(seen).removeprefix(f"{node.name}: ")
        silent = "does not answer: " * isinstance(seen, NodeUnreachable)
        return Verdict(node.instance_id, "unknown", (silent + reason,))
    findings = tuple(seen["findings"])
    words = [_LEVELS[one["level"]] for one in findings]
    reasons = [_line(one) for one in findings]
    if bandwidth is not None:
        words.append(bandwidth.verdict)
        reasons.append(bandwidth.reason)
    worst = next((word for word in _ORDER if word in words), "healthy")
    slow = bandwidth.verdict if bandwidth is not None and bandwidth.verdict in ("suspect", "sick") else ""
    return Verdict(node.instance_id, worst, tuple(reasons), findings, slow)  # type: ignore[arg-type]


def _line(one: Finding) -> str:
    return (
        f"{one['subject']}: {one['measured']}, expected {one['expected']} ({one['source']}); {one['remedy']}"
    )


def format_search(found: SearchResult) -> list[str]:
    """Return what the measurements say of the nodes together, a line each."""
    return list(_lines(found))


def _lines(found: SearchResult) -> Iterator[str]:
    yield _together(found.whole, found.figure, len(found.rounds))
    if found.rest is not None:
        yield _together(found.rest, found.figure, 0, "without them")
    for one in found.slow_pairs:
        much = "nothing passes" if one.ratio is None else f"{100 * one.ratio:.0f} % of their peers' bandwidth"
        yield f"{' and '.join(one.group)}: {much} between these two alone: the path between them is slow"
    figure, whole = found.figure, found.whole.gbs
    if figure is not None and figure.report is not None and whole is not None and whole < figure.report:
        yield f"less than {figure.report:g} GB/s is worth a report to Azure"


def _together(one: Measurement, figure: Figure | None, rounds: int, which: str = "together") -> str:
    who = f"{counted(len(one.group), 'node')} {which}"
    took = f"; {counted(rounds, 'round')}" if rounds else ""
    if one.gbs is None:
        return f"{who}: {one.problem}{took}"
    if figure is None:
        return f"{who}: {one.gbs:.3g} GB/s each; their size has no figure to compare with{took}"
    part = f"{100 * one.gbs / figure.expected:.0f} % of {figure.expected:g} GB/s ({figure.source})"
    return f"{who}: {one.gbs:.3g} GB/s each, {part}{took}"
