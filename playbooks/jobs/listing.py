"""The jobs of a stack, as their heads list them now."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from infra.inventory import Node
from playbooks.jobs.location import STEP_S
from playbooks.ssh.fanout import fan_out_hosts

if TYPE_CHECKING:
    from launch.client.events import JobState
    from launch.host import Host

__all__ = ["JobList", "list_jobs"]


@dataclass(frozen=True, slots=True)
class JobList:
    """Jobs of all heads that answered."""

    jobs: Sequence[JobState]
    """Oldest first."""
    left_out: int
    """Number of ended jobs that are older than those."""
    seen: Mapping[str, datetime]
    """When each job's state was read: a silent node takes much longer, which is not the job's run time."""
    answers: Mapping[str, object]
    """Each node's answer or error."""
    damaged: Sequence[str] = ()
    """Jobs' records that cannot be used, each with its head."""
    aside: Sequence[str] = ()
    """What heads moved aside because it was in the place of a file of theirs, each with its head."""

    @property
    def by_head(self) -> Mapping[str, Sequence[JobState]]:
        """Jobs by the head that lists them, without those of silent ones."""
        found = {name: one for name, one in self.answers.items() if isinstance(one, tuple) and one}
        return {name: listing.jobs for name, (listing, _) in found.items()}

    @property
    def silent(self) -> Sequence[str]:
        """Names of the nodes that did not answer."""
        return [name for name, answer in self.answers.items() if isinstance(answer, Exception)]


def list_jobs(
    connect: Callable[[Node], AbstractContextManager[Host]], nodes: Sequence[Node], last: int | None
) -> JobList:
    """Return the jobs of these heads: all that have not ended, and the ``last`` (None: all) that have."""
    from launch.client.query import Listing, list_some
    from launch.client.rpc import version_there
    from launch.code.node_code import remote_id

    current = remote_id()

    def query(host: Host) -> tuple[Listing, datetime]:
        remote = version_there(host, current, STEP_S, with_jobs=True)
        # Without a version, no job was ever launched there.
        found = Listing((), 0) if remote is None else list_some(host, remote=remote, last=last)
        return found, datetime.now(UTC)

    answers = fan_out_hosts(connect, nodes, query, what="listing its jobs", timeout=2 * STEP_S)
    read = [answer for answer in answers.values() if not isinstance(answer, Exception)]
    by_head = {name: answer[0] for name, answer in answers.items() if not isinstance(answer, Exception)}
    jobs = sorted((state for found, _ in read for state in found.jobs), key=lambda state: state.created)
    ended = [state for state in jobs if state.is_terminal]
    # Not by the job's id: a head may list another's running job as one that has ended.
    old = {id(state) for state in ended[: max(0, len(ended) - last)]} if last is not None else set()
    return JobList(
        [state for state in jobs if id(state) not in old],
        len(old) + sum(found.left_out for found, _ in read),
        {state.job: at for found, at in read for state in found.jobs},
        answers,
        [f"{name}: {record}" for name, found in by_head.items() for record in found.damaged],
        [f"{name}: ~/.ranklift/{path}" for name, found in by_head.items() for path in found.aside],
    )
