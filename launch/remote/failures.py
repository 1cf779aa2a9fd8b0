"""Which rank failed first, when one rank's end makes its peers fail too."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from launch.remote.verdict import Outcome

__all__ = ["Failures"]

_WAIT = 0.2
"""Seconds after the first report of a failure in which an earlier failure may be told of."""


class Failures:
    """Failed ranks by the time at which they ended, as the clock of their node has it.

    Peers notice within milliseconds that a rank is gone, and their MPI ends them as well: whose report comes
    first says little, above all when one look at the channels brings several.
    """

    def __init__(self) -> None:
        self._known: list[tuple[int, Outcome]] = []
        self._since = 0.0

    def add(self, ended_us: int, outcome: Outcome) -> None:
        """A rank failed; ``outcome`` is the job's if no other failed earlier."""
        if not self._known:
            self._since = time.monotonic()
        self._known.append((ended_us, outcome))

    @property
    def first(self) -> Outcome | None:
        """The earliest of those known."""
        return min(self._known, key=lambda one: one[0])[1] if self._known else None

    @property
    def settled(self) -> Outcome | None:
        """:attr:`first`, once earlier ones have had their time to be told of."""
        return self.first if self._known and time.monotonic() - self._since > _WAIT else None
