"""Heads that list a job of another head: a job can edit what its head says."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Protocol

from playbooks.project import Stack

__all__ = ["foreign", "noted_head", "own_jobs", "strangers"]


class _Job(Protocol):
    """What :class:`launch.client.events.JobState` has."""

    @property
    def job(self) -> str: ...
    @property
    def is_terminal(self) -> bool: ...


def strangers(stack: Stack, listed: Mapping[str, Iterable[_Job]]) -> dict[str, str]:
    """Return why a head's list of jobs is not believed, by head: it has an unfinished job of another head."""
    unfinished = {
        head: [state.job for state in states if not state.is_terminal] for head, states in listed.items()
    }
    return {
        head: f"it lists job {job}, whose head is {other} as far as is known here"
        for head, jobs in foreign(stack, unfinished).items()
        for job, other in list(jobs.items())[:1]
    }


def foreign(stack: Stack, listed: Mapping[str, Iterable[str]]) -> dict[str, dict[str, str]]:
    """Return the jobs that a head lists and that are another head's, with that head, by head.

    That is the head noted here, or, without a note, any other head that lists the job.
    """
    heads: dict[str, list[str]] = {}
    for head, jobs in listed.items():
        for job in jobs:
            heads.setdefault(job, []).append(head)
    found: dict[str, dict[str, str]] = {}
    for job, names in heads.items():
        noted = noted_head(stack, job)
        for name in names:
            other = noted or next((one for one in names if one != name), name)
            if other != name:
                found.setdefault(name, {})[job] = other
    return found


def own_jobs(stack: Stack, listed: Mapping[str, Iterable[_Job]]) -> dict[str, set[str]]:
    """Return the jobs that are a head's own as far as is known here, by head: of no other one is a mark
    believed that a collect has copied it."""
    names = {head: {state.job for state in states} for head, states in listed.items()}
    others = foreign(stack, names)
    return {head: jobs - others.get(head, {}).keys() for head, jobs in names.items()}


def noted_head(stack: Stack, job: str) -> str:
    """Return the head that was noted at the launch from here; empty without a note, or with half of one."""
    if "/" not in job:
        with suppress(OSError, ValueError, LookupError, TypeError, RecursionError):
            return str(json.loads((stack.jobs / f"{job}.json").read_text())["head"])
    return ""
