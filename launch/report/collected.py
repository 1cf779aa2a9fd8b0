"""The facts of a job from the records that a collect has brought, for a head that is gone."""

from __future__ import annotations

from pathlib import Path

from launch.client.query import report_of
from launch.errors import InputError
from launch.remote.base.files import read_regular
from launch.remote.base.job_dir import TERMINAL, Unreadable, parse_plan
from launch.remote.base.payloads import JobReport
from launch.remote.base.records import State
from launch.remote.head.query import stored_report
from launch.remote.reading import Malformed, parse, read
from launch.remote.sample import stored_samples
from launch.report.facts import JobFacts, collect_facts

__all__ = ["collected_facts"]

_REMEDY = "give the folder of a job that `fab collect` has made: results/JOB"


def collected_facts(folder: Path) -> JobFacts:
    """Return what a folder of collected records has of a job.

    A job that had not ended is as it was at its last recorded event. Raise
    :class:`~launch.errors.InputError` for another folder, and for records that cannot be used.
    """
    try:
        plan = parse_plan(read_regular(str(folder / "job.json")), str(folder / "job.json"))
        state = read(State, parse(read_regular(str(folder / "state.json"))))
        report = report_of(read(JobReport, stored_report(str(folder), plan, state)))
    except FileNotFoundError as error:
        raise InputError("--collected", str(folder), f"has no {Path(error.filename).name}", _REMEDY) from None
    except (Unreadable, OSError) as error:
        raise InputError("--collected", str(folder), str(error), _REMEDY) from None
    except (Malformed, LookupError, TypeError) as error:
        problem = f"has damaged records, state.json, job.json or events.jsonl: {error}"
        raise InputError("--collected", str(folder), problem, _REMEDY) from None
    times = [report.state.created, *(event.time for event in report.events)]
    ended = report.state.ended if report.state.state in TERMINAL else None
    now = (ended or max(times)).timestamp()
    history = stored_samples.history(str(folder))
    course = folder / stored_samples.HISTORY
    if history is None and course.exists():
        remedy = "remove that file: without it the report lacks what was sampled"
        raise InputError("--collected", str(folder), f"has a damaged {course.name}", remedy)
    return collect_facts(report, history, (), now)
