"""What Pulumi prints: all of it in the stack's log, its errors on stderr, the rest where it is shown."""

from __future__ import annotations

import os
import shlex
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from launch.moments import utc
from launch.printable import for_stream
from playbooks.cli import output
from playbooks.project import PULUMI_LOG, Stack
from playbooks.pulumi.locks import REFUSALS

__all__ = ["Captured"]

_REST_S = 5.0
"""How long its output is read after Pulumi has ended: its children may hold it open."""
_LOG_BYTES = 4 << 20
"""Size from which the next command begins another log; the one before it is kept."""


class Captured:
    """The output of one Pulumi: ``out`` and ``errors`` are for its stdout and stderr."""

    def __init__(self, stack: Stack, arguments: Sequence[str], *, shows: bool) -> None:
        self.path = stack.folder / PULUMI_LOG
        self._log = _opened(self.path)
        now = utc(datetime.now(UTC))
        self._keep(f"== {now}: {shlex.join(['pulumi', *arguments])}\n".encode())
        self._begins = os.lseek(self._log, 0, os.SEEK_END)
        self.refusal = b""
        """Its refusal of a stack that another command has locked; empty if it was none."""
        self.has_printed = shows
        """Whether it has printed anything that was passed on."""
        self.out, from_out = _pipe()
        self.errors, from_errors = _pipe()
        self._threads = (
            threading.Thread(target=_copy, args=(from_out, self._keep, *[output.data] * shows), daemon=True),
            threading.Thread(target=_copy, args=(from_errors, self._keep, self._print_error), daemon=True),
        )

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close_ends()
        for thread in self._threads:
            thread.join(_REST_S)
        log, self._log = self._log, -1
        os.close(log)

    def close_ends(self) -> None:
        """Close the ends that Pulumi has by now, so that its end is the end of its output."""
        for end in (self.out, self.errors):
            if end >= 0:
                os.close(end)
        self.out = self.errors = -1

    def print_all(self) -> None:
        """Print what has come so far on stdout, for a failure that nothing else explains."""
        with suppress(OSError), self.path.open("rb") as file:
            file.seek(self._begins)
            output.data(file.read(_LOG_BYTES))

    def _keep(self, data: bytes) -> None:
        if self._log >= 0:
            os.write(self._log, data)

    def _print_error(self, data: bytes) -> None:
        """Print it, except the refusal of a stack that another command has locked: that advises `pulumi
        cancel`, which would remove the lock of a command that runs. It is short enough to come in one chunk.
        """
        if not self.refusal:
            found = min((at for text in REFUSALS if (at := data.find(text)) >= 0), default=len(data))
            start = data.rfind(b"\n", 0, found) + 1 if found < len(data) else found
            self.has_printed |= start > 0
            sys.stderr.write(for_stream(data[:start].decode("utf-8", "replace"), sys.stderr))
            sys.stderr.flush()
            data = data[start:]
        self.refusal += data


def _opened(path: Path) -> int:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(FileNotFoundError):
        if path.stat().st_size > _LOG_BYTES:
            path.replace(path.with_name(f"{path.name}.1"))
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _pipe() -> tuple[int, int]:
    source, end = os.pipe()
    return end, source


def _copy(source: int, *takers: Callable[[bytes], object]) -> None:
    # By chunks, not lines: they are shown as they come.
    while data := os.read(source, 65536):
        for take in takers:
            with suppress(OSError):
                take(data)
    os.close(source)
