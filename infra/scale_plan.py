"""Decisions of a change in the number of nodes: which leave, and where Azure differs from Pulumi's state.

Pure: :mod:`playbooks.nodes.busy` queries the nodes, and the ``scale`` task acts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from infra.inventory import Node
from launch.errors import RetryError
from launch.nodeset import fold
from launch.numbers import counted

__all__ = ["DEAD", "Drift", "Outcome", "Use", "choose_leaving", "in_the_way", "reasons_to_leave", "sort_out"]

DEAD = frozenset({"failed", "stopped", "deallocated"})
"""States, as an inventory has them, of a VM on which nothing runs."""


@dataclass(frozen=True, slots=True)
class Use:
    """The use of one node."""

    jobs: tuple[str, ...] = ()
    """Ids of unfinished jobs that have a rank, a slot or their head here, or wait for the node."""
    records: int = 0
    """Number of ended jobs with their only records here: it was their head."""
    uncollected: tuple[str, ...] = ()
    """Ids of ended jobs with files here and no complete collect since, as far as their heads know."""
    unknown: str = ""
    """Why the use is unknown; empty if it is known."""
    dead: bool = False
    """Whether nothing runs there by Azure's state."""
    removal: str = ""
    """The command that is removing the node; empty if none is."""
    held: tuple[str, ...] = ()
    """Those of :attr:`jobs` that the node's slots alone name: no head says that such a job is here."""
    drain: str = ""
    """Since when no new job takes the node, and whose word that is; empty if it is not drained."""
    left: tuple[tuple[str, str], ...] = ()
    """Ended jobs whose working folders here have files that no collect copied since, and which files."""

    @property
    def is_idle(self) -> bool:
        """Whether nothing that runs is lost with the node."""
        return self.dead or not (self.jobs or self.unknown or self.removal)

    @property
    def has_files(self) -> bool:
        """Whether ended jobs have files here that no collect copied, as far as their heads know."""
        return bool(self.uncollected or self.left)

    def __str__(self) -> str:
        if self.dead:
            return "it does not run"
        if self.jobs:
            return f"it has {', '.join(self.jobs)}"
        if self.removal:
            return f"it is being removed by {self.removal}"
        if self.drain:
            return f"it is {self.drain}"
        return f"its use is unknown ({self.unknown})" if self.unknown else "idle"


def choose_leaving(nodes: Sequence[Node], uses: Mapping[str, Use], count: int) -> tuple[Node, ...]:
    """Return the ``count`` nodes to remove: those that do not run, then idle ones without uncollected files,
    then idle ones with such files.

    Of these, drained ones come first, then those that are no heads with records of jobs, then the newest;
    nodes with a job are never removed.

    Raises :class:`~launch.errors.RetryError` with the reasons if too few are idle.
    """
    idle = [node for node in nodes if uses[node.name].is_idle]
    idle.sort(key=lambda node: _order(node, uses[node.name]))
    if len(idle) < count:
        busy = {node.name: uses[node.name] for node in nodes if not uses[node.name].is_idle}
        raise RetryError(
            f"{count} of {len(nodes)} nodes must be removed, idle: {len(idle)}; nothing was changed\n"
            f"{in_the_way(busy)}"
        )
    return tuple(sorted(idle[:count], key=lambda node: node.instance_id))


def _order(node: Node, use: Use) -> tuple[bool, bool, bool, bool, int]:
    return (not use.dead, use.has_files, not use.drain, bool(use.records), -node.instance_id)


def reasons_to_leave(nodes: Sequence[Node], uses: Mapping[str, Use]) -> dict[str, str]:
    """Return by name why :func:`choose_leaving` has chosen the ``nodes``.

    >>> node = Node("node000003", 3, "10.0.0.7", "192.0.2.1", 50003, 8, "running")
    >>> reasons_to_leave([node], {"node000003": Use(drain="drained")})
    {'node000003': 'to be removed: idle, drained, no uncollected files as far as the heads know'}
    """

    def reason(use: Use) -> str:
        if use.dead:
            return "it does not run"
        files = (
            "has uncollected files, and no idle node without is left"
            if use.has_files
            else "no uncollected files as far as the heads know"
        )
        return f"idle, {'drained, ' if use.drain else ''}{files}"

    return {node.name: f"to be removed: {reason(uses[node.name])}" for node in nodes}


