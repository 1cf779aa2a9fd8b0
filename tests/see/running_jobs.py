"""Jobs that run while a test watches them, and are cancelled afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.e2e.workplace import LIMIT_S, Workplace

__all__ = ["TRAIN", "running_job", "state_of", "until"]

TRAIN = """\
import os, sys, time
rank = int(os.environ.get("RANK", "0"))
for step in range(1, 100_000):
    print(f"[{step}/100000] loss: {2.5 / step:.4f} ({100 + rank:.1f} samples/s)", flush=True)
    time.sleep(0.5)
"""
"""A script whose ranks print a step, a loss and a rate twice a second."""


@contextmanager
def running_job(
    workplace: Workplace,
    *words: str,
    script: str = TRAIN,
    file: str = "train.py",
    task: str = "launch.torch",
    state: str = "RUNNING",
) -> Iterator[str]:
    """Launch a job whose ranks run ``script``, with the options ``words``; give its id in ``state``.

    Cancel it at the end unless it has ended.
    """
    Path(workplace.own, file).write_text(script)
    job = workplace.fab(task, file, *words, "--detach").out.strip()
    try:
        until(lambda: state_of(workplace, job) == state)
        yield job
    finally:
        workplace.fab("cancel", job, "--grace", "1s", status=None)


def state_of(workplace: Workplace, job: str) -> str:
    """Return the job's state, as its head reports it."""
    return str(workplace.fab("job", job, "--json").json()["state"]["state"])


def until(holds: Callable[[], Any], limit_s: float = LIMIT_S / 10) -> Any:
    """Wait until ``holds`` returns something true; return it."""
    deadline = time.monotonic() + limit_s
    while not (found := holds()):
        assert time.monotonic() < deadline, f"not within {limit_s:g} s"
        time.sleep(0.2)
    return found
