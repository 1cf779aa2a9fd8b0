"""An operator whose launch is killed and who types it again has that job once more, and nothing else."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from tests.chaos.conftest import Figures
from tests.chaos.interruptions import INTERRUPTIONS, Interruption, Seen

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]


@pytest.mark.parametrize("row", INTERRUPTIONS, ids=lambda what: what.row.name)
def test_a_launch_that_was_killed_may_be_repeated(
    row: Interruption, outcomes: dict[Interruption, Future[Seen]], figures: Figures
) -> None:
    seen = outcomes[row].result()
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
