"""The shell scripts that make a checkout ready and run it: what shellcheck finds, and what they refuse."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHELLCHECK = shutil.which("shellcheck", path=str(Path(sys.executable).parent)) or "shellcheck"
SCRIPTS = [
    path
    for path in sorted([ROOT / ".ci" / "run", *(ROOT / "tools").iterdir(), ROOT / "tools/azurite/install"])
    if path.is_file() and path.read_bytes().startswith(b"#!/usr/bin/env bash\n")
]
ON_PURPOSE = "SC2015"  # a && b || c, where c shall run too when b fails


def ran(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_shellcheck_finds_nothing_and_a_failure_ends_it(script: Path) -> None:
    assert ran(SHELLCHECK, f"--exclude={ON_PURPOSE}", script).stdout == ""
    assert "\nset -euo pipefail\n" in script.read_text().replace("set -Eeuo", "set -euo")


def test_they_are_found() -> None:
    assert {"run", "setup", "demo", "debian", "lock", "install"} <= {path.name for path in SCRIPTS}


@pytest.mark.parametrize("words", [["--benches"], ["--bench", "--azure"], ["bench"]])
def test_setup_refuses_what_it_would_pass_over(words: list[str]) -> None:
    done = ran(ROOT / "tools" / "setup", *words)
    assert (done.returncode, done.stdout) == (2, "")
    first, *usage = done.stderr.splitlines()
    assert first == f"tools/setup: takes none or one of its options, not: {' '.join(words)}"
    assert "tools/setup --frameworks" in "\n".join(usage)
