"""The line between storage and everybody who uses it: its rate, and the bytes that went over it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

__all__ = ["Link", "Traffic"]


@dataclass(slots=True)
class Traffic:
    """Traffic of one account, in bytes of contents and other bodies, without headers."""

    requests: int = 0
    bytes_out: int = 0
    """Bytes that left storage."""
    bytes_in: int = 0
    """Bytes that came to storage."""


class Link:
    """A line that all requests share."""

    def __init__(self) -> None:
        self._free = 0.0

    async def pass_on(self, size: int, rate: float | None) -> None:
        """Return when ``size`` bytes are over the line, behind those before: ``rate`` bytes per second."""
        if rate is None:
            return
        now = asyncio.get_running_loop().time()
        self._free = max(now, self._free) + size / rate
        await asyncio.sleep(self._free - now)
