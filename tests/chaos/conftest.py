"""One rehearsal for all rows; rows are played several at a time, and their figures printed in the end."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.engine import STACK, Engine, Outcome
from tests.chaos.interruptions import Interruption, Seen, interrupt
from tests.chaos.rows import Row
from tests.e2e.workplace import rehearsed_workplace

NODES = 64
"""Nodes for the job that needs the most; the others have some of them each."""
AT_ONCE = 6
"""Rows at a time: most of what each does is to wait."""

Figures = list[tuple[str, ...]]
FIGURES = pytest.StashKey[Figures]()
HEADINGS = ("row", "expected", "seen", "noticed", "at most", "gone", "at most")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[FIGURES] = []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What wants all nodes, or the machine for itself, comes before the rows that are played at once."""
    items.sort(key=lambda item: "outcomes" in getattr(item, "fixturenames", ()))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """The table of everything that was measured."""
    figures = config.stash[FIGURES]
    if not figures:
        return
    rows = [HEADINGS, *figures]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    terminalreporter.section("what was broken, and what was seen")
    for row in rows:
        cells = (text.ljust(width) for text, width in zip(row, widths, strict=True))
        terminalreporter.write_line("  ".join(cells).rstrip())


@pytest.fixture(scope="session")
def figures(request: pytest.FixtureRequest) -> Figures:
    """The lines of the table."""
    return request.config.stash[FIGURES]


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """A running cluster with the ranks' code on it; nothing of it is left in the end."""
    with rehearsed_workplace(tmp_path_factory.mktemp("chaos"), NODES) as made:
        shutil.copytree(Path(__file__).with_name("ranks"), made.own / "ranks")
        made.configure(STACK, nodeCount=NODES)
        made.fab("up", "--stack", STACK)
        yield Engine(made)


@pytest.fixture(scope="session")
def outcomes(
    engine: Engine, request: pytest.FixtureRequest
) -> Iterator[dict[Row | Interruption, Future[Any]]]:
    """What becomes of every row that was chosen; they are all begun at once, the longest first."""

    def waits(row: Row | Interruption) -> float:
        return -(row.waits if isinstance(row, Row) else row.row.waits)

    def play(row: Row | Interruption) -> Outcome | Seen:
        return engine.play(row) if isinstance(row, Row) else interrupt(engine, row)

    called = (getattr(item, "callspec", None) for item in request.session.items)
    rows = [spec.params["row"] for spec in called if spec is not None and "row" in spec.params]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {row: pool.submit(play, row) for row in sorted(rows, key=waits)}
