"""Settings that were changed and not applied yet, when a command changes single nodes."""

from __future__ import annotations

import pytest

from tests.azure.test_scaling import STACK, booted, is_as_configured
from tests.e2e.workplace import Workplace

pytestmark = [pytest.mark.azure, pytest.mark.timeout(1800)]


IMAGE = "microsoft-dsvm:ubuntu-hpc:2204-v100:22.04.2026013001"
CAUSE = f"ranklift:image = '{IMAGE}', was not set"


@pytest.fixture(scope="module")
def cluster(workplace: Workplace) -> Workplace:
    """The stack is up with two nodes; each test leaves it so."""
    workplace.configure(STACK, nodeCount=2)
    workplace.fab("up")
    return workplace


def test_a_setting_that_replaces_all_nodes_waits_for_an_up(cluster: Workplace) -> None:
    before = booted(cluster)
    cluster.configure(STACK, nodeCount=2, image=IMAGE)
    try:
        for words in (("replace", "0"), ("scale", "3"), ("scale", "1")):
            refused = cluster.fab(*words, status=2)
            assert f"replace all nodes ({CAUSE}); nothing was changed" in refused.err, refused
        assert booted(cluster) == before
    finally:
        cluster.configure(STACK, nodeCount=2)
    is_as_configured(cluster)


def test_an_up_applies_it_only_with_consent(cluster: Workplace) -> None:
    before = booted(cluster)
    (cluster.own / "wait.sh").write_text("sleep 600\n")
    words = ("launch.torch", "bash wait.sh", "--per-node", "--nodes", "all", "--detach", "--name", "wait")
    job = cluster.fab(*words).out.strip()
    cluster.configure(STACK, nodeCount=2, image=IMAGE)
    refused = cluster.fab("up", status=1)
    assert f"{CAUSE} replaces all nodes: node[000000-000001] are deleted" in refused.err, refused
    assert f"job {job} is RUNNING on node[000000-000001] and ends with its nodes" in refused.err, refused
    assert (
        f"error: the nodes of stack {STACK} are not replaced: {CAUSE} replaces all nodes; 1 job"
        in refused.err
    )
    assert booted(cluster) == before
    cluster.fab("up", "--yes")
    after = booted(cluster)
    assert len(after) == 2
    assert set(after.values()).isdisjoint(before.values())
    cluster.configure(STACK, nodeCount=2)
    cluster.fab("up", "--yes")


def test_a_node_is_not_removed_while_azure_lacks_the_image_of_another(cluster: Workplace) -> None:
    before = booted(cluster)
    cluster.fab("rehearsal.fault", "image")
    try:
        refused = cluster.fab("replace", "0", status=1)
    finally:
        cluster.fab("rehearsal.fault", "clear")
    assert "stays as it is; nothing was changed:\n  image: Azure does not have" in refused.err, refused
    assert booted(cluster) == before
