"""What `pulumi up` changes, and what it leaves alone."""

from __future__ import annotations

import re
import socketserver
import threading

import pytest

from tests.e2e.workplace import Workplace

pytestmark = pytest.mark.timeout(1200)

SINCE = "cut -d' ' -f22 /proc/1/stat"
"""When a node booted: its first process's start, in clock ticks of the machine underneath."""


def booted(workplace: Workplace, nodes: str, *words: str) -> dict[str, str]:
    answers = workplace.fab("exec", SINCE, "--nodes", nodes, "--json", *words).json()
    return {name: answer["stdout"] for name, answer in answers.items()}


def test_a_rehearsal_looks_for_nothing_outside_this_machine(
    cluster: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[bytes] = []

    class Proxy(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            requests.append(self.rfile.readline())

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Proxy) as proxy:
        threading.Thread(target=proxy.serve_forever).start()
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.server_address[1]}")
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        try:
            cluster.pulumi("preview", "--stack", "rehearsal", "--expect-no-changes")
            cluster.fab("status", "--stack", "rehearsal")
        finally:
            proxy.shutdown()
    assert requests == []


def test_growing_shows_the_exact_difference_and_leaves_the_nodes_alone_that_are_there(
    cluster: Workplace,
) -> None:
    cluster.pulumi("preview", "--stack", "rehearsal", "--expect-no-changes")
    before = booted(cluster, "0-1")
    cluster.fab("exec", "setsid -f sleep 4321 >/dev/null 2>&1", "--nodes", "0-1")

    cluster.configure("rehearsal", nodeCount=3)
    preview = cluster.pulumi("preview", "--stack", "rehearsal", "--json").json()
    changed = [step for step in preview["steps"] if step["op"] != "same"]
    assert [(step["op"], step["urn"].rpartition("::")[2]) for step in changed] == [("update", "nodes")]
    assert changed[0]["urn"].rpartition("$")[2] == "azure-native:compute:VirtualMachineScaleSet::nodes"
    assert list(changed[0]["detailedDiff"]) == ["sku.capacity"]
    assert preview["changeSummary"]["update"] == 1
    text = cluster.pulumi("preview", "--stack", "rehearsal").out
    outputs = re.search(r"^Outputs:\n((?:  .*\n)+)", text, re.MULTILINE)
    assert outputs is not None, text
    assert [" ".join(line.split()) for line in outputs[1].splitlines() if line[2] != " "] == [
        "~ nodeCount : 2 => 3"
    ]

    grown = cluster.fab("up", "--stack", "rehearsal")
    assert "3 of 3 nodes answer" in grown.err
    after = booted(cluster, "0-2")
    assert {name: after[name] for name in before} == before
    assert set(after) - set(before) == {"node000002"}
    assert cluster.fab("exec", "pgrep -c -f 'sleep 4321'; pkill -f 'sleep 4321'", "--nodes", "0-1").out

    again = cluster.fab("up", "--stack", "rehearsal")
    assert "\nPulumi: 15 unchanged, in " in again.err, again
    assert booted(cluster, "0-2") == after


@pytest.mark.parametrize(
    ("key", "value", "problem", "remedy"),
    [
        ("nodeCount", "0", "must be at least 1", "set it to the number of nodes wanted"),
        ("vmSize", "Standard_ND40rs_v3", "", "Standard_ND40rs_v2"),
        ("sshFrom", "0.0.0.0/0", "would open ssh to the world", "203.0.113.7/32"),
        ("vnetPrefix", "172.16.0.0/12", "overlaps 172.16.0.0/16", "10.0.0.0/16"),
    ],
)
def test_a_wrong_setting_is_refused_by_key_value_and_remedy_before_anything_is_made(
    workplace: Workplace, key: str, value: str, problem: str, remedy: str
) -> None:
    stack = f"rehearsal-refused-{key.lower()}"
    before = workplace.groups()
    workplace.configure(stack, **{key: value})
    refused = workplace.fab("up", "--stack", stack, status=2)
    assert stack not in {s["name"] for s in workplace.pulumi("stack", "ls", "--json").json()}
    workplace.pulumi("stack", "init", stack)
    by_pulumi = workplace.pulumi("up", "--yes", "--stack", stack, status=None)
    assert by_pulumi.status != 0
    for text in (refused.err, by_pulumi.out):
        (line,) = {
            line.strip().removeprefix("error: ")
            for line in text.splitlines()
            if line.strip().startswith(f"error: ranklift:{key} = ")
        }
        assert value in line
        assert problem in line
        assert remedy in line
    assert workplace.groups() == before
    (known,) = (s for s in workplace.pulumi("stack", "ls", "--json").json() if s["name"] == stack)
    assert known.get("resourceCount", 0) <= 1
