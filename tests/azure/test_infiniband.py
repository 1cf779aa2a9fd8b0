"""InfiniBand as nodes have it: other names on some, on one none at all."""

from __future__ import annotations

import json
import re

import pytest

from tests.e2e.workplace import Workplace

pytestmark = [pytest.mark.azure, pytest.mark.timeout(1800)]

SHOW = """\
import os, socket
print(socket.gethostname(), os.environ.get("NCCL_IB_HCA"), os.environ["NCCL_SOCKET_IFNAME"])
"""


def hcas(out: str) -> dict[str, str]:
    """By node, ``NCCL_IB_HCA`` as its rank printed it."""
    return dict(re.findall(r"(node\w{6}) (=\S+|None) eth0", out))


@pytest.fixture(scope="module")
def cluster(workplace: Workplace) -> Workplace:
    """Two nodes, of which the second names its devices as the kernel does."""
    (workplace.own / "show.py").write_text(SHOW)
    workplace.configure("rehearsal", nodeCount=2)
    workplace.fab("rehearsal.fault", "ib-names", "--after", "1")
    workplace.fab("up")
    workplace.fab("rehearsal.fault", "clear")
    return workplace


@pytest.mark.parametrize(
    "task",
    ["launch.torch", pytest.param("launch.mpi", marks=pytest.mark.for_every_change), "launch.tensorflow"],
)
def test_each_nodes_ranks_get_the_devices_of_their_own_node(cluster: Workplace, task: str) -> None:
    found = hcas(cluster.fab(task, "show.py").out)
    assert sorted(found.values()) == ["=mlx5_0:1", "=mlx5_ib0:1"]
    given = hcas(cluster.fab(task, "show.py", "--env", "NCCL_IB_HCA==mlx5_x").out)
    assert set(given.values()) == {"=mlx5_x"}


@pytest.mark.for_every_change
def test_the_first_days_check_runs_on_a_rehearsal_and_says_so(cluster: Workplace) -> None:
    shown = cluster.fab("check", "--first-day").out
    path = cluster.project / ".ranklift/rehearsal/first-day.json"
    assert f"rehearsal: answers are in {path.resolve()}" in shown
    text = path.read_text()
    made = json.loads(text)
    answers = {name: one["answer"] for name, one in made["answers"].items()}
    assert (made["where"], made["nodes"], sorted(answers)) == (
        "rehearsal",
        2,
        ["devices", "image", "imds-tags", "partial-allocation", "times"],
    )
    ports = [node["rdma_ports"] for node in answers["devices"].values()]
    assert ports[0] == [
        "mlx5_an0:1 Ethernet, 4: ACTIVE, 40 Gb/sec (4X QDR)",
        "mlx5_ib0:1 InfiniBand, 4: ACTIVE, 100 Gb/sec (4X EDR)",
    ]
    assert answers["partial-allocation"]["instances_by_provisioning_state"] == {"Succeeded": 2}
    assert set(answers["imds-tags"]["tags_of_nodes_and_scale_set"].values()) == {"differ: none"}
    assert all(node["cloud_init_errors"] == [] for node in answers["image"].values())
    assert cluster.record.subscription_id not in text
    assert "PRIVATE KEY" not in text


def test_a_node_without_infiniband_is_not_ready_gets_no_rank_and_is_named_with_what_it_has(
    cluster: Workplace,
) -> None:
    cluster.fab("rehearsal.fault", "no-ib")
    scaled = cluster.fab("scale", "3", status=None)
    cluster.fab("rehearsal.fault", "clear")
    missing = "/sys/class/infiniband: none; expected: 1 InfiniBand ports (azure-compute-docs ndv2-series.md)"
    assert scaled.status != 0
    shown = cluster.fab("status", "--json", status=1)
    bare = shown.json()[-1]
    for text in (scaled.err, shown.err):
        assert f"{bare['name']}: {missing}; `fab replace {bare['id']}`" in text
    for task in ("launch.torch", "launch.mpi"):
        ran = cluster.fab(task, "show.py", status=None)
        assert ran.status != 0
        assert f"{bare['name']}: {missing}; `fab replace` the node" in ran.err, ran
        assert hcas(ran.out) == {}
        unseen = cluster.fab(task, "show.py", "--health", "off", status=None)
        text = f"{bare['name']}: no active InfiniBand port in /sys/class/infiniband, and its VM size has"
        assert text in unseen.err, unseen
        assert "found: mlx5_an0 (Ethernet, 4: ACTIVE); `fab replace` the node" in unseen.err
    found = hcas(cluster.fab("launch.torch", "show.py", "--env", "NCCL_IB_DISABLE=1").out)
    assert found[bare["name"]] == "None"
    cluster.fab("replace", str(bare["id"]), "--yes")
    assert "None" not in hcas(cluster.fab("launch.torch", "show.py").out).values()
