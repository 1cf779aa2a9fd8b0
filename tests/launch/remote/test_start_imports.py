"""What the head has Python import before mpirun starts: all of it adds to the time of every launch."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[3]
_CODE = """
import sys
for name, path in (("launch", []), ("launch.remote", [sys.argv[1] + "/launch/remote"])):
    module = type(sys)(name)
    module.__path__ = path
    sys.modules[name] = module
from launch.remote import cli
from launch.remote.head import supervisor
from launch.remote.log import follow
from launch.remote.store.store import Store
print(*sorted(sys.modules))
"""


def test_a_submitted_job_waits_for_no_import_that_its_start_does_not_need() -> None:
    ran = subprocess.run(
        ["python3", "-I", "-S", "-c", _CODE, str(ROOT)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    imported = set(ran.stdout.split())
    assert "launch.remote.head.attempt" in imported
    # each takes milliseconds of processor time, _hashlib by loading OpenSSL
    costly = {"_hashlib", "_ssl", "ast", "dataclasses", "inspect", "shutil", "tempfile"}
    assert sorted(costly & imported) == []
