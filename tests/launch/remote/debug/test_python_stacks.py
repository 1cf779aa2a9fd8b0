"""Stacks as py-spy prints them, of a fake program and of the real one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from launch.remote.debug.python_stacks import PySpy, parse_dump

DUMP = Path(__file__).parent / "golden" / "py-spy-0.4.3.json"
"""What py-spy 0.4.3 printed of a rank that waits in all_reduce of PyTorch 2.15, its paths shortened."""
SLEEPS = "import time\ndef inner():\n    time.sleep(600)\nprint('on', flush=True)\ninner()\n"


def test_the_main_thread_comes_first() -> None:
    threads = parse_dump(DUMP.read_bytes())
    assert [thread["name"] for thread in threads] == ["MainThread", "QueueFeederThread"]
    functions = [(frame["function"], frame["line"]) for frame in threads[0]["frames"]]
    assert functions == [
        ("all_reduce", 4181),
        ("_exception_logger.<locals>.wrapper", 83),
        ("train", 18),
        ("<module>", 43),
    ]


def test_threads_and_frames_are_bounded() -> None:
    found = json.loads(DUMP.read_bytes())
    found[1]["frames"] *= 500
    threads = parse_dump(json.dumps(found[1:] + found[:1] * 500).encode())
    assert (len(threads), len(threads[0]["frames"])) == (12, 32)


@pytest.mark.parametrize("output", [b"", b"{}", b"[1]", b'[{"pid": 1}]', b'[{"frames": [{}], "pid": 1}]'])
def test_anything_else_is_an_error(output: bytes) -> None:
    if output == b"{}":
        assert parse_dump(output) == []
        return
    with pytest.raises((ValueError, TypeError, LookupError)):
        parse_dump(output)


def program(folder: Path, script: str) -> None:
    path = folder / "py-spy"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder and a PATH without py-spy."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    return tmp_path


def test_a_node_without_the_program_says_so(home: Path) -> None:
    assert PySpy("bin/py-spy").dump(1, 1) == ([], "this node has no py-spy: `fab debug` brings it")


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("echo '[]'", ""),
        ("echo oops", "py-spy printed no stacks"),
        ("echo 'Error: Failed to find python version from target process' >&2; exit 1", ""),
        ("echo 'Error: no such process' >&2; exit 1", "Error: no such process"),
        ("exec sleep 60", "py-spy did not end within 0.5 s"),
    ],
)
def test_why_there_are_no_stacks(home: Path, script: str, problem: str) -> None:
    program(home, script)
    assert PySpy("py-spy").dump(1, 0.5) == ([], problem)


def test_where_tracing_is_refused_sudo_is_tried(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(
        home, f'[ -n "$AS_ROOT" ] || {{ echo "Permission denied (os error 13)" >&2; exit 1; }}; cat {DUMP}'
    )
    spy = PySpy("py-spy")
    monkeypatch.setenv("PATH", f"{home}/bin:/usr/bin:/bin")
    (home / "bin").mkdir()
    sudo = home / "bin" / "sudo"
    sudo.write_text('#!/bin/sh\n[ "$1" = -n ] && shift && AS_ROOT=1 exec "$@"\n')
    sudo.chmod(0o755)
    threads, problem = spy.dump(1, 5)
    assert (len(threads), problem) == (2, "")
    sudo.write_text("#!/bin/sh\necho 'sudo: a password is required, permission denied' >&2\nexit 1\n")
    threads, problem = PySpy("py-spy").dump(1, 5)
    assert threads == []
    assert problem.startswith("sudo: a password is required")
    assert "kernel.yama.ptrace_scope is" in problem


def test_the_program_itself_reads_a_process_stopped_or_not(tmp_path: Path) -> None:
    found = shutil.which("py-spy", path=str(Path(sys.executable).parent))
    assert found, "py-spy is in requirements/base.in"
    script = tmp_path / "sleeps.py"
    script.write_text(SLEEPS)
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            for signal in (0, 19):
                os.kill(process.pid, signal)
                time.sleep(0.1)
                threads, problem = PySpy(os.path.relpath(found, Path.home())).dump(process.pid, 10)
                assert problem == ""
                (thread,) = threads
                assert [frame["function"] for frame in thread["frames"]] == ["inner", "<module>"]
                assert thread["frames"][0]["text"] == "time.sleep(600)"
        finally:
            process.kill()
