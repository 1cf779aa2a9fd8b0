"""Names in a folder of a job's results, by which a push knows one without importing what writes it."""

from __future__ import annotations

from collections.abc import Collection

__all__ = ["PARTS", "SUMS", "is_results"]

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
