"""The file of `fab check --svg` is looked at before anything is measured for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch.errors import InputError
from playbooks.check.check import _refuse_unwritable


@pytest.mark.parametrize("name", ["gone/pairs.svg", ".", "file/pairs.svg"])
def test_a_file_that_cannot_be_written_is_refused_by_its_name(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(
        InputError, match=r"--svg = '.*': cannot be written: (No such file|Is a dir|Not a dir)"
    ):
        _refuse_unwritable(tmp_path / name)


def test_a_file_that_can_be_written_is_left_as_it_was(tmp_path: Path) -> None:
    """A check that ends early leaves no empty picture, and no other in place of an earlier one."""
    _refuse_unwritable(tmp_path / "pairs.svg")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "pairs.svg").write_text("earlier")
    _refuse_unwritable(tmp_path / "pairs.svg")
    assert (tmp_path / "pairs.svg").read_text() == "earlier"
