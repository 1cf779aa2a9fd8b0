"""`up` and `down` that were repeated, interrupted, killed or failed half-way."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import pytest

from launch.remote.base import processes
from tests.e2e.conftest import NODES_LIMIT
from tests.e2e.workplace import LIMIT_S, Workplace

pytestmark = pytest.mark.timeout(1200)


def all_but_nodes(workplace: Workplace, stack: str) -> None:
    """Everything of the stack is there but the scale set, which makes what happens to that one observable."""
    workplace.configure(stack, nodeCount=1)
    workplace.pulumi("stack", "select", "--create", stack)
    words = ("--yes", "--skip-preview", "--stack", stack, "--exclude", "**VirtualMachineScaleSet**")
    workplace.pulumi("up", *words)


def wait_until_making(workplace: Workplace, stack: str) -> None:
    """Returns when Azure has been asked for the scale set."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        there = [one["id"] for one in workplace.azure(f"/resourcegroups/ranklift-{stack}/resources")["value"]]
        if any(one.endswith(f"/virtualMachineScaleSets/ranklift-{stack}") for one in there):
            return
        time.sleep(0.05)
    raise AssertionError("nobody asked for the scale set")


def pulumi_of(group: int) -> int:
    """The engine that runs in a process group."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if (entry / "comm").read_text() == "pulumi\n" and os.getpgid(int(entry.name)) == group:
                    return int(entry.name)
            except OSError:
                continue
    raise AssertionError("no pulumi runs")


def unchanged(workplace: Workplace, stack: str) -> bool:
    again = workplace.fab("up", "--stack", stack)
    return re.search(r"^Pulumi: \d+ unchanged, in ", again.err, re.MULTILINE) is not None


def test_ctrl_c_while_nodes_are_made_ends_in_good_order_and_the_next_up_goes_on(cluster: Workplace) -> None:
    stack = "rehearsal-stopped"
    all_but_nodes(cluster, stack)
    with cluster.held(stack) as go_on, cluster.begin("up", "--stack", stack) as process:
        wait_until_making(cluster, stack)
        os.killpg(process.pid, signal.SIGINT)
        assert process.stdout is not None
        shown = process.stdout.read()
        go_on()
    assert process.returncode == 130, shown
    assert f"`fab up --stack {stack}` continues from there, `fab down --stack {stack}` removes it\n" in shown
    assert "Traceback" not in shown
    up = cluster.fab("up", "--stack", stack)
    assert "1 of 1 nodes answer\nnext: `fab launch job.yml" in up.err
    assert cluster.fab("exec", "uname -n", "--stack", stack).out == "node000000\n"
    assert unchanged(cluster, stack)
    for _ in range(2):
        cluster.fab("down", "--stack", stack)
        assert f"ranklift-{stack}" not in cluster.groups()


@pytest.mark.parametrize("then", ["up", "down"])
def test_a_pulumi_that_was_killed_while_nodes_are_made_is_mended_by_the_next_command(
    cluster: Workplace, then: str
) -> None:
    stack = f"rehearsal-killed-{then}"
    all_but_nodes(cluster, stack)
    with cluster.held(stack) as go_on, cluster.begin("up", "--stack", stack) as process:
        wait_until_making(cluster, stack)
        engine = pulumi_of(process.pid)
        plugins = processes.descendants(engine)
        os.kill(engine, signal.SIGKILL)
        for plugin in plugins:  # they outlive an engine that was killed
            processes.kill(plugin, signal.SIGKILL)
        assert process.wait() == 137
        go_on()
    # Pulumi has a lock that nobody holds and does not know the nodes that Azure has.
    done = cluster.fab(then, "--stack", stack)
    assert f"process {engine} was killed while it held the lock of stack {stack}\n" in done.err
    assert "VirtualMachineScaleSet nodes: Pulumi was killed while it was being created; removing" in done.err
    if then == "up":
        assert "1 of 1 nodes answer\nnext: `fab launch job.yml" in done.err
        assert unchanged(cluster, stack)
        cluster.fab("down", "--stack", stack)
    assert f"ranklift-{stack}" not in cluster.groups()


def test_down_after_a_half_finished_up_removes_the_half_and_may_be_repeated(cluster: Workplace) -> None:
    stack = "rehearsal-half"
    cluster.configure(stack, nodeCount=NODES_LIMIT + 1)
    failed = cluster.fab("up", "--stack", stack, status=None)
    assert failed.status not in (0, None)
    assert f"--nodes-limit = {NODES_LIMIT}: " in failed.err
    assert "start it with a higher limit" in failed.err
    assert f"ranklift-{stack}" in cluster.groups()
    for words in (("status",), ("wait",), ("exec", "true"), ("push",)):
        refused = cluster.fab(*words, "--stack", stack, status=2)
        assert "fab up" in refused.err or "fab status" in refused.err
    for _ in range(2):
        cluster.fab("down", "--stack", stack)
        assert f"ranklift-{stack}" not in cluster.groups()
        assert not (cluster.project / ".ranklift" / stack).exists()
