"""The search for slow nodes: which groups are measured next, and the verdict at the end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from launch.errors import InputError
from launch.health.measurement import (
    WARN,
    Figure,
    Group,
    Measure,
    Measurement,
    NodeBandwidth,
    SlowPair,
    typical,
)
from launch.health.pairs import (
    batches,
    circle,
    judge_again,
    judge_node,
    judge_pairs,
    meet,
    pair_off,
    settled,
)

__all__ = ["PAIRS", "SearchResult", "search", "search_all_pairs"]

PAIRS = 6
"""Pairs in which a slow node is measured, each with a different healthy one."""
_HALVED_DOWN_TO = 3
"""Groups of so many nodes are not halved further."""
_ALL_PAIRS_UP_TO = 8
"""So many nodes have as many rounds of all pairs as it takes to verify one suspect."""
_CONTROLS = 5
"""Pairs of healthy nodes that are measured beside suspects, at the same load."""
_SLOW = ("sick", "suspect")
_AGAIN = 3
"""Further measurements of a pair that seems slow."""
_FEW = 3
"""So many healthy nodes are too few to measure a suspect in different pairs, each beside another pair."""


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What was measured, round by round, and what it says."""

    rounds: tuple[tuple[Measurement, ...], ...]
    """The first is the whole group; the measurements of a round were made at once."""
    nodes: tuple[NodeBandwidth, ...]
    slow_pairs: tuple[SlowPair, ...]
    rest: Measurement | None
    """All nodes but the slow ones together, where that was measured."""
    usual_gbs: float | None
    """Usual bandwidth of a pair; None where no pair was measured."""
    figure: Figure | None

    @property
    def whole(self) -> Measurement:
        """The measurement of all nodes together."""
        return self.rounds[0][0]

    @property
    def is_healthy(self) -> bool:
        """Whether all nodes together were measured and reach their size's figure, and nothing is slow or
        unstable."""
        is_slow = self.slow_pairs or any(one.verdict in _SLOW or one.is_unstable for one in self.nodes)
        return not is_slow and self.whole.gbs is not None and _reaches(self.whole, self.figure) is not False


def search(nodes: Sequence[str], measure: Measure, figure: Figure | None = None) -> SearchResult:
    """Find the slow ones of at least two nodes.

    The whole group is measured first, and nothing more where it reaches the size's figure. Below it, halves
    are measured side by side until few nodes are left; without a figure, neighbours in pairs. Each suspect
    then meets up to :data:`PAIRS` different healthy nodes, until one pair clears it. At last the others are
    measured together. Where half of the nodes are healthy that takes at most ``log2(n) + PAIRS + 2`` rounds,
    and three for each measurement of a pair that is slow while its nodes are not.
    """
    run = _Search(nodes, measure, figure)
    if _reaches(run.whole, figure):
        return run.end(NodeBandwidth(node, "healthy", "the whole group is fast") for node in nodes)
    good, parts = run.halve() if figure is not None and figure.warn is not None else ([], [run.nodes])
    if not good and len(nodes) <= _ALL_PAIRS_UP_TO:
        return run.all_pairs()
    if not good:
        good, parts = run.compare_neighbours()
    return run.verify(good, parts) if good else run.end(run.unknown())


def search_all_pairs(nodes: Sequence[str], measure: Measure, figure: Figure | None = None) -> SearchResult:
    """Measure the whole group, then every pair: n - 1 rounds, or n where n is odd.

    This alone finds every two nodes that are slow with each other and with no one else. A pair that seems
    slow is measured again.
    """
    return _Search(nodes, measure, figure).all_pairs()


