"""The tools that make an environment: each runs to its end, or ends with this process."""

from __future__ import annotations

import collections
import contextlib
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from launch.remote.base import timing
from launch.remote.base.processes import die_with_parent

__all__ = ["Failed", "Report", "run"]


class Report(Protocol):
    """Function that shows the progress to the operator: a line, or bytes done of a total (0: unknown)."""

    def __call__(self, text: str, done: int = 0, total: int = 0) -> None:
        """Show it."""


_KEPT_LINES = 20


class Failed(Exception):
    """An environment cannot be made; ``lines`` are the last of the tool that failed."""

    def __init__(self, reason: str, lines: Iterable[str] = ()) -> None:
        self.reason, self.lines = reason, list(lines)
        super().__init__(reason)


def run(
    what: str,
    argv: Sequence[str],
    env: Mapping[str, str],
    report: Report,
    *,
    steps: tuple[str, ...] = ("",),
    stdin: bytes = b"",
    keep_open: Sequence[int] = (),
) -> list[str]:
    """Run a tool that does ``what``; return its last lines. Report how much it has written, and lines that
    begin as ``steps``: an error's lines are reported once, by :class:`Failed`.

    The tool inherits ``keep_open``: a lock among them is held for as long as any of its processes lives.
    Raise :class:`Failed` when the tool fails.
    """
    with tempfile.TemporaryFile() as source:
        source.write(stdin)
        source.seek(0)
        try:
            tool = subprocess.Popen(
                argv,
                env=dict(env),
                stdin=source,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=keep_open,
                preexec_fn=lambda: die_with_parent(signal.SIGKILL),  # noqa: PLW1509  (no thread holds a lock of it)
            )
        except OSError as error:
            raise Failed(f"{what}: {argv[0]} cannot be started: {error.strerror}") from error
    assert tool.stdout is not None  # noqa: S101  (a pipe)
    over = threading.Event()
    threading.Thread(target=_watch, args=(what, tool.pid, over, report), daemon=True).start()
    lines: collections.deque[str] = collections.deque(maxlen=_KEPT_LINES)
    try:
        for line in tool.stdout:
            text = line.decode("utf-8", "replace").rstrip()
            if text:
                lines.append(text)
                if text.startswith(steps):
                    report(text)
        status = tool.wait()
    finally:
        over.set()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(tool.pid, signal.SIGKILL)
        tool.wait()
        tool.stdout.close()
    if status:
        raise Failed(f"{what} failed with exit status {status}", lines)
    return list(lines)


def _watch(what: str, pid: int, over: threading.Event, report: Report) -> None:
    """Report how much a tool has written, for as long as it writes."""
    while not over.wait(timing.ENVIRONMENT_REPORT_S):
        report(what, _written(pid))


def _written(pid: int) -> int:
    """Return the bytes that a process has written."""
    try:
        with open(f"/proc/{pid}/io", encoding="ascii") as stream:
            return int(dict(line.split(": ") for line in stream)["wchar"])
    except (OSError, ValueError, KeyError):
        return 0
