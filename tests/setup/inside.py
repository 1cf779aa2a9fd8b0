"""Runs in the bare root, by its own Python: a set-up that is killed halfway.

python3 inside.py PATTERN COMMAND...    starts COMMAND, kills all of it once a process matches PATTERN
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

LIMIT_S = 600


def others() -> Iterator[tuple[int, str]]:
    """Yield every process of this root but this one and those it was started by, with its command line."""
    mine = {os.getpid()}
    pid = os.getpid()
    while pid > 1:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
        mine.add(pid)
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            inside = (folder / "root").readlink() == Path("/")
            if command and inside and int(folder.name) not in mine:
                yield int(folder.name), command


def main() -> int:
    """Return 0 when it was killed while a process matched, 1 when none did."""
    pattern = re.compile(sys.argv[1])
    with subprocess.Popen(sys.argv[2:], start_new_session=True) as process:
        deadline = time.monotonic() + LIMIT_S
        while process.poll() is None and time.monotonic() < deadline:
            met = [command for _, command in others() if pattern.search(command)]
            if met:
                while found := list(others()):
                    for pid, _ in found:
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGKILL)
                    process.poll()
                return 0
            time.sleep(0.02)
    return 1


if __name__ == "__main__":
    sys.exit(main())
