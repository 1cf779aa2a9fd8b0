"""A job's records and samples, as its head has them."""

from __future__ import annotations

import time

from launch.client.query import JobReport
from launch.report.facts import JobFacts, collect_facts

__all__ = ["job_facts"]


def job_facts(report: JobReport) -> JobFacts:
    """Return what is known of a job whose head has answered with this."""
    return collect_facts(report, None, (), time.time())
