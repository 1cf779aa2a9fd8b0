"""Data staged once, onto the file server that the nodes of a stack share."""

from __future__ import annotations

from pathlib import Path

import pytest

from rehearsal.arm.core.subscription import OPERATOR
from tests.chaos import inside
from tests.data.staging_nodes import MB, Nodes, end_of, wait_until
from tests.e2e.workplace import Workplace

pytestmark = [pytest.mark.data, pytest.mark.timeout(1800)]

STACK = "rehearsal"
JOB = """
command: sha256sum ${{inputs.set}}/00.bin; stat -fc %T ${{inputs.set}}; echo at ${{inputs.set}}
inputs: {set: {type: uri_folder, path: azureml://datastores/workspaceblobstore/paths/NAME, mode: MODE}}
distribution: {type: pytorch}
resources: {instance_count: 2}
"""


@pytest.fixture(scope="module")
def made_nodes(workplace: Workplace) -> int:
    """Brings two nodes up, with storage and a file server."""
    workplace.configure(
        STACK, nodeCount=2, storage="serviceEndpoint", dataOperators=OPERATOR, nfs="vm", nfsSizeGib=128
    )
    workplace.fab("up")
    return 2


def launch(nodes: Nodes, name: str, mode: str, *words: str) -> tuple[str, str]:
    """Run the job to its end; return its output, and what the launch reports."""
    path = nodes.workplace.own / "job.yml"
    path.write_text(JOB.replace("NAME", name).replace("MODE", mode))
    ran = nodes.fab("launch", "job.yml", *words)
    return ran.out, ran.err


@pytest.mark.for_every_change
def test_all_ranks_read_one_copy(nodes: Nodes) -> None:
    made = nodes.put("set", 8)
    before = nodes.left_storage()
    out, err = launch(nodes, "set", "ro_mount")
    assert made["00.bin"] in out
    assert "at /mnt/nfs/ranklift-" in out
    assert "data: 8 files, 8.0 MB on /mnt/nfs in" in err
    assert nodes.left_storage() - before < 8.5 * MB
    (held,) = nodes.fab("data", "--json").json()
    assert (held["shared"], held["bytes"], len(held["nodes"])) == (True, 8 * MB, 2)
    assert "/mnt/nfs" in nodes.fab("data").out
    assert "No such file" not in nodes.on(1, f"ls /mnt/nfs/ranklift-*/data/{held['id']}")


def test_another_head_moves_nothing_and_disk_is_another_copy(nodes: Nodes) -> None:
    nodes.put("other", 4)
    launch(nodes, "other", "download", "--stage", "nfs")
    before = nodes.left_storage()
    staged = nodes.stage("other", "--nodes", "1", "--stage", "nfs")
    assert "which /mnt/nfs held already" in staged.err
    assert staged.out.startswith("/mnt/nfs/ranklift-")
    assert nodes.left_storage() - before < MB // 10
    assert "at /home/azureuser/.ranklift/data/" in launch(nodes, "other", "download")[0]


def test_two_heads_at_once_stage_once(nodes: Nodes) -> None:
    nodes.put("twice", 16)
    before = nodes.left_storage()
    with (
        nodes.staging("twice", "--stage", "nfs", "--nodes", "0") as first,
        nodes.workplace.begin("data.stage", "twice", "--stage", "nfs", "--nodes", "1") as second,
    ):
        shown = second.stdout
        assert shown is not None
        wait_until(lambda: "waiting for another launch" in shown.readline())
        nodes.fab("rehearsal.fault", "clear")
        assert (end_of(first)[0], end_of(second)[0]) == (0, 0)
    assert nodes.left_storage() - before < 17 * MB


def test_a_killed_head_leaves_parts_to_the_next_head(nodes: Nodes) -> None:
    made = nodes.put("killed")
    before = nodes.left_storage()
    with nodes.staging("killed", "--stage", "nfs", "--nodes", "0") as process:
        nodes.kill(0, "__main__.py [s]tage")
        nodes.kill(0, "[s]tage_node", is_there=False)
        nodes.fab("rehearsal.fault", "clear")
        assert end_of(process)[0] != 0
    staged = nodes.stage("killed", "--stage", "nfs", "--nodes", "1")
    assert set(map(str, nodes.held(staged.out.strip()).values())) == {str(made)}
    assert nodes.left_storage() - before < 24 * MB + 16 * MB


def test_prune_removes_the_one_copy_and_no_other(nodes: Nodes) -> None:
    nodes.put("gone", 1)
    shared = nodes.stage("gone", "--stage", "nfs").out.strip()
    own = nodes.stage("gone").out.strip()
    assert f"{Path(own).name} " in nodes.fab("data.prune", "--dry-run").out
    out = nodes.fab("data.prune").out
    assert "on /mnt/nfs" in out
    assert nodes.fab("data", "--json").json() == []
    assert nodes.on(0, f"ls -d {shared} {own} 2>&1 | grep -c 'No such'").split()[-1] == "2"


def test_a_node_without_the_mount_is_named(nodes: Nodes) -> None:
    nodes.put("unmounted", 1)
    nodes.stage("unmounted", "--stage", "nfs")
    inside.nodes(nodes.workplace.project, STACK)["node000001"].unmount("/mnt/nfs")
    ran = nodes.stage("unmounted", "--stage", "nfs", "--nodes", "1", status=None)
    assert ran.status != 0
    assert "node000001: /mnt/nfs is not mounted on this node: `fab status` shows the nodes" in ran.err
    (nodes.workplace.own / "job.yml").write_text(JOB.replace("NAME", "unmounted").replace("MODE", "ro_mount"))
    launched = nodes.fab("launch", "job.yml", status=None)
    assert launched.status != 0
    assert "its shared folder is not mounted" in launched.err
