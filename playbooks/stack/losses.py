"""What would be lost with nodes: jobs that have not ended, results and files that were never collected.

Whoever deletes nodes lists that first and has consent to it; what comes between consent and deletion was not
agreed to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from infra.config.readers import KEY
from infra.inventory import Inventory, Node
from infra.scale_plan import DEAD, Use
from launch.client.events import JobState
from launch.client.left_files import LeftFiles, left_on, left_words, merged
from launch.errors import InputError, RankliftError, RetryError
from launch.host import Host
from launch.nodeset import fold
from launch.numbers import counted
from playbooks.cli import output
from playbooks.cli.merged_output import grouped
from playbooks.nodes.busy import STEP_S, collected_on, copied_marks, not_copied
from playbooks.project import Stack
from playbooks.ssh.fanout import fan_out_hosts

__all__ = [
    "Losses",
    "agree_on_nodes",
    "agree_to_delete_storage",
    "agree_to_lose",
    "agree_to_replace",
    "consent_steps",
    "find_losses",
    "losses_with",
    "refuse_more",
    "storage_that_goes",
]

_STORAGE_S = 10
"""Limit of each connection to storage, and of each answer."""
_SHOWN = 8
"""Number of jobs that one line names."""


@dataclass(frozen=True, slots=True)
class Losses:
    """What exists on a cluster alone, as far as its nodes report."""

    unended: tuple[JobState, ...] = ()
    """Jobs that run or wait."""
    uncollected: tuple[str, ...] = ()
    """Ids of ended jobs without a complete collect since, as far as their heads know."""
    unknown: Mapping[str, str] = field(default_factory=dict)
    """Why a node's jobs and results are unknown, by node."""
    storage: str = ""
    """Name of the storage account that goes with the stack and may hold data, or uploaded results."""
    left: Mapping[str, LeftFiles | str] = field(default_factory=dict)
    """Files that ended jobs left in their working folders and no collect copied since, by job."""
    records: Mapping[str, int] = field(default_factory=dict)
    """Number of ended jobs whose records only this node has, by node. A collect copies a job's records: these
    alone are listed, and not asked about."""

    def __bool__(self) -> bool:
        return bool(self.unended or self.uncollected or self.left or self.unknown or self.storage)

    def lines(self) -> Iterator[str]:
        """Yield each loss as text, with the command that saves it."""
        for name, count in self.records.items():
            have = "has" if count == 1 else "have"
            yield f"{name} loses its records of {counted(count, 'job')} that {have} ended"
        for job in self.unended:
            yield f"job {job.job} is {job.state} on {fold(job.nodes)} and ends with its nodes"
        if self.uncollected:
            yield (
                f"not collected, as far as the heads know: {_name_jobs(self.uncollected)}; "
                f"`fab collect {self.uncollected[0]}` copies a job's results"
            )
        yield from left_words(dict(list(self.left.items())[:_SHOWN]))
        if len(self.left) > _SHOWN:
            yield f"{len(self.left) - _SHOWN} more left files there (`fab job JOB`)"
        unknown = {name: f"its jobs and results are unknown: {why}" for name, why in self.unknown.items()}
        yield from grouped(unknown)
        if self.storage:
            yield (
                f"storage account {self.storage} is deleted with its data and results: `fab data.ls` lists "
                "them, `fab data.get` copies them, ranklift:retainData and `fab up` keep the account"
            )

    def summary(self) -> str:
        """Return the losses in one line.

        >>> Losses(uncollected=("a", "b"), unknown={"node000001": "no route"}).summary()
        'results of 2 jobs were not collected, 1 node did not answer'
        """
        counts = (
            (len(self.unended), "{} has not ended", "{} have not ended", "job"),
            (len(self.uncollected), "results of {} were not collected", "", "job"),
            (len(self.left), "files of {} were left in working folders", "", "job"),
            (len(self.unknown), "{} did not answer", "", "node"),
            (int(bool(self.storage)), "{} may hold data and results", "", "storage account"),
        )
        return ", ".join(
            (many if many and count > 1 else one).format(counted(count, noun))
            for count, one, many, noun in counts
            if count
        )


def _name_jobs(jobs: Sequence[str]) -> str:
    """Return the ids of the first jobs, and how many more there are.

    >>> _name_jobs(["a", "b"]), _name_jobs("abcdefghij")
    ('a, b', 'a, b, c, d, e, f, g, h and 2 more (`fab jobs`)')
    """
    more = len(jobs) - _SHOWN
    return ", ".join(jobs[:_SHOWN]) + (f" and {more} more (`fab jobs`)" if more > 0 else "")


def agree_to_lose(stack: Stack, losses: Losses, *, yes: bool) -> None:
    """Print what would be lost, and ask at a terminal whether to remove the cluster anyway.

    Raises :class:`~launch.errors.RankliftError` when the answer is no, and without a terminal unless ``yes``.
    """
    if not losses:
        return
    for line in losses.lines():
        output.progress(line)
    refused = f"stack {stack.name} is not removed"
    _agree(
        f"Remove stack {stack.name} anyway?", refused, f"{losses.summary()}; --yes removes it anyway", yes=yes
    )


