"""One command on 64 and on 300 nodes: ``fab exec`` beside what else people use for it.

Whole commands, from start to exit, on the same nodes with the same keys, host keys checked;
64 connections at a time for all that take such a number. Rounds go through all competitors in turn, so that
what disturbs the machine disturbs them alike.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bench.cluster import ROOT, Bench, rehearsal
from bench.report import Claim, bars, median, save, table

__all__ = ["main"]

COUNTS = (64, 300)
ROUNDS = 5
COMMAND = "hostname"
AT_ONCE = "64"
OURS, ASYNCSSH, GROUP = "fab exec", "asyncssh", "ThreadingGroup"
NEAR, AHEAD = 1.2, 1 / 3
"""At 300 nodes: within 1.2 of the fastest, 3 times faster than pdsh and clush."""


@dataclass(frozen=True, slots=True)
class Competitor:
    """A command line, and the environment it needs besides."""

    argv: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


def main() -> int:
    """Measures, prints and saves; exit status 1 when a figure is missed."""
    groups: dict[str, dict[str, float]] = {}
    every: dict[str, dict[str, list[float]]] = {}
    with rehearsal() as bench:
        for count in COUNTS:
            bench.nodes(count)
            runs = measure(bench, competitors(bench))
            every[str(count)] = runs
            groups[f"{count} nodes"] = {name: median(seconds) for name, seconds in runs.items()}
    for title, medians in groups.items():
        ours = medians[OURS]
        rows = [
            (name, seconds, seconds / ours) for name, seconds in sorted(medians.items(), key=lambda x: x[1])
        ]
        table(f"One command on {title}", ("", "median, s", "of fab exec"), rows)
    bars("fanout", f"`{COMMAND}` on every node, whole commands", groups, "seconds, median")
    few, many = groups["64 nodes"], groups["300 nodes"]
    fastest = min(seconds for name, seconds in many.items() if name != OURS)
    claims = [
        Claim("300 nodes: fab exec beside the fastest other", many[OURS] / fastest, NEAR, "x"),
        Claim("300 nodes: fab exec beside pdsh", many[OURS] / many["pdsh"], AHEAD, "x"),
        Claim("300 nodes: fab exec beside clush", many[OURS] / many["clush"], AHEAD, "x"),
        Claim("64 nodes: fab exec beside Fabric's ThreadingGroup", few[OURS] / few[GROUP], 1.0, "x"),
    ]
    return save("fanout", {"seconds": every}, claims)


def competitors(bench: Bench) -> dict[str, Competitor]:
    """Everyone's command for :data:`COMMAND` on all nodes."""
    config, names = str(bench.ssh_config), bench.names()
    listed, hosts = ",".join(names), bench.folder / "hosts"
    hosts.write_text("\n".join(names) + "\n")
    ssh_options = f"-F {config}"
    bin_ = ROOT / ".venv-bench" / "bin"
    return {
        OURS: Competitor(["fab", "exec", COMMAND]),
        ASYNCSSH: Competitor(
            [sys.executable, "-m", "bench.peers.with_asyncssh", str(bench.stack_folder), COMMAND]
        ),
        GROUP: Competitor([sys.executable, "-m", "bench.peers.with_fabric", config, COMMAND, *names]),
        "pdsh": Competitor(
            ["pdsh", "-R", "ssh", "-f", AT_ONCE, "-w", listed, COMMAND],
            {"PDSH_SSH_ARGS_APPEND": ssh_options},
        ),
        "clush": Competitor(
            [f"{bin_}/clush", "-f", AT_ONCE, "-o", ssh_options, "-w", listed, COMMAND],
        ),
        "ansible": Competitor(
            [f"{bin_}/ansible", "all", "-i", str(hosts), "-f", AT_ONCE, "-m", "raw", "-a", COMMAND],
            {"ANSIBLE_SSH_ARGS": ssh_options, "ANSIBLE_HOST_KEY_CHECKING": "True"},
        ),
    }


def measure(bench: Bench, competing: Mapping[str, Competitor]) -> dict[str, list[float]]:
    """Seconds of every run by competitor, after one that does not count; all must have reached every node."""
    names = bench.names()
    runs: dict[str, list[float]] = {name: [] for name in competing}
    for attempt in range(ROUNDS + 1):
        for name, one in competing.items():
            timed = bench.run(one.argv, PYTHONPATH=str(ROOT), **one.environment)
            missing = [node for node in names if node not in timed.stdout]
            if missing:
                raise RuntimeError(f"{name} did not reach {', '.join(missing)}")
            if attempt:
                runs[name].append(timed.seconds)
    return runs


if __name__ == "__main__":
    sys.exit(main())
