"""Which pairs of nodes are measured at once, and what the pairs say of each node."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from launch.health.measurement import REPORT, WARN, Group, Measurement, NodeBandwidth, Verdict, typical

__all__ = [
    "Matrix",
    "as_healthy",
    "batches",
    "circle",
    "judge_again",
    "judge_node",
    "judge_pairs",
    "meet",
    "pair_off",
    "settled",
]

STEADY, MOST = 3, 7
"""Measurements in a row that have to agree on a node, and how many are made at most."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """Bandwidth of every pair, as parts of the usual one."""

    usual: float | None
    """GB/s; None when no pair could be measured."""
    ratios: Mapping[Group, float | None]
    nodes: tuple[NodeBandwidth, ...]
    slow_pairs: tuple[Group, ...]
    """Slow pairs of nodes that are not slow themselves."""


def circle(nodes: Sequence[str]) -> list[list[Group]]:
    """Return rounds of disjoint pairs in which every node meets every other once.

    An even number of nodes takes one round less than there are nodes, an odd one as many, one node pausing.

    >>> circle(["a", "b", "c", "d"])
    [[('a', 'd'), ('b', 'c')], [('a', 'c'), ('b', 'd')], [('a', 'b'), ('c', 'd')]]
    """
    first, *others = [*nodes] if len(nodes) % 2 == 0 else [None, *nodes]
    rounds: list[list[Group]] = []
    for turn in range(len(others)):
        ring = [first, *others[len(others) - turn :], *others[: len(others) - turn]]
        met = [(ring[i], ring[-1 - i]) for i in range(len(ring) // 2)]
        rounds.append([(a, b) if a < b else (b, a) for a, b in met if a is not None and b is not None])
    return rounds


def pair_off(nodes: Sequence[str]) -> list[Group]:
    """Return neighbours as pairs; of an odd number, the last has none.

    >>> pair_off(["a", "b", "c"])
    [('a', 'b')]
    """
    return [(nodes[i], nodes[i + 1]) for i in range(0, len(nodes) - 1, 2)]


def batches(pairs: Iterable[Group]) -> list[list[Group]]:
    """Return rounds that hold all pairs, no node twice in one.

    >>> batches([("a", "b"), ("a", "c"), ("d", "e")])
    [[('a', 'b'), ('d', 'e')], [('a', 'c')]]
    """
    rounds: list[tuple[list[Group], set[str]]] = []
    for pair in pairs:
        for groups, taken in rounds:
            if taken.isdisjoint(pair):
                groups.append(pair)
                taken.update(pair)
                break
        else:
            rounds.append(([pair], set(pair)))
    return [groups for groups, _ in rounds]


def meet(suspects: Iterable[str], good: Sequence[str], met: Mapping[str, Collection[str]]) -> list[Group]:
    """Return a round in which suspects meet healthy nodes that they have not ``met``, each a different one.

    A suspect for which none is left in this round is left out.

    >>> meet(["x", "y"], ["a", "b"], {"x": {"a"}, "y": set()})
    [('x', 'b'), ('y', 'a')]
    """
    tests: list[Group] = []
    free = list(good)
    for suspect in suspects:
        partner = next((node for node in free if node not in met[suspect]), None)
        if partner is not None:
            free.remove(partner)
            tests.append((suspect, partner))
    return tests


def judge_node(node: str, ratios: Sequence[float | None], problem: str = "") -> NodeBandwidth:
    """Return the verdict on a node that reached these parts of its peers' bandwidth, one for each pair.

    ``None`` stands for a pair that could not be measured, for the reason ``problem``. One pair at full
    bandwidth clears the node: a slow one has none.

    >>> judge_node("node00000h", [0.42, 0.41, 0.4]).reason
    "41 % of its peers' bandwidth in 3 of 3 pairs"
    """
    slow = _slow(node, ratios, problem)
    if slow.pairs_below < slow.pairs or not ratios:
        return as_healthy(slow)
    return slow


def judge_pairs(nodes: Sequence[str], measured: Sequence[Measurement]) -> Matrix:
    """Return what the measurements of all pairs say.

    A node is taken for as fast as the upper quartile of its pairs: slow peers make a healthy node's other
    pairs slow, and a slow node has no fast one.
    """
    values = {one.group: one.gbs for one in measured}
    reach = {node: _reach(_pairs_of(node, values).values()) for node in nodes}
    usual = typical([value for value in reach.values() if value is not None])
    if usual is None:
        problem = next((one.problem for one in measured if one.problem), "")
        unknown = [NodeBandwidth(node, "unknown", f"could not be measured: {problem}") for node in nodes]
        return Matrix(None, dict.fromkeys(values), tuple(unknown), ())
    ratios = {group: None if value is None else value / usual for group, value in values.items()}
    judged: list[NodeBandwidth] = []
    for node in nodes:
        problem = next((one.problem for one in measured if node in one.group and one.problem), "")
        found = _slow(node, list(_pairs_of(node, ratios).values()), problem)
        best = reach[node]
        judged.append(as_healthy(found) if best is not None and best >= WARN * usual else found)
    healthy = {one.node for one in judged if one.verdict == "healthy"}
    slow_pairs = [
        group
        for group, ratio in ratios.items()
        if healthy.issuperset(group) and (ratio is None or ratio < WARN)
    ]
    return Matrix(usual, ratios, tuple(judged), tuple(slow_pairs))


def settled(again: Sequence[float | None]) -> Literal["slow", "fast", "unstable"] | None:
    """Return what repeated measurements of a node say, as parts of its peers' bandwidth; None for too few.

    >>> settled([0.6, 0.62, 0.61]), settled([0.62, 0.97, 1.0, 0.96]), settled([0.6, 1.0])
    ('slow', 'fast', None)
    >>> settled([0.6, 1.0, 0.6, 1.0, 0.6, 1.0, 0.6])
    'unstable'
    """
    last = {ratio is not None and ratio >= WARN for ratio in again[-STEADY:]}
    if len(again) >= STEADY and len(last) == 1:
        return "fast" if last.pop() else "slow"
    return "unstable" if len(again) >= MOST else None


def judge_again(found: NodeBandwidth, again: Sequence[float | None]) -> NodeBandwidth:
    """Return the verdict on a node that seemed slow by how it was when it was measured again."""
    shown = ", ".join("failed" if ratio is None else f"{100 * ratio:.0f} %" for ratio in again)
    outcome, ratio = settled(again), typical([ratio for ratio in again if ratio is not None])
    found = replace(found, again=tuple(again))
    if outcome == "fast":
        return as_healthy(found)
    if outcome != "slow":
        reason = f"unstable: seemed slow ({found.reason}), and measured again reached {shown} of its peers' "
        return replace(found, verdict="unknown", reason=f"{reason}bandwidth", ratio=ratio, is_unstable=True)
    if ratio is None:
        return found
    verdict: Verdict = "sick" if ratio < REPORT else "suspect"
    reason = f"{100 * ratio:.0f} % of its peers' bandwidth in {found.pairs_below} of {found.pairs} pairs"
    return replace(found, verdict=verdict, reason=f"{reason}; measured again: {shown}", ratio=ratio)


def _slow(node: str, ratios: Sequence[float | None], problem: str) -> NodeBandwidth:
    below = sum(ratio is None or ratio < WARN for ratio in ratios)
    ratio = typical([ratio for ratio in ratios if ratio is not None])
    pairs = f"{below} of {len(ratios)} pairs"
    if ratio is None:
        return NodeBandwidth(node, "sick", f"fails in {pairs}: {problem}", None, below, len(ratios))
    verdict: Verdict = "sick" if ratio < REPORT else "suspect"
    reason = f"{100 * ratio:.0f} % of its peers' bandwidth in {pairs}"
    return NodeBandwidth(node, verdict, reason, ratio, below, len(ratios))


def as_healthy(found: NodeBandwidth) -> NodeBandwidth:
    """Return a finding as that of a node which is as fast as its peers.

    >>> as_healthy(NodeBandwidth("node00000h", "suspect", "82 % of its peers' bandwidth")).verdict
    'healthy'
    """
    return replace(found, verdict="healthy", reason="as fast as its peers")


def _pairs_of(node: str, values: Mapping[Group, float | None]) -> dict[Group, float | None]:
    return {group: value for group, value in values.items() if node in group}


def _reach(values: Iterable[float | None]) -> float | None:
    known = sorted(value for value in values if value is not None)
    return known[3 * len(known) // 4] if known else None
