"""Ending a job: ``cancel``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from invoke.context import Context
from invoke.exceptions import Exit

from infra.inventory import Inventory
from launch.errors import (
    GiveUpError,
    InputError,
    ManyNodesError,
    NodeUnreachable,
    NoSuchJob,
    NotPushed,
    StepTimeout,
)
from launch.nodeset import fold
from launch.numbers import counted
from playbooks.cli import output
from playbooks.cli.signals import attached
from playbooks.cli.task import command, open_from, seconds
from playbooks.jobs.log_printer import Place, find_job
from playbooks.nodes.tasks import explained
from playbooks.project import Stack
from playbooks.ssh.fanout import fan_out

if TYPE_CHECKING:
    from launch.client.cancel import Swept, Unheeded
    from launch.client.events import JobState
    from playbooks.ssh.connection import Cluster

__all__ = ["Cancelled", "cancel", "ended", "told"]

_GRACE_S = 10.0
"""Seconds between SIGTERM and SIGKILL where neither the user nor the job's head says how many."""
_SWEEP_S = 60.0
_BY_ITSELF = "what runs there ends by itself within 30 s of losing its head"
_HEAD_SILENT = "where the head lives and only you do not reach it, cancel again"
_PARTING = (
    "interrupted; the cancel goes on without you once its head has it: `fab job {job}` shows the job as "
    "being cancelled then"
)


@dataclass(frozen=True, slots=True)
class Cancelled:
    """What ``fab cancel`` did."""

    job: str
    state: JobState | None
    """None when the job's head could not tell it."""
    before: str | None
    """The state in which the job was found; None likewise."""
    swept: Mapping[str, Swept | Exception] = field(default_factory=dict)
    """What was found on nodes that were asked directly, without the job's supervisor."""
    head: str | None = None
    """The node on which the job is kept; None when nobody could tell."""
    problem: str | None = None
    """Why the job has not ended, or may not have, although its head answers; and what to do."""


@command(
    "cancel",
    example="fab cancel train-20260301-090507-0f3a",
    help={
        "job": "the job's id, as launch and `fab jobs` show it",
        "grace": "how long its processes get to end by themselves (default: as the job says): 0, 10s, 2m",
    },
    positional=["job"],
)
def cancel(
    context: Context, job: str, grace: str | None = None, stack: str | None = None, json: bool = False
) -> None:
    """Ends a job on all its nodes, or takes it out of the queue; one that has ended stays as it is.

    All its processes get SIGTERM, and SIGKILL when the grace is over. Where the job's supervisor or head is
    gone, its nodes are asked directly. The exit status is 1 when one of them does not answer: what runs there
    ends by itself within 30 s, if the node lives.
    """
    grace_s = None if grace is None else seconds("--grace", grace, none=True)
    chosen = open_from(context, stack)
    inventory = chosen.saved()
    with attached(lambda _: _PARTING.format(job=job)):
        done = ended(chosen, inventory, job, grace_s)
    if json:
        output.as_json(done)
    else:
        output.result(told(done))
    if any(isinstance(found, Exception) for found in done.swept.values()):
        error = ManyNodesError(f"asking nodes to end job {job}", done.swept)
        error.args = ("\n".join(filter(None, (done.problem, str(error), _what_holds(done)))),)
        raise explained(inventory, error)
    if done.problem is not None:
        raise GiveUpError(done.problem)
    if any(not isinstance(found, Exception) and found.left for found in done.swept.values()):
        raise Exit(code=1)


def _what_holds(done: Cancelled) -> str:
    """What is so on nodes that did not answer."""
    by_head = done.state is None and (done.head is None or isinstance(done.swept.get(done.head), Exception))
    return f"{_BY_ITSELF}; {_HEAD_SILENT}" if by_head else _BY_ITSELF


def told(done: Cancelled) -> str:
    """What was done, for people."""
    state = done.state
    if state is None:
        what = "what became of it is not known" if done.problem is None else "it has not ended"
        return "\n".join([f"job {done.job}: {what}", *_found(done.swept)])
    if done.before == state.state:
        text = f"job {done.job} had ended before: {state.state}"
    elif state.state == "LOST":
        text = f"job {done.job} LOST: {state.reason}"
    elif state.state != "CANCELLED":
        text = f"job {done.job} ended before it could be cancelled: {state.state}"
    elif state.started is None:
        text = f"job {done.job} CANCELLED: it was waiting, nothing was started"
    else:
        heard = [node for node in state.nodes if node not in done.swept]
        how = f"all its processes ended on {_nodes(heard)}" if heard else "its head lost sight of every node"
        text = f"job {done.job} CANCELLED: {how}"
    return "\n".join([text, *_found(done.swept)])


