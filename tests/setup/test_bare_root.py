"""A root leaves nothing behind, however the process that opened it ends."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.setup, pytest.mark.for_every_change]

ROOT = Path(__file__).parents[2]
LIMIT_S = 60
OPEN = """\
import sys
from pathlib import Path
from tests.bare_root import open_root
with open_root(Path(sys.argv[1]), [], temporary=Path(sys.argv[2]), env={"PATH": "/usr/bin:/bin"}) as root:
    print(root.run("mount --bind /var /mnt && echo opened").out, end="", flush=True)
    root.run("setsid sleep 4711.25 & sleep 4711.25")
"""


def inside() -> list[str]:
    return [line for path in Path("/proc").glob("[0-9]*/cmdline") if "4711.25" in (line := command(path))]


def command(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_root_is_gone_when_the_process_that_opened_it_is(
    archive: Path, tmp_path: Path, end: signal.Signals
) -> None:
    argv = [sys.executable, "-c", OPEN, str(archive), str(tmp_path / "root")]
    with subprocess.Popen(
        argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as opener:
        assert opener.stdout is not None
        assert opener.stdout.readline() == "opened\n"
        while len(inside()) < 2:
            time.sleep(0.1)
        opener.send_signal(end)
    deadline = time.monotonic() + LIMIT_S
    while (inside() or any((tmp_path / "root").iterdir())) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert inside() == []
    assert list((tmp_path / "root").iterdir()) == []
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()
