"""An operator whose launch is killed and who types it again has that job once more, and nothing else."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from tests.chaos.conftest import Figures
from tests.chaos.interruptions import INTERRUPTIONS, Interruption, Seen
from tests.chaos.row_checks import check_interruption

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]


@pytest.mark.parametrize("row", INTERRUPTIONS, ids=lambda what: what.row.name)
def test_a_launch_that_was_killed_may_be_repeated(
    row: Interruption, outcomes: dict[Interruption, Future[Seen]], figures: Figures
) -> None:
    check_interruption(row, outcomes[row].result(), figures)
