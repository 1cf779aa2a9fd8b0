"""A root leaves nothing behind, however the process that opened it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.bare_root import open_root

pytestmark = [pytest.mark.setup, pytest.mark.for_every_change]

ROOT = Path(__file__).parents[2]
LIMIT_S = 60
OPEN = """\
import sys
from pathlib import Path
from tests.bare_root import open_root
with open_root(Path(sys.argv[1]), [], temporary=Path(sys.argv[2]), env={"PATH": "/usr/bin:/bin"}) as root:
    print(root.run("mount --bind /var /mnt && echo opened").out, end="", flush=True)
    root.run(f"setsid sleep {sys.argv[3]} & sleep {sys.argv[3]}")
"""
SECONDS = f"4711.{os.getpid()}"
"""By which this run's processes are known, whoever else runs the same test."""


def inside() -> list[str]:
    return [line for path in Path("/proc").glob("[0-9]*/cmdline") if SECONDS in (line := command(path))]


def sleeping() -> list[str]:
    return [line for line in inside() if line.startswith("sleep\0")]


def command(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_root_is_gone_when_the_process_that_opened_it_is(
    archive: Path, tmp_path: Path, end: signal.Signals
) -> None:
    argv = [sys.executable, "-c", OPEN, str(archive), str(tmp_path / "root"), SECONDS]
    with subprocess.Popen(
        argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as opener:
        assert opener.stdout is not None
        assert opener.stdout.readline() == "opened\n"
        deadline = time.monotonic() + LIMIT_S
        while len(sleeping()) < 2 and time.monotonic() < deadline:
            time.sleep(0.1)
        opener.send_signal(end)
    deadline = time.monotonic() + LIMIT_S
    while (inside() or any((tmp_path / "root").iterdir())) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert inside() == []
    assert list((tmp_path / "root").iterdir()) == []
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()


def test_a_root_is_entered_as_a_booted_system_is(archive: Path, tmp_path: Path) -> None:
    """Nodes are namespaces of their own, and what a test has killed has to be gone."""
    env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    with open_root(archive, [], temporary=tmp_path / "root", env=env) as root:
        nested = root.run("unshare --user --map-current-user --pid --fork --mount-proc true")
        assert nested.status == 0, str(nested)
        root.run("(sleep 0.1 &)")
        ended = root.run("sleep 1; grep --files-with-matches '(zombie)' /proc/[0-9]*/status")
        assert (ended.status, ended.out) == (1, "")
