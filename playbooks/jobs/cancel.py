"""Ending a job: ``cancel``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
    RankliftError,
    ReplaceNodeError,
    StepTimeout,
)
from launch.nodeset import fold
from launch.numbers import counted
from launch.remote.base import timing
from playbooks.cli import output
from playbooks.cli.merged_output import grouped
from playbooks.cli.signals import attached
from playbooks.cli.task import command, open_from, seconds, with_address_age
from playbooks.jobs.location import Place, find_job
from playbooks.project import Stack
from playbooks.selection import NEWEST
from playbooks.ssh.fanout import fan_out_hosts

if TYPE_CHECKING:
    from launch.client.cancel import SupervisorTimeout, Swept
    from launch.client.events import JobState
    from playbooks.ssh.connection import Cluster

__all__ = ["Cancelled", "cancel", "cancel_job", "format_cancelled"]

_BY_ITSELF = f"what runs there ends by itself within {timing.TETHER_S:g} s of losing its head"
_HEAD_SILENT = "if the head lives and only this machine cannot reach it, cancel again"
_INTERRUPTED = (
    "interrupted; once its head has the cancel, it continues: `fab job {job}` shows the job as being "
    "cancelled then"
)

_NOT_BY_ITS_HEAD = (
    *(GiveUpError, InputError, ManyNodesError, NodeUnreachable),
    *(NotPushed, ReplaceNodeError, StepTimeout),
)
"""Errors after which every node is contacted: the head, which may lie, does not end the job."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """What ``fab cancel`` did."""

    job: str
    state: JobState | None
    """None when the job's head did not report it."""
    before: str | None
    """The job's state before; None when the head did not report it."""
    swept: Mapping[str, Swept | Exception] = field(default_factory=dict)
    """Results of nodes that were contacted directly, without the job's supervisor."""
    head: str | None = None
    """The node that keeps the job's records; None when unknown."""
    upload_ended: bool = False
    """Whether the job's outputs were on their way to storage, which they are not any more."""
    problem: str | None = None
    """Why the job has not ended, or may not have, although its head answers; with the remedy."""


@command(
    "cancel",
    example="fab cancel train-20260301-090507-0f3a",
    help={
        "job": "job id, a unique beginning of it or of its last part, or newest: the newest that has not "
        "ended, after a question (default: newest)",
        "grace": "time between SIGTERM and SIGKILL (default: the job's own): 0, 10s, 2m",
        "yes": "end the newest job without asking",
    },
    positional=["job"],
)
def cancel(
    context: Context,
    job: str,
    grace: str | None = None,
    stack: str | None = None,
    yes: bool = False,
    json: bool = False,
    dry_run: bool = False,
) -> None:
    """End a job on all its nodes, or remove it from the queue; a job that has ended stays as it is.

    All its processes get SIGTERM, and SIGKILL when the grace is over. Where the job's supervisor or head is
    gone, its nodes are contacted directly. The exit status is 1 when one of them does not answer: what runs
    there ends by itself within 30 s, if the node lives.
    """
    from playbooks.jobs.handle import choose_job, meant_job

    grace_s = None if grace is None else seconds("--grace", grace, none=True)
    chosen = open_from(context, stack)
    inventory = chosen.saved()
    if dry_run:
        which = meant_job(chosen, job, "the newest job that has not ended")
        time = "the job's own time" if grace_s is None else f"{grace_s:g} s"
        end = f"send its processes SIGTERM on all its nodes, and SIGKILL after {time}"
        output.steps([f"ask the head of {which} to end it, or to take it out of the queue", end], json=json)
        return
    if job == NEWEST:
        name = _newest(chosen, inventory, yes=yes)
    else:
        name = choose_job(chosen, inventory, job, sure=True)
    with attached(lambda _: _INTERRUPTED.format(job=name)):
        done = cancel_job(chosen, inventory, name, grace_s)
    if json:
        output.as_json(done)
    else:
        output.result(format_cancelled(done))
    if any(isinstance(found, Exception) for found in done.swept.values()):
        error = ManyNodesError(f"ending job {name}", done.swept)
        error.args = ("\n".join(filter(None, (done.problem, str(error), _what_holds(done)))),)
        raise with_address_age(inventory, error)
    if done.problem is not None:
        raise GiveUpError(done.problem)
    if any(not isinstance(found, Exception) and found.left for found in done.swept.values()):
        raise Exit(code=1)


