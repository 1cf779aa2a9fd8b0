"""The folder of a measurement: continued, replaced after each run, reported."""

from __future__ import annotations

import json as jsons
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from launch.errors import GiveUpError, InputError
from playbooks.cli import output

if TYPE_CHECKING:
    from launch.scaling.scaling_plan import ScalingPlan
    from launch.scaling.scaling_study import Study, Subject

__all__ = ["earlier_study", "report_study", "write_study"]

_RECORD = "scaling.json"
_NOT_CODE = {".ranklift-ignore": "*\n"}
"""Beside the measurement, so that it is no part of the code that it lies in: the next run would be another
job's."""


def earlier_study(folder: Path, plan: ScalingPlan, subject: Subject, *, resume: bool) -> Study | None:
    """Return the measurement that is continued; None without ``--resume``.

    Raises :class:`~launch.errors.InputError` where there is none, or one that is not to be continued.
    """
    from launch.scaling.scaling_study import continued, read_study

    record = folder / _RECORD
    if not record.exists():
        if resume:
            raise InputError("--output", str(folder), f"has no {_RECORD} to continue", "leave out --resume")
        if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
            raise InputError("--output", str(folder), "is not an empty folder", "name a new one")
        return None
    earlier = read_study(record.read_text(encoding="utf-8"))
    if not resume:
        if not earlier.runs:
            return None  # its first run failed
        remedy = "give --resume to continue it, or another --output"
        raise InputError("--output", str(folder), "has a measurement", remedy)
    return continued(earlier, plan, subject)


def write_study(study: Study, folder: Path) -> None:
    """Replace the files of the measurement, each as a whole.

    Raises :class:`~launch.errors.GiveUpError` where they cannot be written.
    """
    from launch.remote.base.files import replace_file
    from launch.scaling.scaling_page import page
    from launch.scaling.scaling_table import csv_text, result_record
    from launch.scaling.scaling_verdict import analyse

    analysis = analyse(study)
    record = jsons.dumps(result_record(study, analysis), indent=1, ensure_ascii=False)
    texts: Mapping[str, str] = {
        **_NOT_CODE,
        _RECORD: f"{record}\n",
        "scaling.csv": csv_text(study, analysis),
        "scaling.html": page(study, analysis),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            replace_file(str(folder / name), text.encode())
    except OSError as error:
        raise GiveUpError(f"{folder} cannot be written: {error.strerror}; give another --output") from None


def report_study(study: Study, folder: Path, *, json: bool) -> None:
    """Print the measurement as a table with its verdict, or as JSON."""
    from launch.scaling.scaling_table import columns, result_record, rows, sources
    from launch.scaling.scaling_verdict import analyse

    analysis = analyse(study)
    if json:
        output.as_json(result_record(study, analysis))
    else:
        output.table(columns(study), rows(study, analysis), folds="transport", needed=4)
        for sentence in analysis.sentences:
            output.result(sentence)
        for source in sources(study):
            output.result(f"{study.plan.metric} {source}")
    output.progress(f"{folder / 'scaling.html'} has the plot; scaling.csv and {_RECORD} the figures")
