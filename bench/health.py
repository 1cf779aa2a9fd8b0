"""What a look costs a launch, and how soon a slow node is found.

Look: a job of one short rank a node, whole, with ``--health strict`` and ``off`` in turns. Search: ``fab
check --deep`` on nodes whose links bring the same, one of them a third of that: seconds and rounds, on real
traffic, on 64 nodes at most. The right node in 20 of 20 seeded networks: the search over the bandwidths that
the last of those checks measured, dealt to a network's nodes by chance. ``python -m bench.health 8 64 300``
names the numbers of nodes.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from bench.cluster import Bench, rehearsal
from bench.report import Claim, median, save, table
from launch.health.measurement import Group, Measurement
from launch.health.search import search
from launch.remote.base.names import base36

__all__ = ["main"]

LOOKED_AT = 64
"""Nodes of the launch that a look must not delay by more than ``LOOK_S``."""
LOOK_S = 2.0
COUNTS = (8, LOOKED_AT, 300)
SEARCHED_FOR = 64
"""Nodes among which a slow one is searched by traffic, at most: all share this machine's processors."""
LAUNCHES = 3
USUAL_MB, SLOW_MB, SLOW_NODE = 6, 2, 5
"""64 nodes together receive what two processors can send."""
PAIR = 2
SEEDS = 20
SEARCHED = (8, 64, 300)
_NAMED = ("sick", "suspect")
"""Verdicts that accuse a node. A pair with one link of a third of the rate reaches two thirds of other pairs,
for it sends at the usual one: that is the limit between the two."""


def main() -> int:
    """Measures, prints and saves; exit status 1 when a figure is missed."""
    counts = [int(word) for word in sys.argv[1:]] or [*COUNTS]
    launches: dict[str, dict[str, float]] = {}
    checks: dict[str, dict[str, Any]] = {}
    with rehearsal() as bench:
        for count in counts:
            bench.nodes(count)
            launches[str(count)] = time_looks(bench)
            if count <= SEARCHED_FOR:
                checks[str(count)] = time_search(bench)
    table(
        "a launch, whole",
        ("nodes", "with a look, s", "without, s"),
        [(count, found["strict"], found["off"]) for count, found in launches.items()],
    )
    table(
        "fab check --deep, one slow node",
        ("nodes", "seconds", "rounds", "found"),
        [(count, one["seconds"], one["rounds"], ", ".join(one["named"])) for count, one in checks.items()],
    )
    seeded = {str(count): search_seeded(count, checks) for count in SEARCHED}
    table(
        f"{SEEDS} networks of measured bandwidths",
        ("nodes", "right", "rounds at most"),
        [(count, one["right"], one["rounds"]) for count, one in seeded.items()],
    )
    right = f"node{base36(SLOW_NODE)}"
    claims = [
        *(
            Claim(f"a look at {count} nodes before a launch", found["strict"] - found["off"], LOOK_S)
            for count, found in launches.items()
            if int(count) <= LOOKED_AT
        ),
        *(
            Claim(f"nodes named wrongly among {count}", float(one["named"] != [right]), 0, "nodes")
            for count, one in checks.items()
        ),
        *(
            Claim(f"wrong verdicts on {count} nodes", float(SEEDS - one["right"]), 0, f"of {SEEDS}")
            for count, one in seeded.items()
        ),
    ]
    return save("health", {"launches": launches, "checks": checks, "seeded": seeded}, claims)


def time_looks(bench: Bench) -> dict[str, float]:
    """Returns the seconds of a launch on all nodes, with a look and without."""
    code = bench.folder / "code"
    code.mkdir(exist_ok=True)
    (code / "short.sh").write_text("exit 0\n")
    words = ("launch.torch", "--source", "code", "--no-probe")
    seconds: dict[str, list[float]] = {"strict": [], "off": []}
    bench.fab(*words, "--health", "off", "short.sh")  # pushes the code
    for _ in range(LAUNCHES):
        for mode, found in seconds.items():
            found.append(bench.fab(*words, "--health", mode, "short.sh").seconds)
    return {mode: median(found) for mode, found in seconds.items()}


def time_search(bench: Bench) -> dict[str, Any]:
    """Returns the seconds and rounds until the slow node is named, and what was measured."""
    bench.fab("rehearsal.fault", "slow-link", "--nodes", "all", "--rate", str(USUAL_MB))
    bench.fab("rehearsal.fault", "slow-link", "--nodes", str(SLOW_NODE), "--rate", str(SLOW_MB))
    began = time.perf_counter()
    done = subprocess.run(
        ["fab", "check", "--deep", "--by", "mpi", "--json"],
        cwd=bench.folder, env=bench.environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    seconds = time.perf_counter() - began
    bench.fab("rehearsal.fault", "clear")
    if done.returncode != 1:
        raise RuntimeError(f"fab check ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    found = json.loads(done.stdout)
    pairs = [
        one for measured in found["bandwidth"]["rounds"] for one in measured if len(one["group"]) == PAIR
    ]
    slow = f"node{base36(SLOW_NODE)}"
    return {
        "seconds": seconds,
        "rounds": len(found["bandwidth"]["rounds"]),
        "named": [name for name, one in found["nodes"].items() if one["verdict"] in _NAMED],
        "healthy_gbs": [one["gbs"] for one in pairs if slow not in one["group"]],
        "slow_gbs": [one["gbs"] for one in pairs if slow in one["group"]],
    }


def search_seeded(count: int, checks: dict[str, dict[str, Any]]) -> dict[str, int]:
    """Returns in how many networks the right node alone was named, and in how many rounds at most."""
    last = list(checks.values())[-1]
    healthy, slow = last["healthy_gbs"], last["slow_gbs"]
    nodes = [f"node{base36(number)}" for number in range(count)]
    right = rounds = 0
    for seed in range(SEEDS):
        chance = random.Random(seed)  # noqa: S311
        sick = chance.choice(nodes)

        def measure(
            groups: Sequence[Group], sick: str = sick, chance: random.Random = chance
        ) -> list[Measurement]:
            return [Measurement(group, chance.choice(slow if sick in group else healthy)) for group in groups]

        found = search(nodes, measure)
        right += {one.node for one in found.nodes if one.verdict in _NAMED} == {sick}
        rounds = max(rounds, len(found.rounds))
    return {"right": right, "rounds": rounds}


if __name__ == "__main__":
    sys.exit(main())
