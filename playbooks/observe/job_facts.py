"""A job's records and samples, as its head has them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from launch.client.query import show_job
from launch.client.samples import job_samples
from launch.errors import GiveUpError, RankliftError
from launch.report.facts import JobFacts, collect_facts

if TYPE_CHECKING:
    from launch.client.query import JobReport
    from launch.host import Host

__all__ = ["add_samples", "job_facts", "readable"]


def job_facts(job: str, head: Host, remote: str) -> JobFacts:
    """Return what the head knows of the job. Raises as :func:`launch.client.query.show_job`."""
    return add_samples(show_job(job, head, remote=remote), head, remote)


def add_samples(report: JobReport, head: Host, remote: str) -> JobFacts:
    """Return what the head knows of the job with this record.

    Node code that records no phases takes no samples either, and is not asked for them.
    """
    if not any(event.event == "phase" for event in report.events):
        return collect_facts(report, None, (), time.time())
    try:
        samples = job_samples(report.state.job, head, remote)
    except GiveUpError:
        return collect_facts(report, None, (), time.time())
    return collect_facts(report, samples.history, [flag["text"] for flag in samples.flags], samples.now)


@contextmanager
def readable(whose: str) -> Iterator[None]:
    """Raise GiveUpError for records that the block cannot use: ranks run as the user who writes them."""
    try:
        yield
    except RankliftError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise GiveUpError(
            f"{whose}: its records are damaged: {type(error).__name__}: {error!s:.200}"
        ) from None
