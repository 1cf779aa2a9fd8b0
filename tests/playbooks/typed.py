"""Commands as users type them."""

from __future__ import annotations

import copy
import os
import pty
import signal
import subprocess
import sys
import termios
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from playbooks import ns

ROOT = Path(__file__).resolve().parents[2]
FAB = str(Path(sys.executable).with_name("fab"))


def write_project(folder: Path, *stacks: str, fabfile: bool = False) -> None:
    """What makes a folder a project with these stacks, and with ``fabfile`` one that tasks run in."""
    (folder / "Pulumi.yaml").write_text("name: ranklift\nruntime: python\nmain: infra\n")
    for stack in stacks:
        (folder / f"Pulumi.{stack}.yaml").write_text("config: {}\n")
    if fabfile:
        (folder / "fabfile.py").write_text("from playbooks import ns\n")


def fab(
    workplace: Path, *arguments: str, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """A command in a user's repository, to its end."""
    return subprocess.run(
        [FAB, *arguments],
        cwd=workplace,
        env={**os.environ, "PYTHONPATH": str(ROOT), "RANKLIFT_STACK": "dev", **(env or {})},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def on_terminal(workplace: Path, columns: int, *arguments: str) -> str:
    """What a terminal of that width shows of a command in a user's repository."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (50, columns))
    env = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    with subprocess.Popen(
        [FAB, *arguments],
        cwd=workplace,
        env={**env, "PYTHONPATH": str(ROOT), "RANKLIFT_STACK": "dev", "TERM": "xterm"},
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
    ):
        os.close(theirs)
        shown = b""
        with suppress(OSError):  # the other end is closed
            while data := os.read(ours, 65536):
                shown += data
        os.close(ours)
    return shown.decode().replace("\r\n", "\n")


def interrupted(
    workplace: Path,
    *arguments: str,
    begun: Path,
    env: dict[str, str] | None = None,
    as_terminal: bool = False,
) -> tuple[int, str]:
    """Exit status and stderr after Ctrl-C once a file is there; a terminal's reaches what it runs as well."""
    with subprocess.Popen(
        [FAB, *arguments],
        cwd=workplace,
        env={**os.environ, "PYTHONPATH": str(ROOT), "RANKLIFT_STACK": "dev", **(env or {})},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=as_terminal,
    ) as running:
        deadline = time.monotonic() + 60
        while not begun.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        (os.killpg if as_terminal else os.kill)(running.pid, signal.SIGINT)
        _, stderr = running.communicate(timeout=60)
    return running.returncode, stderr


def fake_pulumi(folder: Path, script: str) -> dict[str, str]:
    """An environment whose pulumi is this shell script."""
    program = folder / "bin" / "pulumi"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return {"PATH": f"{program.parent}:/usr/bin:/bin"}


def without_connections(folder: Path) -> dict[str, str]:
    """An environment in which a command that connects, or starts a program other than git, ends with 99.

    strace would say the same; this needs no such tool.
    """
    guard = folder / "guard"
    guard.mkdir(exist_ok=True)
    (guard / "sitecustomize.py").write_text(
        "import sys\n"
        "def hook(event, arguments):\n"
        "    if event in ('socket.connect', 'socket.getaddrinfo') or (\n"
        "        event in ('subprocess.Popen', 'os.exec') and 'git' not in str(arguments[0])\n"
        "    ):\n"
        "        sys.stderr.write(f'FORBIDDEN {event}\\n')\n"
        "        sys.stderr.flush()\n"
        "        import os; os._exit(99)\n"
        "sys.addaudithook(hook)\n"
    )
    return {"PYTHONPATH": f"{guard}:{ROOT}"}


def arguments(task: str) -> list[Any]:
    """A task's arguments with their help; Invoke takes the help from the task that it is asked of."""
    query = copy.copy(ns[task])
    query.help = dict(query.help)
    made: list[Any] = query.get_arguments()
    return made
