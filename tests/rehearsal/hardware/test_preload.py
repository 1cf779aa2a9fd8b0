"""What programs of a rehearsed node load first, whatever a job has put in the place of its files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rehearsal.hardware.preload import CLOCK, SYSTEM, preload, set_clock

pytestmark = pytest.mark.timeout(20)  # a pipe without a writer holds up whoever opens it as a file


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root/etc/rehearsal").mkdir(parents=True)
    return tmp_path / "root"


def test_libraries_come_and_go(root: Path) -> None:
    listed = root / "etc/ld.so.preload"
    preload(root, SYSTEM)
    set_clock(root, 90)
    assert listed.read_text() == f"/run/vnet/{SYSTEM}\n/run/vnet/{CLOCK}\n"
    assert (root / "etc/rehearsal/clock").read_text() == "90\n"
    assert listed.stat().st_mode & 0o777 == 0o644
    set_clock(root, 0)
    assert listed.read_text() == f"/run/vnet/{SYSTEM}\n"
    preload(root, SYSTEM, wanted=False)
    assert not listed.exists()
    assert not (root / "etc/rehearsal/clock").exists()


@pytest.mark.parametrize("name", ["ld.so.preload", "rehearsal/clock"])
@pytest.mark.parametrize("kind", ["link", "pipe", "huge"])
def test_what_a_job_put_there_is_replaced_and_not_followed(
    root: Path, tmp_path: Path, name: str, kind: str
) -> None:
    own = tmp_path / "own"
    own.write_text("the operator's\n")
    place = root / "etc" / name
    if kind == "link":
        place.symlink_to(own)
    elif kind == "pipe":
        os.mkfifo(place)
    else:
        place.touch()
        os.truncate(place, 1 << 40)
    set_clock(root, 90)
    assert own.read_text() == "the operator's\n"
    assert (root / "etc/ld.so.preload").read_text() == f"/run/vnet/{CLOCK}\n"
    assert (root / "etc/rehearsal/clock").read_text() == "90\n"


def test_no_file_is_written_through_a_linked_folder(root: Path, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (root / "etc/rehearsal").rmdir()
    (root / "etc/rehearsal").symlink_to(tmp_path / "own")
    with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
        set_clock(root, 90)
    assert not list((tmp_path / "own").iterdir())
