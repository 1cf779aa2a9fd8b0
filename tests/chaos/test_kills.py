"""Supervisors, launchers and runners that are killed together: nothing of their job is left, others live."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from tests.chaos.conftest import Figures
from tests.chaos.engine import Outcome
from tests.chaos.kills import KILLS
from tests.chaos.row_checks import check_row
from tests.chaos.rows import Row

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]


@pytest.mark.parametrize("row", KILLS, ids=lambda row: row.name)
def test_no_process_outlives_those_that_end_it(
    row: Row, outcomes: dict[Row, Future[Outcome]], figures: Figures
) -> None:
    check_row(outcomes[row].result(), figures)
