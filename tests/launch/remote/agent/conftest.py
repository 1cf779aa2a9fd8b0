"""What several test modules of the agent use."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from launch.remote.base import processes
from launch.remote.base.records import Process


@pytest.fixture(scope="module")
def supervisor() -> Iterator[Process]:
    """A process with the words of a job's supervisor."""
    argv = [sys.executable, "-c", "input()", ".ranklift/remote/0123456789ab/__main__.py", "submit", "-"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE) as process:
        try:
            yield processes.identity(process.pid)
        finally:
            process.kill()
