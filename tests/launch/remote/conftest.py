"""A metadata service, and a home folder whose slots are known."""

from __future__ import annotations

import builtins
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from launch.remote.agent import activity
from tests.launch.remote.metadata_service import MetadataService


@pytest.fixture
def service() -> Iterator[MetadataService]:
    found = MetadataService()
    yield found
    found.close()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for folder in ("slots", "agent"):
        (tmp_path / ".ranklift" / folder).mkdir(parents=True)
    for name in ("guard", "0", "1"):
        (tmp_path / ".ranklift/slots" / name).touch()
    return tmp_path


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Fills the disk: from then on nothing new fits on it, and what is there can be written again."""

    def opened(path: str, mode: str = "r", **other: Any) -> Any:
        if mode == "w":
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY))  # its name fits; what it is to hold does not
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        return builtins.open(path, mode, **other)  # noqa: PTH123  in its place

    return lambda: monkeypatch.setattr(activity, "open", opened, raising=False)
