"""A process that is killed while it writes what it has run takes no other's figures with it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import coverage
import pytest

from tests.coverage_files import remove_torn

ROOT = Path(__file__).parents[1]
LINES = {f"/project/module_{number}.py": range(1, 400) for number in range(1000)}


def write(path: Path) -> bytes:
    """Return what a process writes at its end."""
    data = coverage.CoverageData(str(path))
    data.add_lines(LINES)
    data.close()
    return path.read_bytes()


@pytest.mark.parametrize("part", [0.02, 0.5, 0.9])
def test_half_a_file_is_removed_and_whole_ones_are_combined(
    tmp_path: Path, part: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    whole, torn = tmp_path / ".coverage.whole", tmp_path / ".coverage.torn"
    content = write(whole)
    torn.write_bytes(content[: int(part * len(content))])
    assert remove_torn(tmp_path / ".coverage") == [torn]
    combined = coverage.Coverage(data_file=str(tmp_path / ".coverage"))
    combined.combine(strict=True)
    assert combined.get_data().measured_files() == set(LINES)


def test_one_that_was_killed_before_its_first_page_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".coverage.empty").touch()
    assert remove_torn(tmp_path / ".coverage") == [tmp_path / ".coverage.empty"]


def test_a_run_of_tests_does_so_before_it_combines(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("from tests.conftest import pytest_runtestloop\n")
    (tmp_path / "test_one.py").write_text(
        "def test_one(request):\n"
        "    (request.config.rootpath / '.coverage.torn').write_bytes(b'SQLite format 3')\n"
    )
    env = {name: value for name, value in os.environ.items() if not name.startswith(("COV", "PYTEST"))}
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "--rootdir", tmp_path, "--cov", ".", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env=env | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "test_one.py" in ran.stdout
    assert "CoverageWarning" not in ran.stdout + ran.stderr
    assert not (tmp_path / ".coverage.torn").exists()
