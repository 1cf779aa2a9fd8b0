"""Names by which jobs and folders of their results are known, without importing what writes them."""

from __future__ import annotations

from collections.abc import Collection

__all__ = ["JOB_ID", "PARTS", "SUMS", "is_results"]

JOB_ID = r".+-\d{8}-\d{6}-[0-9a-f]{4}"
"""Pattern of a job's whole id, as :func:`launch.job.plan.job_id` makes it."""
SUMS = "SHA256SUMS"
PARTS = ".part"
_RECORDS = {"job.json", "state.json"}


def is_results(names: Collection[str]) -> bool:
    """Return whether a folder with these entries is a job's results folder, by whatever name.

    >>> is_results({"SHA256SUMS", "exits", "logs"}), is_results({"SHA256SUMS", "images.tar"})
    (True, False)
    """
    has_records = "exits" in names or {*names} >= _RECORDS
    return has_records and (SUMS in names or PARTS in names)
