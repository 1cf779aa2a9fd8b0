"""How soon ``fab debug`` names the rank that 63 and 255 others wait for.

Ranks of plain Python, eight on each rehearsed node, wait in a barrier that one of them does not reach. The
command is timed whole, py-spy on the nodes already, three times; beside it what the head says of itself, from
the order to the last node's report. ``python -m bench.see_debug 64`` names the numbers of ranks.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from bench.cluster import Bench, rehearsal
from bench.report import Claim, median, save, table

__all__ = ["main"]

RANKS = (64, 256)
PER_NODE = 8
LIMIT_S = 15.0
"""Within which the rank is to be named among 64."""
LIMITED = 64
CULPRIT = 17
TIMES = 3
READY_S = 300.0
SCRIPT = f"""\
import os, time


class World:
    barrier = staticmethod(time.sleep)


def main():
    print("ready", flush=True)
    if os.environ["RANK"] == "{CULPRIT}":
        load_batch()
    World().barrier(3600)


def load_batch():
    time.sleep(3600)


main()
"""


def main() -> int:
    """Measures, prints and saves; exit status 1 when a figure is missed."""
    counts = [int(word) for word in sys.argv[1:]] or [*RANKS]
    measured: dict[str, dict[str, Any]] = {}
    with rehearsal(bare=True) as bench:
        for count in counts:
            bench.nodes(count // PER_NODE)
            measured[str(count)] = time_debug(bench, count)
    table(
        "fab debug",
        ("ranks", "seconds, whole", "of them on the head", "named", "without an answer"),
        [
            (count, one["seconds"], one["head_seconds"], one["named"], one["unanswered"])
            for count, one in measured.items()
        ],
    )
    claims = [
        *(
            Claim(f"fab debug on {count} ranks", one["seconds"], LIMIT_S)
            for count, one in measured.items()
            if int(count) <= LIMITED
        ),
        *(
            Claim(f"wrong ranks named among {count}", float(one["named"] != [CULPRIT]), 0, "times")
            for count, one in measured.items()
        ),
        *(
            Claim(f"ranks without stacks among {count}", float(int(count) - one["with_stacks"]), 0, "ranks")
            for count, one in measured.items()
        ),
    ]
    return save("see_debug", measured, claims)


def time_debug(bench: Bench, count: int) -> dict[str, Any]:
    """Returns the seconds of ``fab debug`` on a job of ``count`` ranks, and whom it named."""
    code = bench.folder / "code"
    code.mkdir(exist_ok=True)
    (code / "train.py").write_text(SCRIPT)
    words = ("launch.torch", "--source", "code", "--no-probe", "--nproc-per-node", str(PER_NODE), "--detach")
    job = bench.fab(*words, "train.py").stdout.strip()
    until = time.monotonic() + READY_S
    while bench.fab("logs", job).stdout.count("ready") < count:
        if time.monotonic() > until:
            raise RuntimeError(f"not all {count} ranks began within {READY_S:g} s")
        time.sleep(1)
    bench.fab("debug", job)  # brings py-spy
    found = [bench.fab("debug", job, "--json") for _ in range(TIMES)]
    last = found[-1].json()
    bench.fab("cancel", job, "--grace", "1s")
    return {
        "seconds": median([one.seconds for one in found]),
        "head_seconds": median([one.json()["seconds"] for one in found]),
        "named": last["ranks_at_fault"],
        "kind": last["kind"],
        "unanswered": len(last["facts"]["unanswered"]),
        "with_stacks": sum(bool(fold["frames"]) * len(fold["ranks"]) for fold in last["folds"]),
    }


if __name__ == "__main__":
    sys.exit(main())
