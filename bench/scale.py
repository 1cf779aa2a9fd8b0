"""How long a cluster of 1 to 300 nodes takes to come up and to go, and what it weighs.

A round is ``pulumi up`` until ``fab wait`` has seen every node answer, then ``pulumi destroy``. Memory
is that of all processes of the rehearsal while the nodes run, pages they share divided among them (PSS), so
that whatever else the machine does is left out.
"""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path

from bench.cluster import Bench, rehearsal
from bench.report import Claim, lines, save, table

__all__ = ["main"]

COUNTS = (1, 4, 16, 64, 128, 300)
UP_S, DOWN_S, MEMORY_GB = 60.0, 30.0, 4.0
"""At 300 nodes on 2 cores."""


def main() -> int:
    """Measures all counts, each from nothing; exit status 1 when a figure is missed."""
    rows = [measure(count) for count in COUNTS]
    table("A rehearsed cluster", ("nodes", "up, s", "down, s", "memory, GB"), rows)
    ups, downs, memory = ([row[column] for row in rows] for column in (1, 2, 3))
    series = {"pulumi up until every node answers": ups, "pulumi destroy": downs}
    lines("scale", "A rehearsed cluster comes and goes", COUNTS, series, "nodes, seconds")
    figures = [dict(zip(("nodes", "up_s", "down_s", "memory_gb"), row, strict=True)) for row in rows]
    claims = [
        Claim(f"{COUNTS[-1]} nodes up and answering", ups[-1], UP_S),
        Claim(f"{COUNTS[-1]} nodes destroyed", downs[-1], DOWN_S),
        Claim(f"{COUNTS[-1]} nodes in memory", memory[-1], MEMORY_GB, "GB"),
    ]
    return save("scale", {"rounds": figures}, claims)


def measure(count: int) -> tuple[int, float, float, float]:
    """Nodes, seconds up, seconds down, GB, in a rehearsal of its own."""
    with rehearsal() as bench:
        up = bench.nodes(count)
        record = json.loads((bench.folder / ".ranklift" / "rehearsal" / "rehearsal.json").read_text())
        memory = sum(map(_pss, _family(record["pid"]))) / 1e9
        down = _destroy(bench)
    return count, up, down, memory


def _destroy(bench: Bench) -> float:
    return bench.run(["pulumi", "destroy", "--yes", "--skip-preview"]).seconds


def _family(pid: int) -> list[int]:
    """A process with all its descendants."""
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            parents.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    family = [pid]
    for member in family:
        family += parents.get(member, [])
    return family


def _pss(pid: int) -> int:
    """Bytes of one process; 0 for one that has just ended."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    line = next(line for line in text.splitlines() if line.startswith("Pss:"))
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    sys.exit(main())
