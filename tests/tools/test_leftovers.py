"""The proof at the end of the demo finds what a rehearsal leaves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools" / "leftovers.py"
DAEMON = """
import json, os, socket, subprocess, sys, time
server = socket.create_server(("127.0.0.1", 0))
child = subprocess.Popen("unshare --user --map-root-user --net --fork --kill-child sleep 60".split())
with open(sys.argv[1], "w") as file:
    json.dump({"pid": os.getpid()}, file)
print(child.pid, server.getsockname()[1], flush=True)
time.sleep(60)
"""


@contextmanager
def rehearsal(folder: Path) -> Iterator[tuple[subprocess.Popen[str], int, int]]:
    """A stand-in for the daemon: its process, the pid of its child in a namespace, its port."""
    folder.mkdir()
    daemon = subprocess.Popen(
        [sys.executable, "-c", DAEMON, str(folder / "rehearsal.json")], stdout=subprocess.PIPE, text=True
    )
    assert daemon.stdout is not None
    child, port = map(int, daemon.stdout.readline().split())
    try:
        yield daemon, child, port
    finally:
        daemon.kill()
        with suppress(ProcessLookupError):
            os.kill(child, 9)
        daemon.communicate()


def leftovers(verb: str, folder: Path, file: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, TOOL, verb, folder, file], capture_output=True, text=True, check=False, timeout=30
    )


def test_all_is_named_while_it_runs_and_all_gone_afterwards(tmp_path: Path) -> None:
    folder, file = tmp_path / "rehearsal", tmp_path / "belongings.json"
    with rehearsal(folder) as (daemon, child, port):
        assert leftovers("record", folder, file).returncode == 0
        recorded = json.loads(file.read_text())
        assert f"127.0.0.1:{port}" in recorded["ports"]
        assert any(line.startswith(f"{child} ") for line in recorded["processes"])
        assert any(line.startswith("net:") for line in recorded["namespaces"])
        still = leftovers("check", folder, file)
        assert still.returncode == 1
        assert f"left over, ports: 127.0.0.1:{port}" in still.stderr
        assert f"left over, processes: {daemon.pid} " in still.stderr
    after = leftovers("check", folder, file)
    assert (after.returncode, after.stderr) == (0, "")


def test_a_child_that_outlives_the_daemon_is_found(tmp_path: Path) -> None:
    folder, file = tmp_path / "rehearsal", tmp_path / "belongings.json"
    with rehearsal(folder) as (daemon, child, _):
        leftovers("record", folder, file)
        daemon.kill()
        daemon.wait()
        found = leftovers("check", folder, file)
        assert found.returncode == 1
        assert f"left over, processes: {child} " in found.stderr
        assert "left over, namespaces: net:" in found.stderr


@pytest.mark.parametrize("name", ["rehearsal", "rehearsal with spaces"])
def test_a_process_that_works_in_the_folder_is_found_without_any_record(tmp_path: Path, name: str) -> None:
    folder, file = tmp_path / name, tmp_path / "belongings.json"
    folder.mkdir()
    leftovers("record", folder, file)
    with subprocess.Popen(["sleep", "60"], cwd=folder) as worker:
        try:
            assert f"left over, processes: {worker.pid} " in leftovers("check", folder, file).stderr
        finally:
            worker.kill()
