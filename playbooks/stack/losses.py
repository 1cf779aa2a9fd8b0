"""What would be lost with a cluster: jobs that have not ended, and results that nobody has collected."""

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
from playbooks.ssh.fanout import fan_out

__all__ = ["Losses", "agree_to_lose", "find_losses"]

STEP_S = 20.0
"""How long one node may take over one question."""
_SHOWN = 8
"""Jobs that one line names."""
_ASK_COLLECTED = (
    "for f in .ranklift/jobs/*/state.json; do d=${f%/state.json}; j=${d##*/}; "
    f'if [ "{COLLECTED}/$j" -nt "$f" ]; then echo "$j"; fi; done'
)
"""The jobs of which all was brought by a collect that began after they had ended."""


@dataclass(frozen=True, slots=True)
class Losses:
    """What a cluster has that is nowhere else, as far as its nodes say."""

    unended: tuple[JobState, ...] = ()
    """Jobs that run or wait."""
    uncollected: tuple[str, ...] = ()
    """Ids of jobs that have ended, and of which their heads know no complete collect since."""
    unknown: Mapping[str, str] = field(default_factory=dict)
    """Why it is not known what a node keeps, by node."""

    def __bool__(self) -> bool:
        return bool(self.unended or self.uncollected or self.unknown)

    def lines(self) -> Iterator[str]:
        """Each in words, with the command that saves it."""
        for job in self.unended:
            yield f"job {job.job} is {job.state} on {fold(job.nodes)} and ends with the cluster"
        if self.uncollected:
            named = ", ".join(self.uncollected[:_SHOWN])
            more = len(self.uncollected) - _SHOWN
            others = f" and {more} more (`fab jobs`)" if more > 0 else ""
            yield (
                f"not collected, as far as the heads know: {named}{others}; "
                f"`fab collect {self.uncollected[0]}` brings what a job has made"
            )
        alike: dict[str, list[str]] = {}
        for name, why in self.unknown.items():
            alike.setdefault(why, []).append(name)
        for why, names in alike.items():
            yield f"{fold(names)}: which jobs and results are kept there could not be asked: {why}"

    def summary(self) -> str:
        """The same in one line.

        >>> Losses(uncollected=("a", "b"), unknown={"node000001": "no route"}).summary()
        'results of 2 jobs were not collected, 1 node could not be asked'
        """
        counts = (
            (len(self.unended), "{} has not ended", "{} have not ended", "job"),
            (len(self.uncollected), "results of {} were not collected", "", "job"),
            (len(self.unknown), "{} could not be asked", "", "node"),
        )
        return ", ".join(
            (many if many and count > 1 else one).format(counted(count, noun))
            for count, one, many, noun in counts
            if count
        )


def agree_to_lose(stack: Stack, losses: Losses, *, yes: bool) -> None:
    """Shows what would be lost, and asks at a terminal whether the cluster is to be removed all the same.

    Raises :class:`~launch.errors.RankliftError` when the answer is no, and where there is no terminal to ask
    at unless it was given beforehand (``yes``).
    """
    if not losses:
        return
    for line in losses.lines():
        output.progress(line)
    if yes:
        return
    answer = output.ask(f"Remove stack {stack.name} all the same?")
    if answer is None:
        raise RankliftError(
            f"stack {stack.name} is not removed: {losses.summary()}; --yes removes it all the same"
        )
    if not answer:
        raise RankliftError(f"stack {stack.name} is not removed: nothing was changed")


def find_losses(stack: Stack, inventory: Inventory) -> Losses:
    """Asks every node for the jobs that it is the head of; one that Azure says does not run is not asked."""
    from playbooks.ssh.connection import Cluster

    by_name = {node.name: node for node in inventory.nodes}
    unknown = {node.name: f"it is {node.state}" for node in inventory.nodes if node.state in DEAD}
    unended: list[JobState] = []
    uncollected: list[str] = []
    with Cluster(inventory, stack.folder) as cluster:

        def ask(name: str) -> tuple[Sequence[JobState], frozenset[str]]:
            with cluster.host(by_name[name]) as host:
                return _asked(host)

        alive = [name for name in by_name if name not in unknown]
        answers = fan_out(ask, alive, what="listing its jobs", timeout=3 * STEP_S)
    for name, answer in answers.items():
        if isinstance(answer, Exception):
            unknown[name] = str(answer).removeprefix(f"{name}: ")
            continue
        jobs, collected = answer
        unended += [job for job in jobs if not job.is_terminal]
        uncollected += [job.job for job in jobs if job.is_terminal and job.job not in collected]
    return Losses(tuple(unended), tuple(uncollected), unknown)


def _asked(host: Host) -> tuple[Sequence[JobState], frozenset[str]]:
    from launch.client.query import list_some
    from launch.client.rpc import version_there
    from launch.code.push import remote_id

    remote = version_there(host, remote_id(), STEP_S, with_jobs=True)
    if remote is None:  # nothing was ever launched there
        return (), frozenset()
    jobs = list_some(host, remote=remote).jobs
    found = host.run(["sh", "-c", _ASK_COLLECTED], timeout=STEP_S).stdout
    return jobs, frozenset(found.decode("utf-8", "replace").split())