def in_the_way(busy: Mapping[str, Use]) -> str:
    """Return a line for all nodes with the same reason, and the remedies.

    >>> print(in_the_way({"node000000": Use(("train-1",)), "node000001": Use(("train-1",))}))
    node[000000-000001]: it has train-1
    wait for them (`fab wait train-1`) or end them (`fab cancel train-1`), then repeat the command
    """
    alike: dict[str, list[str]] = {}
    for name, use in busy.items():
        alike.setdefault(str(use), []).append(name)
    lines = [f"{fold(names)}: {words}" for words, names in alike.items()]
    jobs = " ".join(dict.fromkeys(job for use in busy.values() for job in use.jobs if job not in use.held))
    if jobs:
        lines.append(
            f"wait for them (`fab wait {jobs}`) or end them (`fab cancel {jobs.partition(' ')[0]}`), "
            "then repeat the command"
        )
    if any(use.unknown for use in busy.values()):
        lines.append("`fab replace NODE` replaces a node that does not answer")
    return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Drift:
    """Differences between Azure and Pulumi's state of a stack."""

    wanted: int
    """Configured number of nodes."""
    remembered: int | None
    """Capacity of the scale set in Pulumi's state; ``None`` if the state has none."""
    present: int | None
    """Its capacity in Azure; ``None`` if Azure has none."""
    gone: tuple[str, ...] = ()
    """Resources in Pulumi's state that Azure does not have, as ``type name``."""
    changing: bool = False
    """Whether Azure is still changing the nodes, as a command that was killed had asked."""

    def __bool__(self) -> bool:
        return bool(self.gone) or self.present != self.remembered

    @property
    def surplus(self) -> int:
        """Number of nodes in Azure beyond the configured ones."""
        return max(0, (self.present or 0) - self.wanted)

    def lines(self) -> Iterable[str]:
        """Yield a line for each difference.

        >>> list(Drift(4, 4, 0, ("NatGateway way-out",)).lines())
        ['Pulumi created 4 nodes, Azure has 0', 'NatGateway way-out: Azure no longer has it']
        """
        if self.present is not None and self.present != self.remembered:
            yield f"Pulumi created {counted(self.remembered or 0, 'node')}, Azure has {self.present}"
        for name in self.gone:
            yield f"{name}: Azure no longer has it"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of an update in which Azure could not give all nodes."""

    wanted: int
    there_before: int
    came: tuple[Node, ...]
    """New nodes that are fit for use."""
    stay: tuple[Node, ...]
    """All nodes that stay, earlier ones among them."""
    go: tuple[Node, ...]
    """All nodes to remove."""

    def in_words(self) -> str:
        """Return how many of the missing nodes came.

        >>> Outcome(8, 2, (), (), ()).in_words()
        '0 of 6 further nodes are ready'
        """
        further = "further " if self.there_before else ""
        return f"{len(self.came)} of {self.wanted - self.there_before} {further}nodes are ready"


def sort_out(nodes: Sequence[Node], before: frozenset[int], wanted: int, *, keep: bool) -> Outcome:
    """Decide which nodes stay; ``before`` has the instance ids of earlier nodes, which always do.

    New nodes stay with ``keep``. VMs that failed or were never finished are always removed: they are of no
    use and may cost as much.
    """
    old = tuple(node for node in nodes if node.instance_id in before)
    new = [node for node in nodes if node.instance_id not in before]
    came = tuple(node for node in new if node.state == "succeeded")
    stay = (*old, *came) if keep else old
    staying = {node.instance_id for node in stay}
    return Outcome(wanted, len(old), came, stay, tuple(n for n in nodes if n.instance_id not in staying))
