"""The files in which measured processes leave which lines they have run, before these are combined."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

__all__ = ["remove_torn"]


def remove_torn(base: Path) -> list[Path]:
    """Remove each file beside ``base`` whose process was killed while it wrote; return these.

    Coverage writes when a process ends, without a journal: a job's runner that is killed just then, as tests
    do, leaves half of a database. Combining warns of it, or fails where the first pages are whole.
    """
    torn = [path for path in sorted(base.parent.glob(f"{base.name}.*")) if not _is_whole(path)]
    for path in torn:
        path.unlink()
    return torn


def _is_whole(path: Path) -> bool:
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as data:
            data.execute("SELECT version FROM coverage_schema").fetchone()
            return data.execute("PRAGMA quick_check").fetchall() == [("ok",)]
    except sqlite3.DatabaseError:
        return False
