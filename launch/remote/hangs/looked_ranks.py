"""A rank as a verdict sees it, and the words for several of them."""

from __future__ import annotations

from typing import NamedTuple

from launch.remote.hangs.places import NOWHERE, Place, main_process, place_of
from launch.remote.hangs.stack_folding import format_ranks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from launch.remote.debug.debug_records import ProcessFacts, RankFacts

__all__ = ["Rank", "by_place", "others", "rank_of", "shown"]


class Rank(NamedTuple):
    """What the looks at a rank have shown."""

    number: int
    node: str
    process: ProcessFacts | None
    processes: Sequence[ProcessFacts]
    places: tuple[Place, ...]
    """At each look."""
    sequence: int
    """Of its newest collective by the flight recorder; -1 without."""

    @property
    def place(self) -> Place:
        """Where it was at the first look."""
        return self.places[0]

    @property
    def name(self) -> str:
        """Its number and node."""
        return f"rank {self.number} on {self.node}"


def rank_of(number: int, node: str, facts: RankFacts) -> Rank:
    """Return a rank by what was seen at each look."""
    process = main_process(facts)
    looks = []
    if process is not None and process["threads"]:
        looks = [process["threads"][0]["frames"], *(look["frames"] for look in process["later"])]
    places = tuple(place_of(frames) for frames in looks) or (NOWHERE,)
    newest = facts["collective"]
    sequence = newest[0]["sequence"] if newest else -1
    return Rank(number, node, process, facts["processes"], places, sequence)


def shown(ranks: Sequence[Rank]) -> str:
    """Return ranks with their nodes, shortened where they are many."""
    nodes = list(dict.fromkeys(rank.node for rank in ranks))
    where = nodes[0] if len(nodes) == 1 else f"{len(nodes)} nodes"
    return f"{format_ranks(rank.number for rank in ranks)} on {where}"


def others(ranks: Sequence[Rank], without: Sequence[Rank]) -> str:
    """Return what most of the other ranks do."""
    rest = [rank for rank in ranks if rank not in without]
    groups = by_place([rank for rank in rest if rank.place.operation])
    if not groups:
        return ""
    place, waiting = groups[0]
    verb = "waits" if len(waiting) == 1 else "wait"
    count = f"{len(waiting)} rank{'s' * (len(waiting) != 1)}"
    sequence = waiting[0].sequence
    number = f" #{sequence}" if sequence >= 0 and all(one.sequence == sequence for one in waiting) else ""
    at = f" at {place.line}" if place.line else ""
    return f"{count} {verb} in {place.operation}{number}{at}; "


def by_place(ranks: Sequence[Rank]) -> list[tuple[Place, list[Rank]]]:
    """Return the ranks by operation and line, most first."""
    groups: dict[tuple[str, str], list[Rank]] = {}
    for rank in ranks:
        groups.setdefault((rank.place.operation, rank.place.line), []).append(rank)
    ordered = sorted(groups.values(), key=lambda its: (-len(its), its[0].number))
    return [(its[0].place, its) for its in ordered]