class _Search:
    def __init__(self, nodes: Sequence[str], measure: Measure, figure: Figure | None) -> None:
        if len(nodes) < 2:  # noqa: PLR2004
            problem = "bandwidth takes at least two nodes"
            raise InputError("nodes", ", ".join(nodes) or None, problem, "choose more with --nodes")
        self.nodes, self._measure, self._figure = tuple(nodes), measure, figure
        self._rounds: list[tuple[Measurement, ...]] = []
        self._usual: float | None = None
        self._problems: dict[str, str] = {}
        (self.whole,) = self._run([self.nodes])

    def _run(self, groups: Sequence[Group]) -> tuple[Measurement, ...]:
        measured = tuple(self._measure(groups))
        self._rounds.append(measured)
        self._problems |= {node: one.problem for one in measured if one.problem for node in one.group}
        return measured

    def halve(self) -> tuple[list[str], list[Group]]:
        """Halve slow groups until they are small; return healthy nodes and the small groups."""
        good: list[str] = []
        parts, small = [self.nodes], list[Group]()
        fast: list[float] = []
        while parts:
            halves = [half for part in parts for half in (part[: len(part) // 2], part[len(part) // 2 :])]
            slow = []
            for one in self._run(halves) if len(self.nodes) > _HALVED_DOWN_TO else ():
                if one.gbs is not None and _reaches(one, self._figure):
                    good += one.group
                    fast.append(one.gbs)
                else:
                    slow.append(one.group)
            if not good:  # halves do not part slow nodes from others: pairs compare them all
                return [], [self.nodes]
            small += [part for part in slow if len(part) <= _HALVED_DOWN_TO]
            parts = [part for part in slow if len(part) > _HALVED_DOWN_TO]
        self._usual = typical(fast)
        return good, small

    def compare_neighbours(self) -> tuple[list[str], list[Group]]:
        """Measure neighbours as pairs; return the nodes of usual pairs, and the other pairs.

        However much the pairs differ, each one below the limit is suspect: chance is excluded where its nodes
        meet others.
        """
        pairs = pair_off(self.nodes)
        measured = self._run(pairs)
        usual = self._usual = typical([one.gbs for one in measured if one.gbs is not None])
        slow = [one.group for one in measured if not one.gbs or not usual or one.gbs < WARN * usual]
        good = [node for pair in pairs if pair not in slow for node in pair]
        return good, [*slow, self.nodes[2 * len(pairs) :]]

    def verify(self, good: Sequence[str], parts: Sequence[Group]) -> SearchResult:
        """Pair suspects with healthy nodes until each is cleared or slow in enough pairs.

        Where a group is slow and each of its nodes is cleared, its pairs are measured.
        """
        ratios = self._meet_healthy([node for part in parts for node in part], good, PAIRS)
        judged = [judge_node(node, ratios.get(node, []), self._problems.get(node, "")) for node in self.nodes]
        if len(good) <= _FEW:
            judged = self._confirm(judged)
        slow = {one.node for one in judged if one.verdict in _SLOW or one.is_unstable}
        paths = [pair for part in parts if slow.isdisjoint(part) for pair in combinations(part, 2)]
        return self.end(judged, self._measure_paths(dict.fromkeys(paths), set(self.nodes) - slow))

    def _meet_healthy(
        self, suspects: Sequence[str], good: Sequence[str], pairs: int
    ) -> dict[str, list[float | None]]:
        """Pair each suspect with healthy nodes until one clears it; return the parts that were reached."""
        ratios: dict[str, list[float | None]] = {node: [] for node in suspects}
        met: dict[str, set[str]] = {node: set() for node in suspects}
        most = min(pairs, len(good))
        at_once = _at_once(good) if len(good) > 2 else len(good)  # noqa: PLR2004
        while left := [one for one in suspects if len(met[one]) < most and not _is_cleared(ratios[one])]:
            tests = meet(left, good, met)[:at_once]
            for (suspect, partner), ratio in self._compare(tests, good, is_preliminary=True).items():
                met[suspect].add(partner)
                ratios[suspect].append(ratio)
        return ratios

    def _confirm(self, judged: Sequence[NodeBandwidth]) -> list[NodeBandwidth]:
        """Measure each node that seems slow again, with one healthy node after the other, until the
        measurements agree or are enough; return the verdicts.

        On a busy machine all nodes are slow at times: one that is so while its peers are not is slow.
        """
        slow = [one.node for one in judged if one.verdict in _SLOW]
        good = [one.node for one in judged if one.verdict not in _SLOW]
        again: dict[str, list[float | None]] = {node: [] for node in slow}
        while left := [node for node in slow if settled(again[node]) is None]:
            turn = len(again[left[0]])
            for start in range(0, len(left), _at_once(good)):
                part = left[start : start + _at_once(good)]
                tests = [(node, good[(turn + place) % len(good)]) for place, node in enumerate(part)]
                for (node, _), ratio in self._compare(tests, good).items():
                    again[node].append(ratio)
        return [judge_again(one, again[one.node]) if one.node in again else one for one in judged]

    def all_pairs(self) -> SearchResult:
        """Measure every pair, and again those that seem slow, and a node's pairs where all seem so."""
        if len(self.nodes) == 2:  # noqa: PLR2004
            return self.end(self._two())
        measured: list[Measurement] = []
        for groups in circle(self.nodes):
            measured += self._run(groups)
            if len(groups) > 1 and not any(one.gbs for one in (self.whole, *measured)):
                return self.end(self.unknown())
        found = judge_pairs(self.nodes, measured)
        self._usual = found.usual
        judged = self._confirm(found.nodes)
        slow = {pair: found.ratios[pair] for pair in found.slow_pairs}
        healthy = {one.node for one in found.nodes if one.verdict == "healthy"}
        return self.end(judged, self._measure_paths(slow, healthy))

    def _compare(
        self, tests: Sequence[Group], good: Iterable[str], *, is_preliminary: bool = False
    ) -> dict[Group, float | None]:
        """Measure pairs beside some of idle healthy nodes; return them as parts of what those reach.

        Where no two are idle, they are measured right afterwards, unless this ``is_preliminary``.
        """
        good, busy = list(good), {node for pair in tests for node in pair}
        controls = pair_off([node for node in good if node not in busy])[:_CONTROLS]
        measured = self._run([*tests, *controls])
        compared = measured[len(tests) :]
        other = next((pair for pair in combinations(good, 2) if pair not in tests), None)
        if not controls and other is not None and not is_preliminary:
            compared = self._run([other])
        values = [one.gbs for one in compared if one.gbs is not None]
        self._usual = usual = typical(values) or self._usual  # of two the greater: one pair clears a suspect
        return {
            one.group: None if one.gbs is None or not usual else one.gbs / usual
            for one in measured[: len(tests)]
        }

    def _measure_paths(self, pairs: Mapping[Group, float | None], healthy: set[str]) -> tuple[SlowPair, ...]:
        """Return those of the pairs that are slow each time that they are measured."""
        slow = dict(pairs)
        good = [node for node in self.nodes if node in healthy]
        for _ in range(_AGAIN):
            for tests in batches(slow):
                for pair, ratio in self._compare(tests, good).items():
                    slow[pair] = ratio
                    if ratio is not None and ratio >= WARN:
                        del slow[pair]
        return tuple(SlowPair(pair, ratio) for pair, ratio in slow.items())

    def _two(self) -> list[NodeBandwidth]:
        """Return the verdicts on two nodes, which have no further peers."""
        problem = self.whole.problem
        if problem:
            return [
                NodeBandwidth(node, "suspect", f"{problem}; either node may be at fault")
                for node in self.nodes
            ]
        reason = "has one peer, too few to compare with"
        return [NodeBandwidth(node, "unknown", reason) for node in self.nodes]

    def unknown(self) -> list[NodeBandwidth]:
        """Return the verdicts where nothing could be measured."""
        return [
            NodeBandwidth(node, "unknown", f"could not be measured: {self._problems.get(node, '')}")
            for node in self.nodes
        ]

    def end(self, judged: Iterable[NodeBandwidth], slow_pairs: tuple[SlowPair, ...] = ()) -> SearchResult:
        """Return the result: nodes that are as fast as their peers are held to the size's figure."""
        judged = tuple(judged)
        slow = {one.node for one in judged if one.verdict in _SLOW}
        others = tuple(node for node in self.nodes if node not in slow)
        rest = self._run([others])[0] if slow and len(others) > 1 else None
        if not slow and not slow_pairs:
            judged = tuple(self._held_to_figure(one) for one in judged)
        elif self._figure is None or self._figure.warn is None:
            judged = tuple(_without_figure(one) for one in judged)
        return SearchResult(tuple(self._rounds), judged, slow_pairs, rest, self._usual, self._figure)

    def _held_to_figure(self, one: NodeBandwidth) -> NodeBandwidth:
        figure, gbs = self._figure, self.whole.gbs
        if one.is_unstable:
            return one
        if figure is None or figure.warn is None:
            return _without_figure(one)
        is_fast = any(_reaches(each, figure) for measured in self._rounds for each in measured)
        if gbs is None or is_fast:
            return one
        part = f"{100 * gbs / figure.expected:.0f} % of {figure.expected:g} GB/s in the whole group"
        return replace(one, verdict="suspect", reason=f"as slow as its peers: {part}")


def _reaches(one: Measurement, figure: Figure | None) -> bool | None:
    """Return whether a group reaches the size's figure; None where there is none."""
    if figure is None or figure.warn is None:
        return None
    return one.gbs is not None and one.gbs >= figure.warn


def _at_once(good: Sequence[str]) -> int:
    """Return how many suspects are measured at once: two healthy nodes are left to compare with, if any."""
    return max(1, len(good) - 2)


def _is_cleared(ratios: Iterable[float | None]) -> bool:
    return any(ratio is not None and ratio >= WARN for ratio in ratios)


def _without_figure(one: NodeBandwidth) -> NodeBandwidth:
    reason = "as fast as its peers; its size has no figure that says how fast that should be"
    return replace(one, verdict="unknown", reason=reason) if one.verdict == "healthy" else one
