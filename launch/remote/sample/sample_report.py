"""The head's answer about a job's samples."""

from __future__ import annotations

import time

from launch.remote.base import job_dir
from launch.remote.base.records import Plan, State
from launch.remote.sample import stored_samples
from launch.remote.sample.flags import flags
from launch.remote.sample.sample_records import History, SampleReport

__all__ = ["report_of", "sample_report"]


def sample_report(job: str) -> SampleReport:
    """Return what is known of a job's nodes and ranks. Raise FileNotFoundError when there is no such job."""
    folder = job_dir.Folder(job)
    return report_of(folder, folder.plan(), folder.state())


def report_of(
    folder: job_dir.Folder, plan: Plan, state: State, history: History | None = None
) -> SampleReport:
    """Return the report of a job whose plan and state are known, and its ``history`` where that was read."""
    now = time.time()
    live, history = stored_samples.live(folder.path), history or stored_samples.history(folder.path)
    if live is not None and live["attempt"] != state["restarts"]:
        live = None  # of the launch before: its ranks have ended
    runs = state["state"] == "RUNNING" and "pending" not in state
    promise = plan["health"]["promise"]
    return {
        "state": state,
        "live": live,
        "history": history,
        "flags": flags(live, history, promise, now) if runs else [],
        "now": now,
    }
