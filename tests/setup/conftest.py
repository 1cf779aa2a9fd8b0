"""One bare Debian for all set-ups: git, make and python3 are in it, and the checkout's committed state."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bare_root import BareRoot
from tests.setup.bare_debian import bare_archive, bare_debian

SUITE = "bookworm"


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A Debian with nothing but git, make and python3, packed."""
    made = bare_archive(SUITE, tmp_path_factory.mktemp("archive"))
    yield made
    made.unlink()


@pytest.fixture(scope="session")
def debian(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BareRoot]:
    """The same unpacked, with the checkout in ``/ranklift``; nothing of it stays."""
    with bare_debian(SUITE, archive, tmp_path_factory.mktemp("setup")) as root:
        yield root
