"""Ranks that fail, machines that fail, operators that cancel: one fault a row."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from tests.chaos.conftest import Figures
from tests.chaos.engine import Engine, Outcome
from tests.chaos.interruptions import Interruption
from tests.chaos.row_checks import check_row, processes_left
from tests.chaos.rows import ROWS, Row

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_fault_ends_as_it_should(row: Row, outcomes: dict[Row, Future[Outcome]], figures: Figures) -> None:
    check_row(outcomes[row].result(), figures)


def test_nothing_of_any_job_is_left_on_any_node(
    engine: Engine, outcomes: dict[Row | Interruption, Future[Any]]
) -> None:
    assert processes_left(engine, outcomes) == {}
