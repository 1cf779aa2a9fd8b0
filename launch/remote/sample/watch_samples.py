"""The newest samples of a job for an operator who watches: sent whenever there are newer ones.

The watcher is a process of its own on the head, which reads files; a slow or dead connection does not affect
the job.
"""

from __future__ import annotations

import json
import os
import time
import zlib
from typing import TypedDict

from launch.remote.base import frames, job_dir, timing
from launch.remote.base.records import State
from launch.remote.sample import stored_samples
from launch.remote.sample.sample_records import History, SampleReport
from launch.remote.sample.sample_report import report_of

__all__ = ["WatchAnswer", "shortened", "watch"]

_POLL_S = 0.1
_LEAST_S = 0.5
"""Least pause between two answers: a screen need not change more often."""
_PAUSES_PER_WORK = 20
"""A pause is so many times as long as the processor worked for the answer before, which is 0.02 s for 300
nodes with 2400 ranks, and 0.05 s with their history: a watcher takes a twentieth of a processor at most."""
_JOBS_S = 2.0
_SERIES = ("cpu", "gpu")
_POINTS = 60
"""Of the history, what a screen has room for."""
_LEVEL = 1
"""Of zlib: records of 2400 ranks become a tenth in 4 ms; higher levels take more time than they save."""


class WatchAnswer(TypedDict):
    """Frame SAMPLES, in JSON and compressed by zlib."""

    report: SampleReport
    """Its history is shortened, and None where it is the one sent before."""
    is_same_history: bool
    jobs: list[State]
    """The head's jobs that have not ended, oldest first."""


def watch(job: str) -> int:
    """Send the job's samples after each change until it has ended, and signs of life in between.

    Raise FileNotFoundError when there is no such job, BrokenPipeError when nobody watches any more.
    """
    folder = job_dir.Folder(job)
    plan = folder.plan()
    states = job_dir.StateWatch(folder)
    sent: object = None
    next_at = jobs_at = spoken = 0.0
    history_stamp: object = None
    history: History | None = None
    jobs: list[State] = []
    while True:
        now = time.monotonic()
        state = states.state()
        if now - jobs_at > _JOBS_S:
            jobs = [one for one in job_dir.all_jobs() if one["state"] not in job_dir.TERMINAL]
            jobs_at = now
        stamps = [_stamp(folder.file(name)) for name in (stored_samples.LIVE, stored_samples.HISTORY)]
        seen = (stamps, state, jobs)
        if seen != sent and now >= next_at:
            began = time.process_time()
            is_same = stamps[1] == history_stamp
            if not is_same:
                history = stored_samples.history(folder.path)
            report = report_of(folder, plan, state, history)
            kept = None if is_same or history is None else shortened(history)
            _send({"report": {**report, "history": kept}, "is_same_history": is_same, "jobs": jobs})
            work = time.process_time() - began
            spoken = time.monotonic()
            sent, history_stamp = seen, stamps[1]
            next_at = spoken + max(_LEAST_S, _PAUSES_PER_WORK * work)
            if state["state"] in job_dir.TERMINAL:
                return 0
        elif now - spoken > timing.WATCH_BEAT_S:
            frames.send_answer(frames.BEAT, b"")
            spoken = now
        time.sleep(_POLL_S)


def _send(answer: WatchAnswer) -> None:
    data = json.dumps(answer, separators=(",", ":")).encode()
    frames.send_answer(frames.SAMPLES, zlib.compress(data, _LEVEL))


def shortened(history: History) -> History:
    """Return the last intervals of a history, without the series that a screen does not show.

    >>> long = {"cpu": [0.1234] * 90, "power": [9.0] * 90}
    >>> made = shortened({"start": 0.0, "interval_s": 8.0, "nodes": {"a": long}, "attempts": []})
    >>> made["nodes"]["a"] == {"cpu": [0.123] * 60}
    True
    """
    nodes = {
        node: {
            name: [None if value is None else round(value, 3) for value in series[name][-_POINTS:]]
            for name in _SERIES
            if name in series
        }
        for node, series in history["nodes"].items()
    }
    return {**history, "nodes": nodes}


def _stamp(path: str) -> object:
    try:
        entry = os.stat(path)
    except OSError:
        return None
    return entry.st_ino, entry.st_mtime_ns
