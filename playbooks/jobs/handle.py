"""The job that a user means: by its id, by the beginning of one, or the newest."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from infra.inventory import Inventory
from launch.errors import GiveUpError, InputError
from launch.nodeset import fold
from launch.results.layout import JOB_ID
from playbooks.cli import output
from playbooks.foreign_jobs import noted_head, strangers
from playbooks.jobs.listing import JobList, list_jobs
from playbooks.jobs.location import check_id, note_of
from playbooks.project import Stack
from playbooks.selection import NEWEST

if TYPE_CHECKING:
    from launch.client.events import JobState

__all__ = ["choose_job", "choose_jobs", "fitting", "meant_job", "newest_job"]

_SHOWN = 8


def choose_job(
    stack: Stack, inventory: Inventory, handle: str, *, report: bool = True, sure: bool = False
) -> str:
    """Return the id that ``handle`` means. Raises as :func:`choose_jobs`."""
    return choose_jobs(stack, inventory, [handle], report=report, sure=sure)[0]


def choose_jobs(
    stack: Stack, inventory: Inventory, handles: Sequence[str], *, report: bool = True, sure: bool = False
) -> list[str]:
    """Return the ids that ``handles`` mean: whole ids, unique beginnings of one or of its last part, newest.

    Whole ids are returned without a query, whether they exist or not. For the others all heads are asked;
    with ``report`` the job taken is printed on stderr. Raises :class:`~launch.errors.InputError` for a handle
    that fits no job, or several; with ``sure`` :class:`~launch.errors.GiveUpError` for one that may fit a job
    more, of a head that did not answer or whose record is damaged.
    """
    for handle in handles:
        check_id(handle)
    short = [one for one in handles if not _is_whole(stack, one)]
    if not short:
        return list(handles)
    found = _ask(stack, inventory, 1 if {*short} == {NEWEST} else None)
    chosen = {one: _meant(stack, one, found) for one in short}
    if sure:
        _refuse_gaps(found, chosen[short[0]])
    for job in dict.fromkeys(chosen.values()) if report else ():
        output.progress(f"job {job}")
    return [chosen.get(one, one) for one in handles]


def meant_job(stack: Stack, handle: str, newest: str = "the newest job") -> str:
    """Return in words which job :func:`choose_job` would take, for dry runs: no head is asked.

    Raises :class:`~launch.errors.InputError` for a text that is no part of an id.
    """
    check_id(handle)
    if handle == NEWEST:
        return newest
    return (
        f"job {handle}"
        if _is_whole(stack, handle)
        else f"the job whose id, or its last part, begins with {handle}"
    )


def _is_whole(stack: Stack, handle: str) -> bool:
    return re.fullmatch(JOB_ID, handle) is not None or note_of(stack, handle).exists()


def newest_job(stack: Stack, inventory: Inventory, *, sure: bool = False) -> JobState:
    """Return the newest job that has not ended.

    Raises :class:`~launch.errors.InputError` if there is none, and as :func:`choose_jobs`.
    """
    found = _ask(stack, inventory, 0)
    if not found.jobs:
        raise InputError("job", None, f"stack {stack.name} has no job that runs or waits", "see `fab jobs`")
    newest = found.jobs[-1]
    if sure:
        _refuse_gaps(found, newest.job)
    for head, reason in strangers(stack, found.by_head).items():
        if any(state.job == newest.job for state in found.by_head[head]):
            raise GiveUpError(f"{head}: {reason}; give the id of the job that is meant")
    return newest


def _refuse_gaps(found: JobList, job: str) -> None:
    gaps = [f"{fold(found.silent)}: no answer"] if found.silent else []
    if gaps or found.damaged:
        problem = "; ".join([*gaps, *found.damaged[:1]])
        raise GiveUpError(f"{problem}: another job may be meant; if it is {job}, give its whole id")


def fitting(handle: str, jobs: Iterable[str]) -> list[str]:
    """Return the jobs whose id, or its last part, begins with ``handle``; of a whole id that one alone.

    >>> fitting("tr", ["train-20260301-090507-0f3a", "try-20260301-090507-b1c2"])
    ['train-20260301-090507-0f3a', 'try-20260301-090507-b1c2']
    >>> fitting("b1", ["train-20260301-090507-0f3a", "try-20260301-090507-b1c2"])
    ['try-20260301-090507-b1c2']
    """
    jobs = list(dict.fromkeys(jobs))
    if handle in jobs:
        return [handle]
    return [job for job in jobs if job.startswith(handle) or job.rpartition("-")[2].startswith(handle)]


def _ask(stack: Stack, inventory: Inventory, last: int | None) -> JobList:
    from playbooks.ssh.connection import Cluster

    with Cluster(inventory, stack.folder) as cluster:
        found = list_jobs(cluster.host, inventory.nodes, last)
    if found.silent:
        output.progress(f"{fold(found.silent)}: no answer; a job of which it is the head may be missing here")
    for record in found.damaged:
        output.progress(record)
    return found


def _meant(stack: Stack, handle: str, found: JobList) -> str:
    if handle == NEWEST:
        if not found.jobs:
            raise InputError(
                "job", None, f"stack {stack.name} has no job", "launch one, or give a job's whole id"
            )
        return found.jobs[-1].job
    fits = fitting(handle, [*(state.job for state in found.jobs), *_noted(stack)])
    if len(fits) == 1:
        return fits[0]
    if not fits:
        problem = f"does not fit any job of stack {stack.name}"
        raise InputError("job", handle, problem, "see `fab jobs --all`, or give its whole id")
    more = f" and {len(fits) - _SHOWN} more" if len(fits) > _SHOWN else ""
    problem = f"fits {len(fits)} jobs: {', '.join(fits[-_SHOWN:])}{more}"
    raise InputError("job", handle, problem, "give more of its id, or its last part")


def _noted(stack: Stack) -> Iterable[str]:
    """Yield the jobs that were launched from here: the head may be silent or gone, or keep one back."""
    return (path.stem for path in sorted(stack.jobs.glob("*.json")) if noted_head(stack, path.stem))
