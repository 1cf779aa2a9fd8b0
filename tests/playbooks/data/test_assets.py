"""The file of a data asset that is registered."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch.errors import InputError
from playbooks.data.assets import asset_fields

_LAUGHS = ["properties:", "  l0: &l0 {a: 1}"] + [
    f"  l{number}: &l{number} {{<<: [*l{number - 1}, *l{number - 1}]}}" for number in range(1, 60)
]


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(_LAUGHS),
        "a: &a 1\nb: *a\n",
        "a: !foo x\n",
        "a: !!timestamp x\n",
        "{[a]: 1}\n",
        "a: 2001-99-99\n",
        "7\n",
    ],
    ids=["laughs", "alias", "tag", "timestamp", "list as key", "date", "number"],
)
def test_a_file_that_yaml_reads_as_more_than_plain_values_is_refused_by_name(
    tmp_path: Path, text: str
) -> None:
    (tmp_path / "asset.yml").write_text(text)
    with pytest.raises(InputError, match=r"asset\.yml"):
        asset_fields(tmp_path / "asset.yml")


def test_fields_are_as_they_are_written(tmp_path: Path) -> None:
    (tmp_path / "asset.yml").write_text("name: iris\nversion: 2\ntags: {a: b}\n")
    assert asset_fields(tmp_path / "asset.yml") == {"name": "iris", "version": 2, "tags": {"a": "b"}}
