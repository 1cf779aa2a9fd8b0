"""Which rank failed first, when one rank's end makes its peers fail too."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from launch.remote.head.outcome import Outcome

__all__ = ["Failures"]

_WAIT = 0.2
"""Seconds after the first report of a failure in which an earlier failure may be told of."""
_ERROR_CLASSES = (14, 15, 16, 17)
"""MPI_ERR_UNKNOWN to MPI_ERR_INTERN: what Open MPI ends a rank with that lost its peer."""
_GIVES_UP = re.compile(rb"Fatal error in (internal|PMPI)_")
"""What MPICH and Intel MPI write then."""


class Failures:
    """Failed ranks by the time at which they ended, as the clock of their node has it.

    Peers notice within milliseconds that a rank is gone, and their MPI ends them as well: whose report comes
    first says little, above all when one look at the channels brings several. A rank's connections close
    before its runner can see its end, so that a peer may even end earlier: those that ended as a peer does
    come last.
    """

    def __init__(self) -> None:
        self._known: list[tuple[bool, int, Outcome]] = []
        self._since = 0.0

    def add(self, ended_us: int, outcome: Outcome, said: bytes) -> None:
        """A rank failed, with ``said`` last; ``outcome`` is the job's if no other failed earlier."""
        if not self._known:
            self._since = time.monotonic()
        as_peers_do = outcome.exit_status in _ERROR_CLASSES or bool(_GIVES_UP.search(said))
        self._known.append((as_peers_do, ended_us, outcome))

    @property
    def first(self) -> Outcome | None:
        """The earliest of those known."""
        return min(self._known, key=lambda one: one[:2])[2] if self._known else None

    @property
    def settled(self) -> Outcome | None:
        """:attr:`first`, once earlier ones have had their time to be told of."""
        return self.first if self._known and time.monotonic() - self._since > _WAIT else None
