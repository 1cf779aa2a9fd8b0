"""A metadata service, and a home folder whose slots are known."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.launch.remote.metadata_service import MetadataService


@pytest.fixture
def service() -> Iterator[MetadataService]:
    found = MetadataService()
    yield found
    found.close()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / ".ranklift/slots").mkdir(parents=True)
    for name in ("guard", "0", "1"):
        (tmp_path / ".ranklift/slots" / name).touch()
    return tmp_path
