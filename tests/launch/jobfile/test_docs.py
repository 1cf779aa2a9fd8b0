"""What docs/job-file.md shows is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from launch.errors import InputError
from launch.jobfile import parse, read

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "job-file.md").read_text()
JOB, OWN = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "data" / "digits").mkdir(parents=True)
    return tmp_path / "job.yml"


def test_the_example_is_taken_and_so_is_the_own_block(path: Path) -> None:
    path.write_text(JOB + OWN)
    job = read(path)
    assert job.own.nodes == "0-3,7"
    assert job.unused == ()


def test_the_error_shown_is_the_one_that_comes(path: Path) -> None:
    (shown,) = re.findall(r"^error: (job\.yml, .*)$", PAGE, re.MULTILINE)
    path.write_text(JOB.replace("type: pytorch", "type: pytroch"))
    with pytest.raises(InputError) as caught:
        read(path)
    assert str(caught.value) == str(path).removesuffix("job.yml") + shown


@pytest.mark.parametrize("key", [*parse.USED, *parse.UNUSED])
def test_every_key_is_there(key: str) -> None:
    assert f"`{key}" in PAGE
