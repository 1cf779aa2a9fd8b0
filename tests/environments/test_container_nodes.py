"""Ranks in Charliecloud's containers on rehearsed nodes: what single stand-in nodes cannot show."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
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
from launch.launchers.pytorch import torchrun_argv
from playbooks.ssh.connection import Cluster
from tests.chaos.inside import nodes as living_nodes
from tests.e2e.workplace import Workplace, rehearsed_workplace
from tests.environments.debian_image import VARIABLES
from tests.environments.in_containers import ID, record
from tests.environments.planted_images import link_torch, link_tree, plant_image
from tests.launch.standin import lines, remarks

pytestmark = [pytest.mark.environments, pytest.mark.timeout(600)]
NODES = 3
STACK = "rehearsal"
TORCH = "fedcba9876543210"
"""Id of the image with PyTorch."""
SUM = """
from mpi4py import MPI
import array, os, socket
world = MPI.COMM_WORLD
total = array.array("d", [0.0]) * 1000000
world.Allreduce(array.array("d", [world.rank + 1.0]) * 1000000, total)
print(world.size, total[-1], socket.gethostname() in open("/etc/hosts").read(), os.path.exists("/opt/tool"))
"""
DDP = """
import torch, torch.distributed
torch.distributed.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1, bias=False))
torch.nn.init.zeros_(model.module.weight)
rank = torch.distributed.get_rank()
(model(torch.ones(1, 1)) * (rank + 1)).sum().backward()
print(torch.distributed.get_world_size(), model.module.weight.grad.item(), torch.__file__.split("/")[2])
torch.distributed.destroy_process_group()
"""
MEET = "touch ~/$0-$RANK; until test -e ~/$1-$RANK; do sleep 0.05; done; test -d /opt/torch; echo $?"
"""Waits on its node for the other job, then prints whether the image has PyTorch."""


class Rehearsed:
    """A running stack whose nodes hold two images."""

    def __init__(self, made: Workplace, images: dict[str, tuple[Path, tuple[str, ...]]]) -> None:
        self.workplace = made
        self.folder = made.project / ".ranklift" / STACK
        self.inventory = load(self.folder)
        (made.own / "sum.py").write_text(SUM)
        (made.own / "ddp.py").write_text(DDP)
        self.snapshot = made.fab("push", "--json").json()["snapshot"]
        for name, (root, variables) in images.items():
            plant_image(made, [node.name for node in self.inventory.nodes], name, root, variables)

    def run(self, image: str = ID, **options: Any) -> tuple[JobState, list[Event]]:
        """Runs a job in an image to its end."""
        spec = JobSpec(name="t", snapshot=self.snapshot, **options)
        chosen = [JobNode(node.name, node.private_ip, node.slots) for node in self.inventory.nodes]
        made = plan(spec, chosen, size=self.inventory.size, remote=remote_id(), rehearsed=True)
        made = replace(made, runs_in=record("charliecloud", image))
        events: list[Event] = []
        with Cluster(self.inventory, self.folder) as cluster:
            state = submit.submit_and_follow(made, cluster.host(self.inventory.nodes[0]), events.append)
        return state, events


@pytest.fixture(scope="module")
def torch_root(image_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The image with PyTorch in it: that of ``.venv-node``, which is made for the same Python."""
    root = tmp_path_factory.mktemp("torch") / "root"
    link_tree(image_root, root)
    link_torch(root / "opt/torch")
    yield root
    shutil.rmtree(root)


@pytest.fixture(scope="module")
def rehearsed(
    tmp_path_factory: pytest.TempPathFactory, image_root: Path, torch_root: Path
) -> Iterator[Rehearsed]:
    """Three nodes with the images; nothing of them is left in the end."""
    torch = ("PATH=/opt/torch/bin:/usr/bin:/bin", "PYTHONPATH=/opt/torch/lib")
    with rehearsed_workplace(tmp_path_factory.mktemp("containers"), NODES, None) as made:
        made.configure(STACK, nodeCount=NODES)
        made.fab("up", "--stack", STACK)
        yield Rehearsed(made, {ID: (image_root, VARIABLES), TORCH: (torch_root, torch)})


@pytest.mark.for_every_change
def test_mpi4py_sums_over_three_nodes(rehearsed: Rehearsed) -> None:
    state, events = rehearsed.run(kind="mpi", command=("sum.py",), processes_per_node=2)
    assert state.state == "SUCCEEDED", (state, remarks(events))
    assert sorted(lines(events)) == [(rank, "6 21.0 True True") for rank in range(6)]


@pytest.mark.for_every_change
def test_a_failed_rank_ends_the_job_on_all_nodes(rehearsed: Rehearsed) -> None:
    line = "test $RANK != 3 || exit 7; trap '' TERM; sleep 1000 & while :; do sleep 0.05; done"
    state, _ = rehearsed.run(kind="pytorch", command=("sh", "-c", line), processes_per_node=2, grace_s=1.0)
    assert (state.state, state.exit_status) == ("FAILED", 7)
    for node in living_nodes(rehearsed.workplace.project, STACK).values():
        assert node.tops(state.job) == []


def test_every_worker_of_tensorflow_is_told_of_all(rehearsed: Rehearsed) -> None:
    _, events = rehearsed.run(kind="tensorflow", command=("sh", "-c", 'echo "$TF_CONFIG"'), workers=NODES)
    found = [json.loads(text) for _, text in sorted(lines(events))]
    assert [one["task"] for one in found] == [{"type": "worker", "index": index} for index in range(NODES)]
    names = [address.partition(":")[0] for address in found[0]["cluster"]["worker"]]
    assert all(one["cluster"] == found[0]["cluster"] for one in found)
    assert len(set(names)) == NODES


@pytest.mark.parametrize(
    "options",
    [
        {"command": ("ddp.py",), "processes_per_node": 2},
        {"command": torchrun_argv(NODES, 2, ("ddp.py",)), "per_node": True},
    ],
    ids=["per process", "torchrun"],
)
def test_torch_averages_gradients_over_three_nodes(rehearsed: Rehearsed, options: dict[str, Any]) -> None:
    state, events = rehearsed.run(TORCH, kind="pytorch", **options)
    assert state.state == "SUCCEEDED", (state, lines(events), remarks(events))
    found = [text for _, text in lines(events) if text.startswith("6 ")]
    assert found == ["6 3.5 torch"] * 6


def test_what_ranks_write_is_collected(rehearsed: Rehearsed) -> None:
    line = 'echo said; echo kept > "$RANKLIFT_OUTPUT_DIR/result"'
    state, _ = rehearsed.run(kind="pytorch", command=("sh", "-c", line))
    rehearsed.workplace.fab("collect", state.job)
    folder = rehearsed.workplace.own / "results" / state.job
    assert sorted(path.read_text() for path in folder.glob("**/rank-*.log")) == ["said\n"] * NODES
    assert [path.read_text() for path in folder.glob("**/result")] == ["kept\n"] * NODES


def test_two_jobs_share_the_nodes_each_in_its_own_image(rehearsed: Rehearsed) -> None:
    def run(image: str, own: str, other: str) -> set[str]:
        line = ("sh", "-c", MEET, own, other)
        _, events = rehearsed.run(image, kind="pytorch", command=line, processes_per_node=2)
        return {text for _, text in lines(events)}

    with ThreadPoolExecutor(2) as pool:
        both = pool.map(run, (ID, TORCH), ("one", "two"), ("two", "one"))
        assert list(both) == [{"1"}, {"0"}]
