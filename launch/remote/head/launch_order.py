"""What one launch of a job is given: its plan, its slots and port, and where its records and output go."""

from __future__ import annotations

from typing import NamedTuple

from launch.remote.base import job_dir
from launch.remote.base.records import Plan
from launch.remote.log.writer import StreamWriter

__all__ = ["LaunchOrder"]


class LaunchOrder(NamedTuple):
    """``restarts`` is the number of launches before; ``deadline``, by the monotonic clock, the end of the
    job's time, None without a limit."""

    folder: job_dir.Folder
    plan: Plan
    slots: dict[str, list[int]]
    port: int
    stream: StreamWriter
    restarts: int
    deadline: float | None