def agree_on_nodes(
    verb: str,
    nodes: Sequence[Node],
    used: Mapping[str, Use],
    *,
    yes: bool,
    ending: bool = False,
    always: bool = False,
) -> Mapping[str, Losses]:
    """Print what would be lost with some nodes, as :func:`losses_with` has it; where that is anything, or
    ``always``, ask at a terminal whether to ``verb`` (remove or replace) them.

    Returns what was agreed to, by node. Raises as :func:`agree_to_lose`.
    """
    losses = losses_with(nodes, used, ending=ending)
    for line in losses.lines():
        output.progress(line)
    if losses or always:
        names, summary = fold(node.name for node in nodes), losses.summary()
        are, them = ("is", "it") if len(nodes) == 1 else ("are", "them")
        why = f"{summary or 'without a terminal nobody can be asked'}; --yes {verb}s {them}"
        _agree(
            f"{verb.capitalize()} {names}{f' ({summary})' if summary else ''}?",
            f"{names} {are} not {verb}d",
            f"{why} anyway" if summary else why,
            yes=yes,
        )
    return {node.name: losses_with([node], used, ending=ending) for node in nodes}


def consent_steps(losses: Losses, *, yes: bool, always: bool = False) -> list[str]:
    """Return what a dry run shows of :func:`agree_on_nodes`."""
    lines = list(losses.lines())
    if (losses or always) and not yes:
        lines.append("ask first; without a terminal refuse, unless --yes is given")
    return lines


def agree_to_replace(
    stack: Stack, nodes: Sequence[Node], cause: object, losses: Losses, *, yes: bool
) -> None:
    """Print why all nodes would be replaced and what would be lost; ask at a terminal whether to do it.

    Raises as :func:`agree_to_lose`; even without losses, since nodes may have files that no job wrote.
    """
    what = f"{cause} replaces all nodes"
    output.progress(f"{what}: {fold(node.name for node in nodes)} are deleted with what is on them")
    for line in losses.lines():
        output.progress(line)
    refused = f"the nodes of stack {stack.name} are not replaced"
    summary = "; ".join(filter(None, (what, losses.summary())))
    _agree(
        f"Replace all nodes of stack {stack.name}?",
        refused,
        f"{summary}; set it back, or give --yes to replace them",
        yes=yes,
    )


def _agree(question: str, refused: str, why: str, *, yes: bool) -> None:
    if yes:
        return
    answer = output.ask(question)
    if not answer:
        raise RankliftError(f"{refused}: {why if answer is None else 'nothing was changed'}")


def losses_with(nodes: Sequence[Node], used: Mapping[str, Use], *, ending: bool = False) -> Losses:
    """Return what would be lost with these nodes, by what all nodes of the cluster are doing.

    With ``ending`` that includes the results of jobs there, which end first. A node that reports nothing may
    be the head of jobs with results on the others.
    """
    names = [node.name for node in nodes]
    unknown: dict[str, str] = {}
    for name, use in used.items():
        why = "it does not run" if use.dead else use.unknown
        if ending and use.held and name in names and not why:
            why = f"no head has {', '.join(use.held)}, by which slots are held"
        if why:
            unknown[name] = why if name in names else f"{why}; its jobs may have results on {fold(names)}"
    going = [(name, used[name]) for name in names if name in used]
    ended = [job for _, use in going for job in use.jobs if ending and job not in use.held]
    left: dict[str, str] = {}
    for job, files in (one for _, use in going for one in use.left):
        left[job] = f"{left[job]}, and {files}" if job in left else files
    return Losses(
        uncollected=tuple(dict.fromkeys((*ended, *(job for _, use in going for job in use.uncollected)))),
        unknown=unknown,
        left=left,
        records={name: use.records for name, use in going if use.records},
    )


def refuse_more(
    verb: str,
    nodes: Sequence[Node],
    used: Mapping[str, Use],
    agreed: Mapping[str, Losses],
    *,
    yes: bool,
    ending: bool = False,
) -> None:
    """Raise :class:`~launch.errors.RetryError` where more would be lost with the nodes, as
    :func:`losses_with` has it, than was ``agreed`` for each; with ``yes`` only print it."""
    more: dict[str, None] = {}
    for node in nodes:
        known = agreed.get(node.name, Losses())
        if node.name not in known.unknown:  # otherwise whatever may be there was agreed to
            jobs = {*known.uncollected, *known.left}
            now = losses_with([node], used, ending=ending)
            new = replace(
                now,
                uncollected=tuple(job for job in now.uncollected if job not in jobs),
                unknown={name: why for name, why in now.unknown.items() if name not in known.unknown},
                left={job: files for job, files in now.left.items() if job not in jobs},
                records={},
            )
            more.update(dict.fromkeys(new.lines()))
    if yes:
        for line in more:
            output.progress(line)
    elif more:
        are = "is" if len(nodes) == 1 else "are"
        refused = f"{fold(node.name for node in nodes)} {are} not {verb}d"
        why = "more would be lost than was agreed to; repeat the command"
        raise RetryError("\n".join((f"{refused}: {why}", *more)))


