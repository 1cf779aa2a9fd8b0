"""What is asked before a cluster is made, and the ways in which the answers can speak against it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from infra.preflight.availability import ScaleSet, Usage
from infra.preflight.existing import Kept
from infra.preflight.prices import Meter, Prices
from launch.errors import RankliftError

if TYPE_CHECKING:
    from infra.preflight.storage_firewall import Firewall

__all__ = ["BY_HAND", "Figures", "NotGranted", "Refusal"]

BY_HAND = "mend that, or run `pulumi up`, which does not ask, and see whether Azure grants it"
"""How to go on without an answer."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why the cluster will not be made, and what to do."""

    about: str
    """``quota``, ``size``, ``zone``, ``price``, ``InfiniBand``, ``time``, ``data``,
    ``storage`` or ``state``."""
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.about}: {self.problem}; {self.remedy}"


class NotGranted(RankliftError):
    """Azure would refuse the cluster, or it costs more than it may; nothing has been created.

    ``there`` is how many of its nodes Azure has already; ``None``: unknown.
    """

    def __init__(self, stack: str, refusals: Sequence[Refusal], there: int | None = 0) -> None:
        self.refusals = tuple(refusals)
        lines = "\n".join(f"  {one}" for one in refusals)
        stands = "is not made" if there == 0 else "stays as it is"
        super().__init__(f"stack {stack} {stands}, nothing has been created:\n{lines}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What was asked before; an error stands for what could not be had."""

    prices: Mapping[str, Prices | RankliftError]
    """By size."""
    meters: Mapping[Meter, float | RankliftError | None] = field(default_factory=dict)
    usages: Sequence[Usage] | RankliftError
    skus: Sequence[Mapping[str, Any]] | RankliftError
    there: ScaleSet | RankliftError | None = None
    server: str | RankliftError | None = None
    """Size of the NFS server that is there, where the configuration has one."""
    kept: Sequence[Kept] | RankliftError = ()
    """The groups that the configuration would make, and that are there without Pulumi's knowing of them."""
    rights: Sequence[str] | RankliftError = ()
    """Ids of the nodes' role assignments on a given storage account that Pulumi does not know of."""
    firewall: Firewall | RankliftError | None = None
    """That of a given storage account; ``None`` where there is no such account, given or not."""
    elsewhere: Sequence[str] | None = None
    """Regions that offer the size, where that was asked for."""
