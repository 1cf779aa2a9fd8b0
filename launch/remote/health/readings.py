"""A port's counters at earlier looks, kept on the node: how much they grew lately."""

from __future__ import annotations

import os
from contextlib import suppress

from launch.remote.base import frames
from launch.remote.base.files import expand_home, replace_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from launch.remote.health.ib_ports import Port

    Counters = Mapping[str, Mapping[str, int]]
    """By port, its counters."""

__all__ = ["PERIOD_S", "Readings", "keep_readings", "kept_readings"]

PERIOD_S = 3 * 3600
_APART_S = 300
"""Looks that are nearer to the last one are not kept: the file has at most 38 readings."""
_FILE = "~/.ranklift/port_counters"


class Readings:
    """Readings of counters since the node's last boot, oldest first, each with its Unix time in seconds."""

    def __init__(self, boot: str, kept: Sequence[tuple[int, Counters]] = ()) -> None:
        self.boot, self.kept = boot, list(kept)

    def growth(self, now: int, port: Port) -> dict[str, int]:
        """Return by counter its growth within :data:`PERIOD_S`, as far as there are readings."""
        first = next((counters for at, counters in self.kept if at >= now - PERIOD_S), {}).get(port.name, {})
        return {name: count - first[name] for name, count in port.counters.items() if name in first}

    def add(self, now: int, ports: Sequence[Port]) -> bool:
        """Keep the ports' counters, unless the last reading is recent; return whether it was kept."""
        if self.kept and now - self.kept[-1][0] < _APART_S:
            return False
        self.kept = [one for one in self.kept if one[0] >= now - PERIOD_S]
        self.kept.append((now, {port.name: dict(port.counters) for port in ports}))
        return True


def kept_readings(boot: str, path: str = _FILE) -> Readings:
    """Return the readings in the file; none where it has those of another boot, or is not readable."""
    try:
        with open(expand_home(path), "rb") as file:
            found = frames.unpack(file.read())
        if found["boot"] == boot:
            return Readings(boot, [(at, counters) for at, counters in found["readings"]])
    except (OSError, frames.ProtocolError, KeyError, TypeError, ValueError):
        pass
    return Readings(boot)


def keep_readings(readings: Readings, path: str = _FILE) -> None:
    """Write the readings; a node whose home folder is full keeps the old ones."""
    content = {"boot": readings.boot, "readings": readings.kept}
    with suppress(OSError):
        os.makedirs(os.path.dirname(expand_home(path)), mode=0o700, exist_ok=True)
        replace_file(expand_home(path), frames.pack(content), outlives_machine=False)
