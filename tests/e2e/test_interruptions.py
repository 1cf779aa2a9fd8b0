"""`up` and `down` that were repeated, interrupted, killed or failed half-way."""

from __future__ import annotations

import os
import re
import signal
import subprocess

import pytest

from tests.e2e.conftest import NODES_LIMIT
from tests.e2e.workplace import Workplace

pytestmark = pytest.mark.timeout(1200)

MAKING = "azure-native:compute:VirtualMachineScaleSet nodes creating (0s)"
"""What Pulumi says once it has asked for the scale set."""


def all_but_nodes(workplace: Workplace, stack: str) -> None:
    """Everything of the stack is there but the scale set, which makes what happens to that one observable."""
    workplace.configure(stack, nodeCount=1)
    workplace.pulumi("stack", "select", "--create", stack)
    words = ("--yes", "--skip-preview", "--stack", stack, "--exclude", "**VirtualMachineScaleSet**")
    workplace.pulumi("up", *words)


def read_until(process: subprocess.Popen[str], text: str) -> str:
    """Output up to the line with ``text`` in it."""
    assert process.stdout is not None
    shown = ""
    for line in process.stdout:
        shown += line
        if text in line:
            return shown
    raise AssertionError(f"ended without {text!r}:\n{shown}")


def unchanged(workplace: Workplace, stack: str) -> bool:
    again = workplace.fab("up", "--stack", stack)
    return re.search(r"^Resources:\n    \d+ unchanged\n", again.out, re.MULTILINE) is not None


def test_ctrl_c_while_nodes_are_made_ends_in_good_order_and_the_next_up_goes_on(cluster: Workplace) -> None:
    stack = "rehearsal-stopped"
    all_but_nodes(cluster, stack)
    with cluster.held(stack) as go_on, cluster.begin("up", "--stack", stack) as process:
        read_until(process, MAKING)
        os.killpg(process.pid, signal.SIGINT)
        assert process.stdout is not None
        shown = process.stdout.read()
        go_on()
    assert process.returncode == 130, shown
    assert f"`fab up --stack {stack}` goes on from there, `fab down --stack {stack}` removes it\n" in shown
    assert "Traceback" not in shown
    up = cluster.fab("up", "--stack", stack)
    assert up.err.endswith("1 of 1 nodes answer\n")
    assert cluster.fab("exec", "uname -n", "--stack", stack).out == "node000000\n"
    assert unchanged(cluster, stack)
    for _ in range(2):
        cluster.fab("down", "--stack", stack)
        assert f"ranklift-{stack}" not in cluster.groups()


def test_down_after_a_half_finished_up_removes_the_half_and_may_be_repeated(cluster: Workplace) -> None:
    stack = "rehearsal-half"
    cluster.configure(stack, nodeCount=NODES_LIMIT + 1)
    failed = cluster.fab("up", "--stack", stack, status=None)
    assert failed.status not in (0, None)
    assert f"--nodes-limit = {NODES_LIMIT}: " in failed.out
    assert "start it with a higher limit" in failed.out
    assert f"ranklift-{stack}" in cluster.groups()
    for words in (("status",), ("wait",), ("exec", "true"), ("push",)):
        refused = cluster.fab(*words, "--stack", stack, status=2)
        assert "fab up" in refused.err or "fab status" in refused.err
    for _ in range(2):
        cluster.fab("down", "--stack", stack)
        assert f"ranklift-{stack}" not in cluster.groups()
        assert not (cluster.project / ".ranklift" / stack).exists()
