"""The nodes of a staging, as their head sees them: a process on each, reached over ssh."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shlex
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence

from launch.remote.base.messages import unexplained_end
from launch.remote.data.stage_request import NodeMessage
from launch.remote.login import marked
from launch.remote.store.tree_node import MARK, UNPACK

__all__ = ["BOOT", "Member"]

BOOT = UNPACK + "from launch.remote.data import stage_node\nstage_node.main(r)\n"
_TAIL_BYTES = 4096


class Member:
    """A node's process; its messages go to ``events``, the last is ``gone``."""

    def __init__(
        self,
        name: str,
        address: str,
        ssh: Sequence[str],
        opening: bytes,
        events: queue.Queue[tuple[Member, NodeMessage]],
    ) -> None:
        """``ssh`` is empty for the head itself; ``opening`` is the first that the process reads."""
        self.name, self.address = name, address
        self.port = 0
        self.reason = ""
        self.is_gone = False
        self.is_done = False
        """Whether the node has reported that it holds all."""
        self.heard = time.monotonic()
        self._events = events
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (open for as long as the process lives)
        command = f"python3 -c {shlex.quote(BOOT)}"
        self._process = subprocess.Popen(
            [*ssh, address, marked(command)] if ssh else ["sh", "-c", f"exec {command}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,  # so that a proxy command ends with its ssh
        )
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._lines.put(opening)
        # ssh blocks on a node that is gone; the others must not wait as well.
        threading.Thread(target=self._write, daemon=True).start()
        threading.Thread(target=self._read, daemon=True).start()

    def send(self, message: Mapping[str, object]) -> None:
        """Send a line."""
        self._lines.put(json.dumps(message).encode() + b"\n")

    def close(self) -> None:
        """End the process's input, and so the process."""
        self._lines.put(b"")

    def give_up(self, reason: str) -> None:
        """Kill the process; the first ``reason`` given counts."""
        self.reason = self.reason or reason
        if not self.is_gone:  # afterwards another process may have its pid
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _write(self) -> None:
        stream = self._process.stdin
        assert stream is not None  # noqa: S101  (a pipe)
        with contextlib.suppress(OSError):
            while line := self._lines.get():
                stream.write(line)
                stream.flush()
        with contextlib.suppress(OSError):
            stream.close()

    def _read(self) -> None:
        stream = self._process.stdout
        assert stream is not None  # noqa: S101  (a pipe)
        for line in stream:
            self.heard = time.monotonic()
            if line.startswith(MARK):
                message: NodeMessage = json.loads(line[len(MARK) :])
                if message["t"] != "beat":
                    self._events.put((self, message))
        status = self._process.wait()
        if not self.reason:
            self._errors.seek(max(0, self._errors.seek(0, os.SEEK_END) - _TAIL_BYTES))
            last = [
                line for line in self._errors.read().decode("utf-8", "replace").splitlines() if line.strip()
            ]
            self.reason = unexplained_end(status, last[-1].strip() if last else "")
        self._errors.close()
        self.is_gone = True
        stream.close()
        self._lines.put(b"")
        self._events.put((self, {"t": "gone"}))
