"""The endpoint over machines that only remember."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.rehearsal.doubles import Endpoint, RecordingMachines, endpoint


@pytest.fixture
def recorded() -> RecordingMachines:
    """What the endpoint asked of the machines."""
    return RecordingMachines()


@pytest.fixture
def azure(recorded: RecordingMachines) -> Iterator[Endpoint]:
    """An endpoint with an empty subscription."""
    with endpoint(recorded) as running:
        yield running
