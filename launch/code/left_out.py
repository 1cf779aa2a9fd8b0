"""What a push leaves out by default: results that were collected, reports, and what tools make.

None of them is of use on a node: jobs' results go the other way, a virtual environment holds paths of this
machine, and tools make their caches again. Others leave out similar sets: Ray ``.venv``, ``venv`` and
``__pycache__`` (its ``RAY_OVERRIDE_RUNTIME_ENV_DEFAULT_EXCLUDES``), azure-ai-ml ``__pycache__`` of components
(its ``ComponentIgnoreFile``), ruff all names below but ``__pycache__``
(https://docs.astral.sh/ruff/settings/#exclude). ``*.egg-info`` is pushed, as code may read the metadata of
its own installation; so are ``build``, ``dist`` and ``venv``, which may be a project's own by their names.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from launch.code.ignore import Rules
from launch.remote.base.files import CACHES, ENVIRONMENT
from launch.remote.base.messages import size
from launch.results.layout import JOB_ID, is_results

__all__ = ["LeftOut", "left_out_by_content", "left_out_by_name", "left_out_file", "left_out_notice"]

_REPORT = re.compile(rf"report-{JOB_ID}\.html")
"""The name that ``fab report`` gives to a job's report."""
_SCALING = {"scaling.json", "scaling.csv", "scaling.html"}
"""What ``fab scaling`` writes into its folder."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """One folder, or report, that is left out."""

    path: str
    group: str
    """What the folder is reported as, with others like it, and what a rule names to have it pushed."""

    def is_kept(self, rules: Rules) -> bool:
        """Return whether the ignore files name it, or the folder of all results, to be pushed."""
        is_inside = self.path.startswith(f"{self.group}/")
        return rules.keeps(self.path) or (is_inside and rules.keeps(self.group))


def left_out_by_name(path: str) -> LeftOut | None:
    """Return what is known of a folder by its name.

    >>> left_out_by_name("src/__pycache__"), left_out_by_name("src")
    (LeftOut(path='src/__pycache__', group='__pycache__'), None)
    """
    name = path.rpartition("/")[2]
    return LeftOut(path, name) if name in CACHES else None


def left_out_by_content(path: str, names: Collection[str]) -> LeftOut | None:
    """Return what is known of a folder by the names in it.

    >>> left_out_by_content("venv", {"bin", "lib", "pyvenv.cfg"})
    LeftOut(path='venv', group='venv')
    >>> left_out_by_content("out/train-1", {"SHA256SUMS", "exits", "logs"})
    LeftOut(path='out/train-1', group='out')
    """
    if ENVIRONMENT in names or {*names} >= _SCALING:
        return LeftOut(path, path)
    return LeftOut(path, path.rpartition("/")[0] or path) if is_results(names) else None


def left_out_file(path: str) -> LeftOut | None:
    """Return what is known of a file: it is a job's report, by the name that ``fab report`` gives it.

    >>> left_out_file("report-train-20260301-090507-0f3a.html")
    LeftOut(path='report-train-20260301-090507-0f3a.html', group='report-train-20260301-090507-0f3a.html')
    >>> left_out_file("docs/report-of-2026.html")
    """
    return LeftOut(path, path) if _REPORT.fullmatch(path.rpartition("/")[2]) else None


def left_out_notice(root: Path, folders: Iterable[LeftOut]) -> str | None:
    """Return a line that names the folders and their sizes; None without any. Reads their entries."""
    groups: dict[str, list[str]] = {}
    for folder in folders:
        groups.setdefault(folder.group, []).append(folder.path)
    if not groups:
        return None
    parts = (f"{group} ({_amount(root, paths)})" for group, paths in groups.items())
    example = next(iter(groups))
    return f"left out: {', '.join(parts)}; a line like !{example} in .ranklift-ignore has it pushed"


def _amount(root: Path, paths: Sequence[str]) -> str:
    total = size(sum(_size(f"{root}/{path}") for path in paths))
    return total if len(paths) == 1 else f"{len(paths)} folders, {total}"


def _size(folder: str) -> int:
    if Path(folder).is_file():
        return Path(folder).stat().st_size
    total, pending = 0, [folder]
    while pending:
        try:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_size
        except OSError:  # unreadable, or gone meanwhile: nothing of it is pushed
            continue
    return total
