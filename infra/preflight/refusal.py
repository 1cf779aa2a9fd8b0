"""Reasons against making a cluster, each with its remedy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from launch.errors import RankliftError

__all__ = ["BY_HAND", "NotGranted", "Refusal"]

BY_HAND = "correct the cause, or run `pulumi up`, which skips this check, and see whether Azure grants it"
"""Remedy where an answer is missing."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """One reason against making the cluster, with its remedy."""

    about: str
    """``quota``, ``size``, ``zone``, ``image``, ``price``, ``InfiniBand``, ``time``, ``data``,
    ``storage`` or ``state``."""
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.about}: {self.problem}; {self.remedy}"


class NotGranted(RankliftError):
    """Azure would refuse the cluster, or it costs too much; nothing has been created.

    ``there`` is the number of its nodes in Azure; ``None``: unknown.
    """

    def __init__(self, stack: str, refusals: Sequence[Refusal], there: int | None = 0) -> None:
        self.refusals = tuple(refusals)
        lines = "\n".join(f"  {one}" for one in refusals)
        stands = "is not created" if there == 0 else "stays as it is"
        super().__init__(f"stack {stack} {stands}; nothing was changed:\n{lines}")
