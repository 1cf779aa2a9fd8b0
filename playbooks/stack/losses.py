"""What would be lost with a cluster: jobs that have not ended, and results that were never collected."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from infra.inventory import Inventory
from infra.scale_plan import DEAD
from launch.client.events import JobState
from launch.errors import RankliftError
from launch.host import Host
from launch.nodeset import fold
from launch.numbers import counted
from playbooks.cli import output
from playbooks.jobs.collect import COLLECTED
from playbooks.project import Stack
from playbooks.ssh.fanout import fan_out_hosts

__all__ = ["Losses", "agree_to_lose", "find_losses"]

STEP_S = 20.0
"""Limit of one node's answer to one query."""
_SHOWN = 8
"""Number of jobs that one line names."""
_ASK_COLLECTED = (
    "for f in .ranklift/jobs/*/state.json; do d=${f%/state.json}; j=${d##*/}; "
    f'if [ "{COLLECTED}/$j" -nt "$f" ]; then echo "$j"; fi; done'
)
"""Lists the jobs that a collect copied whole, begun after their end."""


@dataclass(frozen=True, slots=True)
class Losses:
    """What exists on a cluster alone, as far as its nodes report."""

    unended: tuple[JobState, ...] = ()
    """Jobs that run or wait."""
    uncollected: tuple[str, ...] = ()
    """Ids of ended jobs without a complete collect since, as far as their heads know."""
    unknown: Mapping[str, str] = field(default_factory=dict)
    """Why a node's jobs and results are unknown, by node."""

    def __bool__(self) -> bool:
        return bool(self.unended or self.uncollected or self.unknown)

    def lines(self) -> Iterator[str]:
        """Yield each loss as text, with the command that saves it."""
        for job in self.unended:
            yield f"job {job.job} is {job.state} on {fold(job.nodes)} and ends with the cluster"
        if self.uncollected:
            named = ", ".join(self.uncollected[:_SHOWN])
            more = len(self.uncollected) - _SHOWN
            others = f" and {more} more (`fab jobs`)" if more > 0 else ""
            yield (
                f"not collected, as far as the heads know: {named}{others}; "
                f"`fab collect {self.uncollected[0]}` copies a job's results"
            )
        unknown = {name: f"its jobs and results are unknown: {why}" for name, why in self.unknown.items()}
        yield from output.grouped(unknown)

    def summary(self) -> str:
        """Return the losses in one line.

        >>> Losses(uncollected=("a", "b"), unknown={"node000001": "no route"}).summary()
        'results of 2 jobs were not collected, 1 node did not answer'
        """
        counts = (
            (len(self.unended), "{} has not ended", "{} have not ended", "job"),
            (len(self.uncollected), "results of {} were not collected", "", "job"),
            (len(self.unknown), "{} did not answer", "", "node"),
        )
        return ", ".join(
            (many if many and count > 1 else one).format(counted(count, noun))
            for count, one, many, noun in counts
            if count
        )


def agree_to_lose(stack: Stack, losses: Losses, *, yes: bool) -> None:
    """Print what would be lost, and ask at a terminal whether to remove the cluster anyway.

    Raises :class:`~launch.errors.RankliftError` when the answer is no, and without a terminal unless ``yes``.
    """
    if not losses:
        return
    for line in losses.lines():
        output.progress(line)
    if yes:
        return
    answer = output.ask(f"Remove stack {stack.name} anyway?")
    if answer is None:
        raise RankliftError(f"stack {stack.name} is not removed: {losses.summary()}; --yes removes it anyway")
    if not answer:
        raise RankliftError(f"stack {stack.name} is not removed: nothing was changed")


def find_losses(stack: Stack, inventory: Inventory) -> Losses:
    """Query every node that runs, as far as Azure reports, for the jobs that it is the head of."""
    from playbooks.ssh.connection import Cluster

    unknown = {node.name: f"it is {node.state}" for node in inventory.nodes if node.state in DEAD}
    unended: list[JobState] = []
    uncollected: list[str] = []
    alive = [node for node in inventory.nodes if node.name not in unknown]
    with Cluster(inventory, stack.folder) as cluster:
        answers = fan_out_hosts(cluster.host, alive, _query, what="listing its jobs", timeout=3 * STEP_S)
    for name, answer in answers.items():
        if isinstance(answer, Exception):
            unknown[name] = str(answer).removeprefix(f"{name}: ")
            continue
        jobs, collected = answer
        unended += [job for job in jobs if not job.is_terminal]
        uncollected += [job.job for job in jobs if job.is_terminal and job.job not in collected]
    return Losses(tuple(unended), tuple(uncollected), unknown)


def _query(host: Host) -> tuple[Sequence[JobState], frozenset[str]]:
    from launch.client.query import list_some
    from launch.client.rpc import version_there
    from launch.code.push import remote_id

    remote = version_there(host, remote_id(), STEP_S, with_jobs=True)
    if remote is None:  # no job was ever launched there
        return (), frozenset()
    jobs = list_some(host, remote=remote).jobs
    found = host.run(["sh", "-c", _ASK_COLLECTED], timeout=STEP_S).stdout
    return jobs, frozenset(found.decode("utf-8", "replace").split())
