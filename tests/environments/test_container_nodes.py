"""Ranks in Charliecloud's containers on rehearsed nodes: several nodes for one MPI, and the loss of one."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from infra.inventory import load
from launch.client import submit
from launch.client.events import Event, JobState
from launch.code.node_code import remote_id
from launch.job.plan import plan
from launch.job.spec import JobNode, JobSpec
from playbooks.ssh.connection import Cluster
from tests.chaos.inside import nodes as living_nodes
from tests.e2e.workplace import Workplace
from tests.environments.in_containers import ID, record
from tests.launch.standin import lines, remarks

pytestmark = [pytest.mark.environments, pytest.mark.timeout(600)]
NODES = 3
STACK = "rehearsal"
SUM = """
from mpi4py import MPI
import array, os, socket
world = MPI.COMM_WORLD
total = array.array("d", [0.0]) * 1000000
world.Allreduce(array.array("d", [world.rank + 1.0]) * 1000000, total)
print(world.size, total[-1], socket.gethostname() in open("/etc/hosts").read(), os.path.exists("/opt/tool"))
"""


class Rehearsed:
    """A running stack whose nodes hold the image."""

    def __init__(self, made: Workplace, root: Path) -> None:
        self.workplace = made
        self.folder = made.project / ".ranklift" / STACK
        self.inventory = load(self.folder)
        (made.own / "sum.py").write_text(SUM)
        self.snapshot = made.fab("push", "--json").json()["snapshot"]
        names = [node.name for node in self.inventory.nodes]
        place = f".ranklift/environments/{ID}"
        notes = json.dumps({"code": remote_id(), "nodes": names})
        script = (
            f"mkdir -p {place}/root && tar -x -C {place}/root && echo '{{}}' > {place}/config.json && "
            f"echo '[]' > {place}.manifest && echo '{notes}' > {place}.nodes"
        )
        for name in names:
            with subprocess.Popen(["tar", "-C", str(root), "-c", "."], stdout=subprocess.PIPE) as tar:
                ssh = ["ssh", "-F", str(self.folder / "ssh_config"), name, script]
                subprocess.run(ssh, stdin=tar.stdout, check=True)

    def run(self, **options: Any) -> tuple[JobState, list[Event]]:
        """Runs a job in the image to its end."""
        spec = JobSpec(name="t", snapshot=self.snapshot, **options)
        chosen = [JobNode(node.name, node.private_ip, node.slots) for node in self.inventory.nodes]
        made = plan(spec, chosen, size=self.inventory.size, remote=remote_id())
        made = replace(made, runs_in=record("charliecloud"))
        events: list[Event] = []
        with Cluster(self.inventory, self.folder) as cluster:
            state = submit.submit_and_follow(made, cluster.host(self.inventory.nodes[0]), events.append)
        return state, events


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory: pytest.TempPathFactory, image_root: Path) -> Iterator[Rehearsed]:
    """Three nodes with the image; nothing of them is left in the end."""
    made = Workplace(tmp_path_factory.mktemp("containers"))
    made.start(NODES, node_python=None)
    try:
        made.configure(STACK, nodeCount=NODES)
        made.fab("up", "--stack", STACK)
        yield Rehearsed(made, image_root)
    finally:
        made.close()


def test_mpi4py_sums_over_three_nodes(rehearsed: Rehearsed) -> None:
    state, events = rehearsed.run(kind="mpi", command=("sum.py",), processes_per_node=2)
    assert state.state == "SUCCEEDED", (state, remarks(events))
    assert sorted(lines(events)) == [(rank, "6 21.0 True True") for rank in range(6)]


def test_a_failed_rank_ends_the_job_on_all_nodes(rehearsed: Rehearsed) -> None:
    line = "test $RANK != 3 || exit 7; trap '' TERM; sleep 1000 & while :; do sleep 0.05; done"
    state, _ = rehearsed.run(kind="pytorch", command=("sh", "-c", line), processes_per_node=2, grace_s=1.0)
    assert (state.state, state.exit_status) == ("FAILED", 7)
    for node in living_nodes(rehearsed.workplace.project, STACK).values():
        assert node.tops(state.job) == []
