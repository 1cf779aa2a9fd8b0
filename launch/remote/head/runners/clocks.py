"""Times that nodes report, by the head's clock where a node's clock is proven wrong."""

from __future__ import annotations

__all__ = ["Clocks"]


class Clocks:
    """What a launch's frames have shown of its nodes' clocks, in microseconds.

    A frame comes after it was sent, so its node's clock is ahead by at least the difference of the two times.
    It was sent after GO, so the clock is ahead by at most the difference of these two. As long as all clocks
    may be right, their times are left as they are: a time service is more exact than frames, which may wait.
    """

    def __init__(self) -> None:
        self._go = 0
        self._least: dict[int, int] = {}
        self._most: dict[int, int] = {}

    def on_go(self, now: int) -> None:
        """Note when the ranks were let start, by the head's clock."""
        self._go = now

    def on_time(self, node: int, there: int, now: int) -> None:
        """Note the time in a node's frame, and when the frame came."""
        self._least[node] = max(there - now, self._least.get(node, there - now))
        self._most[node] = min(there - self._go, self._most.get(node, there - self._go))

    def by_head(self, node: int, there: int) -> int:
        """Return a node's time by the head's clock, once one of all clocks is proven wrong; else as it is."""
        if any(self._least[one] > 0 or self._most[one] < 0 for one in self._least):
            return there - self._least[node]
        return there
