"""Readers of a job's samples in its folder on the head."""

from __future__ import annotations

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from launch.remote.sample.sample_records import History, Live

__all__ = ["HISTORY", "LIVE", "history", "live"]

LIVE, HISTORY = "samples.json", "history.json"


def live(folder: str) -> Live | None:
    """Return the newest samples of a job; None where there are none, or where the file is torn."""
    found: Live | None = _read(f"{folder}/{LIVE}", ("time", "attempt", "nodes", "ranks"))  # type: ignore[assignment]
    return found


def history(folder: str) -> History | None:
    """Return a job's course; None where there is none, or where the file is torn."""
    found: History | None = _read(  # type: ignore[assignment]
        f"{folder}/{HISTORY}", ("start", "interval_s", "nodes", "attempts")
    )
    return found


def _read(path: str, fields: tuple[str, ...]) -> dict[str, object] | None:
    try:
        with open(path, "rb") as file:
            found = json.loads(file.read())
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and found.keys() >= set(fields) else None
