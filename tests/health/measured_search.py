"""Program for tests: the search over real measurements of a stack's nodes, held to a figure in MB/s.

No size has a figure that its rehearsed nodes, whose links are those of this machine, could reach.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from launch.health.bandwidth_programs import program_of
from launch.health.measurement import Figure
from launch.health.search import search
from playbooks.check.bandwidth_jobs import BandwidthJobs
from playbooks.cli import output
from playbooks.project import open_stack
from playbooks.ssh.connection import Cluster


def main(project: str, expected: str) -> None:
    stack = open_stack(Path(project), "rehearsal")
    inventory = stack.saved()
    usual = float(expected) / 1000
    figure = Figure(usual, 0.85 * usual, 0.67 * usual, "a test")
    with Cluster(inventory, stack.folder) as cluster:
        jobs = BandwidthJobs(stack, inventory, program_of(inventory.size, "mpi"), cluster)
        found = search([node.name for node in inventory.nodes], jobs.measure, figure)
    print(json.dumps({**output.plain(found), "is_healthy": found.is_healthy}))  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