def _newest(stack: Stack, inventory: Inventory, *, yes: bool) -> str:
    """Return the newest job that has not ended, if the user at the terminal, or ``yes``, agrees to end it."""
    from playbooks.jobs.handle import newest_job
    from playbooks.jobs.tables import cancel_text

    state = newest_job(stack, inventory, sure=yes)
    name = state.job
    output.progress(cancel_text(state, _command(stack, inventory, name)))
    answer = True if yes else output.ask(f"End job {name}?")
    if answer is None:
        problem = "is not given, and without a terminal nobody can be asked"
        raise InputError("job", None, problem, f"give it, as in `fab cancel {name}`, or --yes for this one")
    if not answer:
        raise GiveUpError(f"job {name} is not cancelled: nothing was changed")
    return name


def _command(stack: Stack, inventory: Inventory, job: str) -> Sequence[str]:
    """Return the job's command; empty, with the reason printed, where its head does not answer any more."""
    from launch.client.query import show_job
    from playbooks.ssh.connection import Cluster

    try:
        place = find_job(stack, inventory, job)
        with Cluster(inventory, stack.folder) as cluster:
            return show_job(job, cluster.host(place.head), remote=place.remote).command
    except RankliftError as error:
        output.progress(f"the command of job {job} is unknown: {error}")
        return ()


def _what_holds(done: Cancelled) -> str:
    """Return what happens on nodes that did not answer."""
    by_head = done.state is None and (done.head is None or isinstance(done.swept.get(done.head), Exception))
    return f"{_BY_ITSELF}; {_HEAD_SILENT}" if by_head else _BY_ITSELF


def format_cancelled(done: Cancelled) -> str:
    """Return what was done as text."""
    state = done.state
    if state is None:
        is_left = any(not isinstance(found, Exception) and found.left for found in done.swept.values())
        what = "still runs" if is_left and done.problem is not None else "state unknown"
        return "\n".join([f"job {done.job}: {what}", *_found(done.swept)])
    if done.before == state.state:
        upload = "; its upload was ended, `fab upload` goes on" if done.upload_ended else ""
        text = f"job {done.job} had ended before: {state.state}{upload}"
    elif state.state == "LOST":
        text = f"job {done.job} LOST: {state.reason}"
    elif state.state != "CANCELLED":
        text = f"job {done.job} ended before it could be cancelled: {state.state}"
    elif state.started is None:
        text = f"job {done.job} CANCELLED: it was waiting, nothing was started"
    else:
        ended = [node for node in state.nodes if node not in done.swept]
        how = f"all its processes ended on {_nodes(ended)}" if ended else "its head has lost every node"
        text = f"job {done.job} CANCELLED: {how}"
    return "\n".join([text, *_found(done.swept)])


def _found(swept: Mapping[str, Swept | Exception]) -> list[str]:
    by_node: dict[str, str] = {}
    for node, found in swept.items():
        if isinstance(found, Exception):
            continue
        if found.left:
            pids = ", ".join(map(str, found.left))
            by_node[node] = f"SIGKILL did not end {pids}: restart the node"
        elif found.ended:
            by_node[node] = f"{counted(found.ended, 'process')} ended"
        else:
            by_node[node] = "no process was left"
    return [f"  {line}" for line in grouped(by_node)]


def _nodes(names: Iterable[str]) -> str:
    names = list(names)
    return counted(len(names), "node") if len(names) > 1 else fold(names)


