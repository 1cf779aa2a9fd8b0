"""What a change of the number of nodes comes to: which nodes go, and where Azure differs from what is wanted.

Nothing here asks anybody: :mod:`playbooks.nodes.busy` finds out what the nodes do, and the ``scale``
task acts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from infra.inventory import Node
from launch.errors import RetryError
from launch.nodeset import fold

__all__ = ["DEAD", "Drift", "Outcome", "Use", "choose_leaving", "in_the_way", "sort_out"]

DEAD = frozenset({"failed", "stopped", "deallocated"})
"""Azure's words, as an inventory has them, for a VM on which nothing runs."""


@dataclass(frozen=True, slots=True)
class Use:
    """What a node is doing."""

    jobs: tuple[str, ...] = ()
    """Ids of jobs that have not ended and have a rank or a slot here, wait for the node, or live on it."""
    records: int = 0
    """How many jobs that have ended are kept here alone: it was their head."""
    unknown: str = ""
    """Why it is not known; empty when it is."""
    dead: bool = False
    """Whether Azure says that nothing runs there."""
    removal: str = ""
    """The command that is removing the node; empty when there is none."""

    @property
    def is_idle(self) -> bool:
        """Whether the node may go without anybody's losing anything that runs."""
        return self.dead or not (self.jobs or self.unknown or self.removal)

    def __str__(self) -> str:
        if self.dead:
            return "it does not run"
        if self.jobs:
            return f"it has {', '.join(self.jobs)}"
        if self.removal:
            return f"it is being removed by {self.removal}"
        return f"what it does is not known ({self.unknown})" if self.unknown else "idle"


def choose_leaving(nodes: Sequence[Node], uses: Mapping[str, Use], count: int) -> tuple[Node, ...]:
    """The ``count`` nodes that go: those that do not run first, then idle ones, the newest first.

    Heads that hold the records of jobs go last among the idle ones. A node with a job never goes.

    Raises :class:`~launch.errors.RetryError` naming what is in the way when too few are idle.
    """
    idle = [node for node in nodes if uses[node.name].is_idle]
    idle.sort(key=lambda node: _order(node, uses[node.name]))
    if len(idle) < count:
        busy = {node.name: uses[node.name] for node in nodes if not uses[node.name].is_idle}
        raise RetryError(
            f"{count} of {len(nodes)} nodes would have to go, and {len(idle)} are idle; nothing was changed\n"
            f"{in_the_way(busy)}"
        )
    return tuple(sorted(idle[:count], key=lambda node: node.instance_id))


def _order(node: Node, use: Use) -> tuple[bool, bool, int]:
    return not use.dead, bool(use.records), -node.instance_id


def in_the_way(busy: Mapping[str, Use]) -> str:
    """A line for all nodes with the same reason, and what to do.

    >>> print(in_the_way({"node000000": Use(("train-1",)), "node000001": Use(("train-1",))}))
    node[000000-000001]: it has train-1
    wait for them (`fab wait train-1`) or end them (`fab cancel train-1`), then repeat the command
    """
    alike: dict[str, list[str]] = {}
    for name, use in busy.items():
        alike.setdefault(str(use), []).append(name)
    lines = [f"{fold(names)}: {words}" for words, names in alike.items()]
    jobs = " ".join(dict.fromkeys(job for use in busy.values() for job in use.jobs))
    if jobs:
        lines.append(
            f"wait for them (`fab wait {jobs}`) or end them (`fab cancel {jobs.partition(' ')[0]}`), "
            "then repeat the command"
        )
    if any(use.unknown for use in busy.values()):
        lines.append("`fab replace NODE` makes a node anew that does not answer")
    return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Drift:
    """Where Azure differs from what Pulumi remembers of a stack."""

    wanted: int
    """Nodes, by the stack's configuration."""
    remembered: int | None
    """The scale set's capacity as Pulumi remembers it; None when Pulumi knows of no scale set."""
    present: int | None
    """Its capacity in Azure; None when Azure has no such scale set."""
    gone: tuple[str, ...] = ()
    """Resources that Pulumi remembers and Azure does not have, as ``kind name``."""

    def __bool__(self) -> bool:
        return bool(self.gone) or self.present != self.remembered

    @property
    def surplus(self) -> int:
        """How many nodes Azure has too many."""
        return max(0, (self.present or 0) - self.wanted)

    def lines(self) -> Iterable[str]:
        """What differs, for people.

        >>> list(Drift(4, 4, 0, ("NatGateway way-out",)).lines())
        ['4 nodes were made, Azure has 0', 'NatGateway way-out: Azure has it no more']
        """
        if self.present is not None and self.present != self.remembered:
            yield f"{self.remembered} nodes were made, Azure has {self.present}"
        for name in self.gone:
            yield f"{name}: Azure has it no more"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a try brought in which Azure could not give all nodes."""

    wanted: int
    there_before: int
    came: tuple[Node, ...]
    """New ones that are fit for use."""
    stay: tuple[Node, ...]
    """All that are to be there afterwards, those from before among them."""
    go: tuple[Node, ...]
    """All that are to be removed."""

    def in_words(self) -> str:
        """How many of how many came.

        >>> Outcome(8, 2, (), (), ()).in_words()
        '0 of 6 further nodes came'
        """
        further = "further " if self.there_before else ""
        return f"{len(self.came)} of {self.wanted - self.there_before} {further}nodes came"


def sort_out(nodes: Sequence[Node], before: frozenset[int], wanted: int, *, keep: bool) -> Outcome:
    """Who stays and who goes, ``before`` being the instance ids that were there: those always stay.

    Of the others those that came stay when the user wants to ``keep`` them; VMs that Azure has as failed, or
    never finished, go in any case: nobody can use them, and they may cost as much.
    """
    old = tuple(node for node in nodes if node.instance_id in before)
    new = [node for node in nodes if node.instance_id not in before]
    came = tuple(node for node in new if node.state == "succeeded")
    stay = (*old, *came) if keep else old
    staying = {node.instance_id for node in stay}
    return Outcome(wanted, len(old), came, stay, tuple(n for n in nodes if n.instance_id not in staying))
