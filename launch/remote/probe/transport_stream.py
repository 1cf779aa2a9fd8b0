"""A stream whose lines are evidence of the way between nodes."""

from __future__ import annotations

from collections.abc import Sequence

from launch.remote.base.frames import NOTICE
from launch.remote.base.health_records import Promise
from launch.remote.log.writer import StreamWriter
from launch.remote.probe.nccl_lines import MARK
from launch.remote.probe.transport_verdict import Evidence, Seen, Verdict, read_line

__all__ = ["TransportStream"]

_LONGEST = 1 << 13
"""Last bytes of an unfinished line that are kept; NCCL's lines have at most 1024 (src/debug.cc)."""


class TransportStream(StreamWriter):
    """Passes ranks' lines about connections to :attr:`evidence`. Without ``reads_all`` it looks at records
    with lines of NCCL alone: a job may print anything, and much of it."""

    def __init__(
        self, folder: str, nodes: Sequence[str], promise: Promise, *, reads_all: bool = False
    ) -> None:
        super().__init__(folder)
        self._nodes, self._reads_all = nodes, reads_all
        self.evidence = Evidence(promise)
        self._begun: dict[tuple[int, int, int], bytes] = {}
        """By rank, node and stream, an unfinished line."""

    def on_refused(self, verdict: Verdict) -> None:
        """Handle the first line that refuses the transport."""

    def write(self, rank: int, node: int, stream: int, data: bytes) -> None:
        """Write one record, and read it."""
        super().write(rank, node, stream, data)
        if rank < 0 or stream == NOTICE:
            return
        key = (rank, node, stream)
        data = self._begun.pop(key, b"") + data
        end = data.rfind(b"\n") + 1
        if end < len(data):  # what it is shows in the next record
            self._begun[key] = data[end:][-_LONGEST:]
        if not (self._reads_all or MARK in data):
            return
        for line in data[:end].split(b"\n"):
            if self._reads_all or b" via " in line or b": Using " in line:
                self._read(rank, self._nodes[node], line.decode("utf-8", "replace"))

    def close(self) -> None:
        """Read lines without an end, and close the file."""
        self.read_unfinished()
        super().close()

    def read_unfinished(self) -> None:
        """Read what a stream has ended with, where that is no whole line."""
        begun, self._begun = self._begun, {}
        for (rank, node, _), line in begun.items():
            if self._reads_all or MARK in line:
                self._read(rank, self._nodes[node], line.decode("utf-8", "replace"))

    def _read(self, rank: int, node: str, line: str) -> None:
        for fact in read_line(line, node):
            refused = self.evidence.add(Seen(rank, node, line, fact))
            if refused:
                self.on_refused(refused)
