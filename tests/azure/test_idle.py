"""A cluster that stops itself when it is idle, and ends itself when its time is over."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.e2e.workplace import Workplace

pytestmark = [pytest.mark.azure, pytest.mark.timeout(1800)]

STACK = "rehearsal"
SET = f"/resourceGroups/ranklift-{STACK}/providers/Microsoft.Compute/virtualMachineScaleSets/ranklift-{STACK}"
SCRIPT = """\
trap 'echo told; exit 0' TERM
echo up
while :; do sleep 0.2; done
"""
SOON_MIN = 0.3
"""Minutes: the tag that the nodes read says so; no stack's configuration may."""


@pytest.fixture
def cluster(workplace: Workplace) -> Workplace:
    """Three nodes that stop when they are idle and end in a day, whatever a test before left."""
    workplace.configure(STACK, nodeCount=3, idleStopMinutes=5, ttlHours=24)
    workplace.fab("up")
    (workplace.own / "train.sh").write_text(SCRIPT)
    return workplace


def tag(cluster: Workplace, **values: str) -> None:
    """Changes tags of the scale set, as somebody may in the portal."""
    tags = cluster.azure(SET)["tags"] | {name.replace("_", "-"): value for name, value in values.items()}
    cluster.ask("PATCH", f"/subscriptions/{cluster.record.subscription_id}{SET}", {"tags": tags})


def launched(cluster: Workplace) -> str:
    made = cluster.fab("launch.torch", "bash train.sh", "--per-node", "--detach", "--name", "long")
    found = re.search(r"long-\d{8}-\d{6}-\w{4}", made.out + made.err)
    assert found is not None, made
    return found[0]


def capacity(cluster: Workplace) -> Any:
    return cluster.azure(SET)["sku"]["capacity"]


def actions(cluster: Workplace) -> set[str]:
    """What the role of the nodes allows."""
    state = cluster.pulumi("stack", "export", "--stack", STACK).json()
    (role,) = (one["id"] for one in state["deployment"]["resources"] if "RoleDefinition::" in one["urn"])
    (block,) = cluster.ask("GET", role)[0]["properties"]["permissions"]
    return set(block["actions"])


def has_set(cluster: Workplace) -> bool:
    listed = cluster.azure(SET.rpartition("/")[0])["value"]
    return any(one["name"] == f"ranklift-{STACK}" for one in listed)


def test_a_job_keeps_the_cluster_and_afterwards_it_stops(cluster: Workplace) -> None:
    job = launched(cluster)
    tag(cluster, ranklift_idle_stop_minutes=str(SOON_MIN))
    time.sleep(60 * SOON_MIN + 45)
    assert capacity(cluster) == 3
    cluster.fab("cancel", job)
    deadline = time.monotonic() + 120
    while capacity(cluster):
        assert time.monotonic() < deadline
        time.sleep(1)
    deadline = time.monotonic() + 60
    while (shown := cluster.fab("status", status=None)).out.count("node00"):
        assert time.monotonic() < deadline
    assert shown.status == 1
    assert "(idle nodes are deleted after 0.3 minutes: ranklift:idleStopMinutes)" in shown.err, shown
    assert "`fab up --stack rehearsal` adds 3" in shown.err
    cluster.fab("up")
    assert capacity(cluster) == 3


def due(shown: str) -> datetime:
    """When the nodes are deleted unless a job runs, as `fab status` has it."""
    found = re.search(r"left until (.{16}) UTC \(ranklift:idleStopMinutes is 5\)", shown)
    assert found is not None, shown
    return datetime.fromisoformat(found[1])


def test_a_node_that_is_added_does_not_put_the_stop_off(cluster: Workplace) -> None:
    deadline = time.monotonic() + 150
    while "no node has confirmed yet" in (before := cluster.fab("status").out):
        assert time.monotonic() < deadline, before
        time.sleep(1)
    cluster.fab("scale", "4")
    assert abs((due(cluster.fab("status").out) - due(before)).total_seconds()) <= 60


def test_the_nodes_may_delete_one_another_and_change_nothing(cluster: Workplace) -> None:
    assert actions(cluster) == {
        "Microsoft.Compute/virtualMachineScaleSets/delete",
        "Microsoft.Compute/virtualMachineScaleSets/delete/action",
        "Microsoft.Compute/virtualMachineScaleSets/read",
        "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/read",
    }


def test_nodes_with_an_agent_that_writes_the_capacity_keep_the_right_to(cluster: Workplace) -> None:
    """As of a set that an earlier version of the project made, which has no tag with the agent's version."""
    tags = cluster.azure(SET)["tags"]
    assert tags.pop("ranklift-agent") == "2"
    cluster.ask("PATCH", f"/subscriptions/{cluster.record.subscription_id}{SET}", {"tags": tags})
    cluster.pulumi("refresh", "--yes", "--stack", STACK)
    cluster.fab("up")
    assert "ranklift-agent" not in cluster.azure(SET)["tags"]
    assert "Microsoft.Compute/virtualMachineScaleSets/write" in actions(cluster)
    assert "Microsoft.Compute/virtualMachineScaleSets/delete/action" not in actions(cluster)
    cluster.fab("down")


def test_a_right_of_the_nodes_that_somebody_took_away_is_named_and_given_again(cluster: Workplace) -> None:
    state = cluster.pulumi("stack", "export", "--stack", STACK).json()
    (right,) = (one["id"] for one in state["deployment"]["resources"] if "RoleAssignment::" in one["urn"])
    cluster.ask("DELETE", right)
    shown = cluster.fab("status", status=1)
    assert "RoleAssignment watcher-right: Azure no longer has it: `fab up --stack rehearsal`" in shown.err
    assert "drift: RoleAssignment watcher-right: Azure no longer has it" in cluster.fab("up").err
    assert cluster.ask("GET", right)[0]["id"] == right
    cluster.fab("status")


def test_jobs_are_told_before_the_clusters_time_is_over_and_then_it_goes(cluster: Workplace) -> None:
    job = launched(cluster)
    made = datetime.fromisoformat(cluster.azure(SET)["properties"]["timeCreated"])
    age = (datetime.now(UTC) - made).total_seconds()
    tag(cluster, ranklift_ttl_hours=f"{(age + 60) / 3600:.6f}")
    ended = cluster.fab("wait", job, status=None)
    assert ended.status == 130
    shown = cluster.fab("job", job).out
    assert re.search(r"state +CANCELLED: the cluster's lifetime of \S+ h is over", shown), shown
    assert cluster.fab("logs", job).out.count("] told") == 3
    assert has_set(cluster)
    deadline = time.monotonic() + 180
    while has_set(cluster):
        assert time.monotonic() < deadline
        time.sleep(1)
    ran = cluster.fab("status", status=None)
    assert ran.status != 0
    assert "fab up" in ran.err, ran
    cluster.fab("up")
    assert capacity(cluster) == 3
