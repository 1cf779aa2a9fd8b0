"""What the head has Python import before mpirun starts: all of it adds to the time of every launch."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[3]
_PACKAGES = """
import sys
for name, path in (("launch", []), ("launch.remote", [sys.argv[1] + "/launch/remote"])):
    module = type(sys)(name)
    module.__path__ = path
    sys.modules[name] = module
"""
_HEAD = """
from launch.remote import cli
from launch.remote.head import supervisor
from launch.remote.log import follow
from launch.remote.store.store import Store
"""
_RUNNER = "from launch.remote.node import runner"
_PRINT = "print(*sorted(sys.modules))"


def imported_by(code: str) -> set[str]:
    """What these imports on a node bring with them."""
    ran = subprocess.run(
        ["python3", "-I", "-S", "-c", f"{_PACKAGES}\n{code}\n{_PRINT}", str(ROOT)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return set(ran.stdout.split())


def sampling(imported: set[str]) -> set[str]:
    return {name for name in imported if name.startswith(("launch.remote.sample", "launch.remote.lines"))}


def test_a_submitted_job_waits_for_no_import_that_its_start_does_not_need() -> None:
    imported = imported_by(_HEAD)
    assert "launch.remote.head.attempt" in imported
    # each takes milliseconds of processor time, _hashlib by loading OpenSSL
    costly = {"_hashlib", "_ssl", "ast", "dataclasses", "inspect", "shutil", "tempfile"}
    assert sorted(costly & imported) == []
    assert sampling(imported) == set()


def test_no_ranks_start_waits_for_the_sampler() -> None:
    imported = imported_by(_RUNNER)
    assert "launch.remote.node.loop" in imported
    assert sampling(imported) == set()
    assert {"re", "typing", "enum"} & imported == set()