def cancel_job(stack: Stack, inventory: Inventory, job: str, grace_s: float | None) -> Cancelled:
    """End the job through its head; where the head cannot, has no records of it or answers nonsense, on every
    node.

    Raises :class:`~launch.errors.InputError` when neither the job nor a process of it exists.
    """
    from launch.client.cancel import SupervisorTimeout, end_job, end_supervisor, end_upload
    from playbooks.ssh.connection import Cluster

    place: Place | None = None
    with Cluster(inventory, stack.folder) as cluster:

        def sweep(names: Iterable[str], given: float) -> dict[str, Swept | Exception]:
            return _sweep(cluster, inventory, names, job, place, given)

        try:
            place = find_job(stack, inventory, job)
            ending = end_job(job, cluster.host(place.head), remote=place.remote, grace_s=grace_s)
        except _NOT_BY_ITS_HEAD as error:
            if isinstance(error, InputError) and not isinstance(error, NoSuchJob) and place is None:
                raise  # what the user gave is wrong; of a head's answer it is the head's word alone
            problem = _problem(error, inventory)
            if isinstance(error, NoSuchJob):
                first = f"{error.problem}\n"
            else:
                first = f"{error}\n" if problem is None else ""  # else it is reported at the end
            output.progress(f"{first}job {job} cannot be ended by its head; contacting every node directly")
            silent: dict[str, Exception] = {}  # a second try would take as long as the first
            if isinstance(error, (NodeUnreachable, ReplaceNodeError)):
                silent[error.node] = error
            elif isinstance(error, ManyNodesError):
                silent = error.errors
            names = [node.name for node in inventory.nodes if node.name not in silent]
            found = sweep(names, timing.CANCEL_GRACE_S if grace_s is None else grace_s) | silent
            if isinstance(error, NoSuchJob) and place is None and _had_nothing(found):
                problem = f"{error.problem}, and no process of it runs on any of {len(found)} nodes"
                raise InputError("job", job, problem, "see `fab jobs`") from error
            if isinstance(error, SupervisorTimeout) and place is not None and _is_free(found):
                with suppress(RankliftError):  # then the problem is reported
                    state = end_supervisor(job, cluster.host(place.head), remote=place.remote)
                    if state.is_terminal:
                        return Cancelled(job, state, None, found, place.head.name)
            return Cancelled(
                job, None, None, found, None if place is None else place.head.name, problem=problem
            )
        state = ending.state
        left = state.nodes if state.state == "LOST" else ending.lost
        found = sweep(left, ending.grace_s) if left else {}
        upload_ended = False
        if ending.before == ending.state.state:
            with suppress(GiveUpError):  # node code from before this command
                upload_ended = end_upload(job, cluster.host(place.head), remote=place.remote)
        return Cancelled(job, state, ending.before, found, place.head.name, upload_ended)


def _had_nothing(swept: Mapping[str, Swept | Exception]) -> bool:
    """Return whether no node had a process of the job."""
    return not any(isinstance(found, Exception) or found.ended or found.left for found in swept.values())


def _is_free(swept: Mapping[str, Swept | Exception]) -> bool:
    """Return whether no node that answers has a process of the job left.

    On a silent node, which may be dead, processes end by themselves once the supervisor is gone.
    """
    return not any(not isinstance(found, Exception) and found.left for found in swept.values())


def _problem(error: RankliftError, inventory: Inventory) -> str | None:
    """Return why the job may not have ended although its head answers; None where another error says it."""
    from launch.client.cancel import SupervisorTimeout

    if isinstance(error, SupervisorTimeout):
        return f"{error}; {_remedy(error, inventory)}"
    if isinstance(error, StepTimeout):
        return f"{error.node} did not answer within {error.seconds:g} s; cancel again"
    is_of_head = isinstance(error, (GiveUpError, InputError)) and not isinstance(error, NoSuchJob)
    return str(error) if is_of_head else None


def _remedy(error: SupervisorTimeout, inventory: Inventory) -> str:
    """Return the remedy for a supervisor that does not react."""
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
    """End the job's processes on these nodes without its supervisor; nodes outside the stack are skipped."""
    from launch.client.cancel import sweep_node

    wanted = {*names}
    remote = None if place is None else place.remote
    return fan_out_hosts(
        cluster.host,
        [node for node in inventory.nodes if node.name in wanted],
        lambda host: sweep_node(job, host, remote=remote, grace_s=grace_s),
        what="ending the job",
        timeout=grace_s + timing.SWEEP_STEP_S,
    )
