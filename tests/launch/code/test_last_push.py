"""A push that grew by much names the folders that grew; what is known of the last one may be damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch.code.last_push import LastPush, growth_notice
from launch.code.snapshot import Entry, Snapshot

MB = 1_000_000


def snapshot(**sizes: int) -> Snapshot:
    """One with files in folders of these sizes in MB."""
    entries = tuple(Entry(f"{name}/file", size=count * MB) for name, count in sizes.items())
    return Snapshot(Path("/code"), Path("/code"), "id", entries, b"")


def last(**sizes: int) -> LastPush:
    return LastPush({name: count * MB for name, count in sizes.items()})


def test_the_folders_that_grew_most_are_named_with_their_bytes() -> None:
    now = snapshot(env=119, data=60, src=3, doc=2, bin=1)
    assert growth_notice(last(src=2, data=10), now) == (
        "/code grew from 12.0 MB to 185.0 MB since its last push; env: 119.0 MB, data: 50.0 MB, doc: 2.0 MB"
    )


@pytest.mark.parametrize(
    ("before", "now"),
    [
        pytest.param(last(src=1), snapshot(src=100), id="by less than 100 MB"),
        pytest.param(last(src=500), snapshot(src=1000), id="to no more than twice"),
        pytest.param(last(src=500), snapshot(src=1), id="smaller"),
        pytest.param(LastPush(), snapshot(src=1000), id="first push"),
    ],
)
def test_less_than_that_is_not_reported(before: LastPush, now: Snapshot) -> None:
    assert growth_notice(before, now) is None


def test_the_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    record = LastPush({"a/b": 3, os_name(): 1}, frozenset({"env"}))
    record.write(tmp_path / "push.json")
    assert LastPush.read(tmp_path / "push.json") == record


def os_name() -> str:
    """A name that is not UTF-8."""
    return b"caf\xe9".decode("utf-8", "surrogateescape")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"folders": 1, "left_out": []}', '{"folders": {"a": null}}']
)
def test_a_damaged_record_is_as_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "push.json").write_text(text)
    assert LastPush.read(tmp_path / "push.json") == LastPush()


def test_a_record_that_cannot_be_written_hinders_nothing(tmp_path: Path) -> None:
    LastPush().write(tmp_path / "absent" / "push.json")
    assert LastPush.read(tmp_path / "absent" / "push.json") == LastPush()
