"""The sampler of a runner: its ranks, and the node itself where this runner is the node's first."""

from __future__ import annotations

import os
import sys

from launch.remote.base import timing
from launch.remote.health.sysfs import has_nvidia_driver
from launch.remote.lines.line_patterns import LineReader, PatternSearch
from launch.remote.sample.gpu_stats import GpuFeed
from launch.remote.sample.node_stats import NodeStats
from launch.remote.sample.process_stats import ProcessStats

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from launch.remote.base.payloads import RunnerSpec
    from launch.remote.base.rate_limit import RecentOutput
    from launch.remote.sample.sample_records import RankSample, Sample

__all__ = ["Sampler"]


class Sampler:
    """Takes samples of a runner's ranks, given their pids; times are in seconds of one monotonic clock."""

    def __init__(self, spec: RunnerSpec, pids: Mapping[int, int], now: float) -> None:
        self._next = now + timing.SAMPLE_FIRST_S
        self._search = PatternSearch(spec["metrics"], _warn)
        self._lines = {rank: LineReader() for rank in pids}
        self._processes = ProcessStats(pids, now)
        self._node = NodeStats(now) if spec["first"] else None
        self._job = spec["job"]
        self._gpus: GpuFeed | None = None
        self._gpus_at = now + timing.SAMPLE_GPUS_S if spec["first"] and has_nvidia_driver() else None

    def next_at(self, now: float) -> float:
        """Return the time of the next sample: a fixed interval after the last, unless that is over."""
        if self._next <= now:
            self._next = max(self._next, now - timing.SAMPLE_S) + timing.SAMPLE_S
        return self._next

    def sample(self, outputs: Mapping[int, RecentOutput], now: float) -> Sample:
        """Return a sample of the node and of the ranks that run, whose ``outputs`` these are."""
        figures = self._processes.sample(now)
        metrics = self._search.search(
            {rank: self._lines[rank].lines(output.take()) for rank, output in outputs.items()}
        )
        ranks: list[RankSample] = [
            {
                "rank": rank,
                "cpu_permille": figures[rank][0],
                "memory": figures[rank][1],
                "silent_ms": max(0, int(1000 * (now - output.last))),
                "metrics": metrics.get(rank, {}),
                "lines": self._search.take_lines(rank),
            }
            for rank, output in outputs.items()
        ]
        if self._gpus_at is not None and now >= self._gpus_at:
            self._gpus, self._gpus_at = GpuFeed(self._job, now), None
        gpus = [] if self._gpus is None else self._gpus.newest(now)
        return {"node": [] if self._node is None else [self._node.sample(now, gpus)], "ranks": ranks}

    def close(self) -> None:
        """End what the sampler has started."""
        if self._gpus is not None:
            self._gpus.close()

    def last_metrics(self, rank: int, output: RecentOutput, now: float) -> Sample | None:
        """Return a sample with what the last lines of a rank that has ended hold; None where that is
        nothing."""
        if rank not in self._lines:
            return None
        found = self._search.search({rank: self._lines[rank].lines(output.take(), at_end=True)}).get(rank)
        if not found:
            return None
        silent_ms = max(0, int(1000 * (now - output.last)))
        ended: RankSample = {
            "rank": rank,
            "cpu_permille": 0,
            "memory": 0,
            "silent_ms": silent_ms,
            "metrics": found,
            "lines": self._search.take_lines(rank),
        }
        return {"node": [], "ranks": [ended]}


def _warn(line: str) -> None:
    """Write a line to stderr, which the supervisor has in the job's stream as the launcher's."""
    sys.stderr.write(f"{os.uname().nodename}: {line}\n")
    sys.stderr.flush()
