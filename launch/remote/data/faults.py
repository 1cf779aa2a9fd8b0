"""Why a part was not fetched, by what comes next."""

from __future__ import annotations

__all__ = ["BROKEN", "BUSY", "DISK", "PEER", "REFUSED", "WRONG", "FetchError"]

BUSY = "busy"
"""Storage asks for fewer requests, or does not answer: later, and fewer at a time."""
BROKEN = "broken"
"""The answer of storage was not whole, or nonsense: again, a bounded number of times."""
REFUSED = "refused"
"""Storage will not answer differently: the staging ends."""
PEER = "peer"
"""Another node could not be reached or broke off: from elsewhere."""
WRONG = "wrong"
"""Another node's copy differs: from elsewhere, and that node has to fetch the part again."""
DISK = "disk"
"""This node cannot store it: the staging goes on without the node."""


class FetchError(Exception):
    """A part, or a list of files, was not fetched; ``wait`` are seconds that storage asks for."""

    def __init__(self, fault: str, reason: str, wait: float = 0.0) -> None:
        self.fault, self.reason, self.wait = fault, reason, wait
        super().__init__(reason)