def find_losses(stack: Stack, inventory: Inventory) -> Losses:
    """Query every node that runs, as far as Azure reports, for the jobs that it is the head of."""
    from playbooks.ssh.connection import Cluster

    unknown = {node.name: f"it is {node.state}" for node in inventory.nodes if node.state in DEAD}
    unended: list[JobState] = []
    uncollected: list[str] = []
    left: dict[str, list[LeftFiles]] = {}
    alive = [node for node in inventory.nodes if node.name not in unknown]
    with Cluster(inventory, stack.folder) as cluster:
        answers = fan_out_hosts(cluster.host, alive, _query, what="listing its jobs", timeout=3 * STEP_S)
    believed = {name: answer for name, answer in answers.items() if not isinstance(answer, Exception)}
    listed = {name: jobs for name, (jobs, _, _) in believed.items()}
    copied = copied_marks(stack, listed, {name: told for name, (_, told, _) in believed.items()})
    for name, answer in answers.items():
        if isinstance(answer, Exception):
            unknown[name] = str(answer).removeprefix(f"{name}: ")
            continue
        jobs, collected, found = answer
        for job, part in found.items():
            left.setdefault(job, []).append(part)
        unended += [job for job in jobs if not job.is_terminal]
        uncollected += [job.job for job in jobs if job.is_terminal and job.job not in collected]
    on_all = {job: files for job, parts in left.items() if (files := merged(parts))}
    stays = not_copied(on_all, {job.job for job in unended}, copied)
    return Losses(tuple(unended), tuple(uncollected), unknown, left=stays)


def _query(host: Host) -> tuple[Sequence[JobState], frozenset[str], Mapping[str, LeftFiles]]:
    from launch.client.query import list_every
    from launch.client.rpc import version_there
    from launch.code.node_code import remote_id

    remote = version_there(host, remote_id(), STEP_S, with_jobs=True)
    if remote is None:  # no job was ever launched there
        return (), frozenset(), {}
    return list_every(host, remote=remote), collected_on(host), left_on(host, remote)


def agree_to_delete_storage(stack: Stack, *, yes: bool) -> None:
    """Ask at a terminal where changed settings have the next update delete the stack's own storage with data.

    Raises as :func:`agree_to_lose`.
    """
    account = _own_account(stack)
    why = "" if account is None else _deleted_by(account, stack.settings())
    if account is None or not why or not (name := _with_data(stack, account)):
        return
    output.progress(
        f"storage account {name} is deleted with its data and results, as {why}: `fab data.ls` lists "
        f"them and `fab data.get` copies them once that is set back; {KEY}retainData keeps the account"
    )
    refused, question = f"stack {stack.name} is not updated", f"Delete storage account {name}?"
    _agree(question, refused, f"storage account {name} may hold data; --yes deletes it", yes=yes)


def _deleted_by(account: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """Return the change of settings for which an update deletes the stack's own account; "" for none."""
    if settings.get(f"{KEY}storage") in (None, "", "none"):
        return f"{KEY}storage is not set any more"
    if settings.get(f"{KEY}storageAccountId"):
        return f"{KEY}storageAccountId names another"
    there, wanted = (
        str(one or "").replace(" ", "").lower()
        for one in ((account.get("outputs") or {}).get("location"), settings.get(f"{KEY}location"))
    )
    return f"{KEY}location changes to {wanted}" if there and wanted and there != wanted else ""


def storage_that_goes(stack: Stack) -> str:
    """Return the name of the storage account that is removed with the stack; "" where nothing is in it.

    An account that does not show its containers, as to an operator without a right on them, may hold data.
    """
    account = _own_account(stack)
    return "" if account is None else _with_data(stack, account)


def _own_account(stack: Stack) -> Mapping[str, Any] | None:
    """Return the resource of the stack's own account that is removed with it; None without one."""
    from infra.arm.pulumi_state import resource_name, resources
    from infra.naming import BLOBS

    return next(
        (
            one
            for one in resources(stack.state())
            if resource_name(str(one["urn"])) == f"StorageAccount {BLOBS}"
            and not (one.get("external") or one.get("retainOnDelete"))
        ),
        None,
    )


def _with_data(stack: Stack, account: Mapping[str, Any]) -> str:
    """Return the account's name; "" where nothing is in it."""
    from azure.core.exceptions import AzureError, ResourceNotFoundError

    from infra.arm.clients import blob_service
    from infra.naming import CONTAINERS

    name = str(account["id"]).rpartition("/")[2]
    limits = {"connection_timeout": _STORAGE_S, "read_timeout": _STORAGE_S, "retry_total": 0}
    try:
        service = blob_service(f"https://{name}.blob.core.windows.net", stack.environment, "", **limits)
        for container in CONTAINERS:
            with suppress(ResourceNotFoundError):
                if any(True for _ in service.get_container_client(container).list_blobs(results_per_page=1)):
                    return name
    except InputError:  # a rehearsal without blobs
        return ""
    except AzureError:
        return name
    return ""
