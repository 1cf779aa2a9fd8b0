"""Equal stacks as one: which ranks share a stack, and the text of each."""

from __future__ import annotations

from typing import NamedTuple

from launch.remote.base.names import runs
from launch.remote.hangs.places import main_process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from launch.remote.debug.debug_records import DebugFacts, ProcessFacts, RankFacts, StackFrame

__all__ = ["Fold", "fold_stacks", "format_ranks", "ranks_of"]


class Fold(NamedTuple):
    """Ranks whose main threads have the same stack."""

    ranks: tuple[int, ...]
    frames: tuple[tuple[str, str, int], ...]
    """Function, file and line, the innermost first; none where there is no stack."""
    why: str
    """Why there is no stack, or what the process is; empty with a stack."""


def ranks_of(facts: DebugFacts) -> dict[int, tuple[str, RankFacts]]:
    """Return the node and the facts of each rank that was reported."""
    return {
        rank["rank"]: (node, rank)
        for node, parts in facts["nodes"].items()
        for part in parts
        for rank in part["ranks"]
    }


def format_ranks(ranks: Iterable[int]) -> str:
    """Return ranks as a short text.

    >>> format_ranks([0, 1, 2, 5]), format_ranks([3])
    ('ranks 0-2,5', 'rank 3')
    """
    numbers = sorted(set(ranks))
    spans = [f"{first}-{last}" if last > first else str(first) for first, last in runs(numbers)]
    return f"rank{'s' * (len(numbers) != 1)} {','.join(spans)}"


def fold_stacks(facts: DebugFacts) -> list[Fold]:
    """Return each different stack with its ranks, that of the most ranks first."""
    groups: dict[tuple[tuple[tuple[str, str, int], ...], str], list[int]] = {}
    for number, (_, rank) in sorted(ranks_of(facts).items()):
        process = main_process(rank)
        frames = () if process is None or not process["threads"] else _key(process["threads"][0]["frames"])
        groups.setdefault((frames, "" if frames else _why(process)), []).append(number)
    folds = [Fold(tuple(ranks), frames, why) for (frames, why), ranks in groups.items()]
    return sorted(folds, key=lambda fold: (-len(fold.ranks), fold.ranks))


def _key(frames: Iterable[StackFrame]) -> tuple[tuple[str, str, int], ...]:
    return tuple((frame["function"], frame["file"], frame["line"]) for frame in frames)


def _why(process: ProcessFacts | None) -> str:
    if process is None:
        return "no process"
    return process["problem"] or f"{process['name']}: not a Python process"
