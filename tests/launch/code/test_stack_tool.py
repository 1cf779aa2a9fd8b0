"""py-spy goes to nodes as one file, where this machine has one that they can run."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

from launch.code import stack_tool
from launch.code.stack_tool import py_spy_path, py_spy_snapshot


@pytest.fixture(autouse=True)
def anew() -> Iterator[None]:
    """Nothing is known of earlier tests' programs."""
    py_spy_snapshot.cache_clear()
    yield
    py_spy_snapshot.cache_clear()


def test_it_is_one_executable_file_of_this_machine() -> None:
    found = py_spy_snapshot()
    assert found is not None
    assert [(entry.path, entry.executable) for entry in found.entries] == [("py-spy", True)]
    assert py_spy_path() == f".ranklift/snapshots/{found.id}/py-spy"


def test_without_the_package_nothing_is_pushed(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> object:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "files", missing)
    assert (py_spy_snapshot(), py_spy_path()) == (None, "")


@pytest.mark.parametrize(
    "start", [b"\xcf\xfa\xed\xfe" + b"\0" * 20, b"\x7fELF\x02" + b"\0" * 13 + b"\xb7\x00", b""]
)
def test_a_program_of_another_machine_is_not_pushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: bytes
) -> None:
    (tmp_path / "py-spy").write_bytes(start)
    monkeypatch.setattr(metadata, "files", lambda _: [File(tmp_path / "py-spy")])
    assert py_spy_snapshot() is None
    assert "pip install py-spy" in stack_tool.NO_STACKS


class File:
    """A file of a distribution, as :func:`importlib.metadata.files` gives it."""

    def __init__(self, path: Path) -> None:
        self.name, self._path = path.name, path

    def locate(self) -> Path:
        return self._path
