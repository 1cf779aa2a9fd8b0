"""Which node is a job's head: as noted here at its launch, else found on the nodes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from infra.inventory import Inventory, Node
from launch.client.rpc import code_of
from launch.errors import GiveUpError, InputError, ManyNodesError, NoSuchJob, RankliftError
from launch.host import Host
from launch.nodeset import fold
from playbooks.project import Stack
from playbooks.ssh.fanout import fan_out_hosts

__all__ = ["STEP_S", "Place", "check_id", "find_job", "forget", "note_of", "remember"]

STEP_S = 30.0
"""Limit of one node's answer about jobs."""
_JOB = re.compile(r"[a-z0-9][a-z0-9-]*")


@dataclass(frozen=True, slots=True)
class Place:
    """A job's head, and the version of the node code it runs under."""

    head: Node
    remote: str
    """Id of the node code: queries about a job use the version that started it."""


def remember(stack: Stack, job: str, head: str, remote: str, *, taken: bool = True) -> None:
    """Note where the job is, so that later commands need not ask every node.

    ``taken`` is whether the head has confirmed the job. A full disk is ignored: the nodes are asked then.
    """
    noted = {"head": head, "remote": remote, **({} if taken else {"taken": False})}
    with suppress(OSError):
        stack.jobs.mkdir(mode=0o700, exist_ok=True)
        note_of(stack, job).write_text(json.dumps(noted) + "\n")


def forget(stack: Stack, job: str) -> None:
    """Remove the note of a job that was not created."""
    with suppress(OSError):
        note_of(stack, job).unlink()


def note_of(stack: Stack, job: str) -> Path:
    """Return the file in which :func:`remember` notes where the job is."""
    return stack.jobs / f"{job}.json"


def check_id(job: str) -> None:
    """Raise :class:`~launch.errors.InputError` for a text that is not a job's id, nor a part of one."""
    if _JOB.fullmatch(job) is None:
        raise InputError("job", job, "is not a job's id", "see `fab jobs`")


def find_job(stack: Stack, inventory: Inventory, job: str) -> Place:
    """Return where the job is: as noted when it was launched from here, else by asking every node.

    Raises :class:`~launch.errors.InputError` when no node has it, or it never reached its head.
    """
    check_id(job)
    by_name = {node.name: node for node in inventory.nodes}
    place, is_taken = None, False
    with suppress(OSError, ValueError, LookupError, TypeError, RecursionError):  # no note, or half of one
        noted = json.loads(note_of(stack, job).read_text())
        place = Place(by_name[noted["head"]], noted["remote"])
        is_taken = noted.get("taken", True)
    if place is not None and is_taken:
        return place
    from playbooks.ssh.connection import Cluster

    def read_plan(host: Host) -> bytes:
        return host.run(["cat", f".ranklift/jobs/{job}/job.json"], timeout=STEP_S).stdout

    with Cluster(inventory, stack.folder) as cluster:
        if place is not None:
            with cluster.host(place.head) as head:
                _check_arrival(stack, job, place, lambda: read_plan(head))
            return place
        answers = fan_out_hosts(
            cluster.host, inventory.nodes, read_plan, what="looking for the job", timeout=STEP_S + 1
        )
    plans = {name: answer for name, answer in answers.items() if isinstance(answer, bytes) and answer}
    if len(plans) > 1:
        remedy = "another job has made one of them; repeat the command where the job was launched"
        raise GiveUpError(f"job {job} has a job.json on {fold(plans)}, and a job has one head: {remedy}")
    for name, plan in plans.items():
        remote = code_of(plan, name)
        remember(stack, job, name, remote)
        return Place(by_name[name], remote)
    if any(isinstance(answer, Exception) for answer in answers.values()):
        # One of those nodes may have it.
        raise ManyNodesError(f"looking for job {job}", answers)
    raise NoSuchJob(job, f"no node of stack {stack.name} has it")


def _check_arrival(stack: Stack, job: str, place: Place, read_plan: Callable[[], bytes]) -> None:
    """Note that the head has the job; raise InputError when it has not: the launch was interrupted."""
    head = place.head.name
    try:
        plan = read_plan()
    except RankliftError:
        return  # the caller finds the head silent too
    if not plan:
        raise InputError("job", job, f"never reached its head {head}: nothing was started", "launch it again")
    remember(stack, job, head, place.remote)
