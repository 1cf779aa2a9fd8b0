"""What has to be seen of a row, and on the nodes after all rows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from tests.chaos.engine import Engine, Outcome
from tests.chaos.inside import is_of_the_watch, nodes
from tests.chaos.interruptions import Interruption, Seen
from tests.chaos.rows import ANY, Row

__all__ = ["check_interruption", "check_row", "processes_left"]


def check_row(seen: Outcome, figures: list[tuple[str, ...]]) -> None:
    """Compare what was seen of a row with what it expects; add its line to the table."""
    row = seen.row
    expected = row.expected
    state = seen.states.get(seen.job, {}).get("state")
    figures.append(
        (
            row.name,
            f"{expected.state or '-'} {expected.status}",
            f"{state or '-'} {seen.status}",
            f"{seen.notice_s:.1f} s",
            f"{expected.notice_s:g} s",
            f"{seen.gone_s:.1f} s",
            f"{expected.gone_s:g} s",
        )
    )
    assert seen.status == expected.status, seen.shown
    assert state == expected.state, seen.shown
    for words in expected.says:
        assert words in seen.shown, seen.shown
    if expected.rank is not None:
        rank, node = named(seen)
        assert expected.rank in (rank, ANY), seen.shown
        assert node == seen.nodes[place_of(rank) if expected.node is None else expected.node], seen.shown
    assert seen.left == [], seen.shown
    assert seen.notice_s <= expected.notice_s, seen.shown
    assert seen.gone_s <= expected.gone_s, seen.shown
    assert all(seen.kept), f"the job beside it lost ranks: {[one.now() for one in seen.beside]}"
    known = [one.job for one in seen.beside if one.job in seen.states]
    assert [seen.states[job]["state"] for job in known] == ["RUNNING"] * len(known)
    assert bool(known) == bool(row.beside)
    assert seen.ended == ["CANCELLED"] * len(known)


def named(seen: Outcome) -> tuple[int, str]:
    """The rank and the node that the error of ``fab`` names first."""
    found = re.search(
        r"rank (?P<rank>\d+) on (?P<node>\w+)|(?P<lost>\w+) \(ranks? (?P<first>\d+)", seen.error
    )
    assert found is not None, f"no rank is named in {seen.error!r}:\n{seen.shown}"
    return int(found["rank"] or found["first"]), found["node"] or found["lost"]


def place_of(rank: int) -> int:
    """Which of its job's nodes a rank runs on."""
    return rank // 2


def check_interruption(row: Interruption, seen: Seen, figures: list[tuple[str, ...]]) -> None:
    """Compare what became of both launches with what is expected; add its line to the table."""
    expected = row.row.expected
    shown = f"{seen.killed}\n\n{seen.again}\n{seen.states}"
    wanted = dict.fromkeys([*seen.first, seen.second], expected.state)
    kinds = ", ".join(sorted(set(seen.states.values())))
    figures.append(
        (
            row.row.name,
            f"{expected.state} {expected.status}, twice at most",
            f"{len(seen.states)} x {kinds} {seen.status}",
            *[""] * 4,
        )
    )
    assert len(seen.first) in row.jobs, shown
    assert seen.strangers == [], shown
    assert seen.second not in ("", *seen.first), shown
    assert seen.status == expected.status, shown
    assert seen.states == wanted, shown
    assert [ran.status for ran in seen.watched] == [expected.status] * len(seen.first), shown
    if expected.state == "SUCCEEDED":
        for ran in seen.watched:
            lines = [line for line in ran.out.splitlines() if not line.startswith("[launcher ")]
            assert sorted(lines) == sorted(_all_lines(lines)), ran
    assert seen.left == []
    assert seen.kept


def _all_lines(lines: list[str]) -> list[str]:
    """What the four ranks say, from the first line, each with the node in front of it as it was there."""
    nodes = sorted({line.partition("]")[0].split()[1] for line in lines})
    printed = ((rank, f"[{rank} {nodes[rank // 2]}]") for rank in range(4))
    return [
        f"{front} {text}" for rank, front in printed for text in (f"ready {rank}", f"rank {rank} has worked")
    ]


def processes_left(
    engine: Engine, outcomes: Mapping[Row | Interruption, Future[Any]]
) -> dict[str, list[str]]:
    """By node, what runs there once all rows were played; nodes that were cut off are left out."""
    ended = [(row, one.result()) for row, one in outcomes.items() if one.exception() is None]
    cut = {name for row, seen in ended if isinstance(row, Row) and row.cut for name in seen.nodes}
    left = {
        one.name: [
            found.args
            for found in one.processes()
            if not found.args.startswith(("sshd:", "init ")) and not is_of_the_watch(found.args)
        ]
        for one in nodes(engine.workplace.project, "rehearsal").values()
        if one.name not in cut
    }
    return {name: args for name, args in left.items() if args}