def _found(swept: Mapping[str, Swept | Exception]) -> list[str]:
    alike: dict[str, list[str]] = {}
    for node, found in swept.items():
        if isinstance(found, Exception):
            continue
        if found.left:
            pids = ", ".join(map(str, found.left))
            words = f"even SIGKILL did not end {pids}: restart the node"
        elif found.ended:
            words = f"{found.ended} process{'es' * (found.ended > 1)} ended"
        else:
            words = "nothing of it was left"
        alike.setdefault(words, []).append(node)
    return [f"  {fold(nodes)}: {words}" for words, nodes in alike.items()]


def _nodes(names: Iterable[str]) -> str:
    names = list(names)
    return counted(len(names), "node") if len(names) > 1 else fold(names)


def ended(stack: Stack, inventory: Inventory, job: str, grace_s: float | None) -> Cancelled:
    """Ends the job by its head; where that cannot be, or the head has no records of it, by every node.

    Raises :class:`~launch.errors.InputError` when there is no such job, nor any process of it.
    """
    from launch.client.cancel import Unheeded, end_job, end_supervisor
    from playbooks.ssh.connection import Cluster

    place: Place | None = None
    with Cluster(inventory, stack.folder) as cluster:

        def sweep(names: Iterable[str], given: float) -> dict[str, Swept | Exception]:
            return _sweep(cluster, inventory, names, job, place, given)

        try:
            place = find_job(stack, inventory, job)
            ending = end_job(job, cluster.host(place.head), remote=place.remote, grace_s=grace_s)
        except (ManyNodesError, NodeUnreachable, NoSuchJob, NotPushed, StepTimeout) as error:
            problem = None
            if isinstance(error, Unheeded):
                problem = f"{error}; {_remedy(error, inventory)}"
            elif isinstance(error, StepTimeout):
                problem = f"{error.node} did not answer within {error.seconds:g} s; cancel again"
            if isinstance(error, NoSuchJob):
                said = f"{error.problem}\n"
            else:
                said = f"{error}\n" if problem is None else ""  # else it is said at the end
            output.progress(f"{said}job {job} cannot be ended by its head; asking every node itself")
            silent: dict[str, Exception] = {}  # a second look would take as long as the first did
            if isinstance(error, NodeUnreachable):
                silent[error.node] = error
            elif isinstance(error, ManyNodesError):
                silent = error.errors
            names = [node.name for node in inventory.nodes if node.name not in silent]
            found = sweep(names, _GRACE_S if grace_s is None else grace_s) | silent
            if isinstance(error, NoSuchJob) and place is None and _had_nothing(found):
                problem = f"{error.problem}, and nothing of it runs on any of {len(found)} nodes"
                raise InputError("job", job, problem, "see `fab jobs`") from error
            if isinstance(error, Unheeded) and place is not None and _is_free(found):
                with suppress(InputError, NodeUnreachable, StepTimeout):  # then the problem is what is said
                    state = end_supervisor(job, cluster.host(place.head), remote=place.remote)
                    if state.is_terminal:
                        return Cancelled(job, state, None, found, place.head.name)
            return Cancelled(job, None, None, found, None if place is None else place.head.name, problem)
        state = ending.state
        left = state.nodes if state.state == "LOST" else ending.lost
        found = sweep(left, ending.grace_s) if left else {}
        return Cancelled(job, state, ending.before, found, place.head.name)


def _had_nothing(swept: Mapping[str, Swept | Exception]) -> bool:
    """Whether no node had anything of the job."""
    return not any(isinstance(found, Exception) or found.ended or found.left for found in swept.values())


def _is_free(swept: Mapping[str, Swept | Exception]) -> bool:
    """Whether no node that answers has anything of the job left. On one that does not, which may be dead for
    good, what runs ends by itself once the supervisor is gone."""
    return not any(not isinstance(found, Exception) and found.left for found in swept.values())


def _remedy(error: Unheeded, inventory: Inventory) -> str:
    """What to do about a supervisor that does not react."""
    number = next(node.instance_id for node in inventory.nodes if node.name == error.node)
    end_it = (
        "restart that node" if error.pid is None else f'`fab exec "kill -9 {error.pid}" --nodes {number}`'
    )
    return f"{end_it}, then cancel again"


def _sweep(
    cluster: Cluster,
    inventory: Inventory,
    names: Iterable[str],
    job: str,
    place: Place | None,
    grace_s: float,
) -> dict[str, Swept | Exception]:
    """What these nodes had of the job; those that are no longer in the stack have nothing."""
    from launch.client.cancel import sweep_node

    by_name = {node.name: node for node in inventory.nodes}
    remote = None if place is None else place.remote

    def ask(name: str) -> Swept:
        with cluster.host(by_name[name]) as host:
            return sweep_node(job, host, remote=remote, grace_s=grace_s)

    there = [name for name in names if name in by_name]
    return fan_out(ask, there, what="ending the job", timeout=grace_s + _SWEEP_S)
