"""Two clusters at once, and nodes that break: named, survived, and nobody else's business."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.e2e.workplace import LIMIT_S, Ran, Workplace

pytestmark = pytest.mark.timeout(1200)

OTHER = "rehearsal-b"
NAMES = {"node000000", "node000001", "node000002"}
REACH = "timeout 5 bash -c '</dev/tcp/{}/22' 2>/dev/null && echo reached || echo not"
NEW_KEY = """\
cp -a /etc/ssh/ssh_host_ed25519_key ~/kept_key && rm /etc/ssh/ssh_host_ed25519_key* &&
ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/ssh_host_ed25519_key && kill -HUP $(pgrep -o -x sshd)"""
OLD_KEY = "cp -a ~/kept_key /etc/ssh/ssh_host_ed25519_key && kill -HUP $(pgrep -o -x sshd)"


@pytest.fixture(scope="module")
def two(cluster: Workplace) -> Iterator[Workplace]:
    """A second stack of three nodes runs beside the first, and leaves it alone when it goes."""
    (cluster.own / "hello.py").write_text("print('hello')\n")
    cluster.configure(OTHER, nodeCount=3, vnetPrefix="10.1.0.0/16")
    cluster.fab("up", "--stack", OTHER)
    since = booted(cluster)
    yield cluster
    cluster.fab("down", "--stack", OTHER, "--yes")
    assert booted(cluster) == since


def booted(workplace: Workplace) -> str:
    return workplace.fab("exec", "uname -n; cut -d' ' -f22 /proc/1/stat", "--stack", "rehearsal").out


def at_once(workplace: Workplace, *commands: tuple[str, ...]) -> list[Ran]:
    """The commands at the same time: most of what each does is to wait for a node that does not answer."""
    with ThreadPoolExecutor(len(commands)) as pool:
        return list(pool.map(lambda words: workplace.fab(*words, "--stack", OTHER, status=None), commands))


def test_neither_cluster_can_reach_the_other(two: Workplace) -> None:
    for stack, own, other in (("rehearsal", "10.0.0.5", "10.1.0.4"), (OTHER, "10.1.0.5", "10.0.0.4")):
        line = f"{REACH.format(own)}; {REACH.format(other)}"
        assert two.fab("exec", line, "--nodes", "0", "--stack", stack).out == "reached\nnot\n"


def test_each_stack_has_keys_of_its_own(two: Workplace) -> None:
    keys = two.project / ".ranklift"
    for name in ("id_ed25519", "known_hosts"):
        assert (keys / "rehearsal" / name).read_text() != (keys / OTHER / name).read_text()


def test_faults_are_for_nodes_that_are_named(two: Workplace) -> None:
    refused = two.fab("rehearsal.fault", "death", "--stack", OTHER, status=2)
    assert refused.err == (
        "error: --nodes: is missing: the VM is lost at once; name the nodes by instance id, as in 0-3,7\n"
    )
    assert set(two.network(OTHER)["running"]) == NAMES


def test_a_node_with_another_host_key_is_refused_by_name_and_the_others_are_served(two: Workplace) -> None:
    two.fab("exec", NEW_KEY, "--nodes", "1", "--stack", OTHER)
    try:
        done = two.fab("exec", "uname -n", "--stack", OTHER, status=1)
        assert done.out == "node000000\n  node000000\nnode000002\n  node000002\n"
        assert "error: exec failed on 1 of 3 nodes\nnode000001: " in done.err
        assert "not the pinned SHA256:" in done.err
        waited = two.fab("wait", "--stack", OTHER, status=1)
        assert waited.err.startswith("error: node000001: ")
        assert "not the pinned SHA256:" in waited.err
        rows = {
            row["name"]: row["ssh"] for row in two.fab("status", "--json", "--stack", OTHER, status=1).json()
        }
        assert (rows["node000000"], rows["node000002"]) == ("yes", "yes")
        assert "not the pinned SHA256:" in rows["node000001"]
        pushed = two.fab("push", "--stack", OTHER, status=1)
        assert "push failed on 1 of 3 nodes\nnode000001: Host key verification failed" in pushed.err
        launched = two.fab("launch.torch", "hello.py", "--stack", OTHER, status=1)
        assert "node000001" in launched.err
        assert launched.out == ""
    finally:
        _ssh(two, "node000001", OLD_KEY)
    assert two.fab("exec", "true", "--stack", OTHER).err == ""


def _ssh(workplace: Workplace, node: str, line: str) -> None:
    settings = workplace.project / ".ranklift" / OTHER / "ssh_config"
    unpinned = ("-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null")
    subprocess.run(
        ["ssh", "-F", settings, *unpinned, "-o", "LogLevel=ERROR", node, line],
        stdin=subprocess.DEVNULL,
        check=True,
        timeout=LIMIT_S,
    )


def test_a_node_that_is_cut_off_is_named_survived_and_back_when_its_link_is(two: Workplace) -> None:
    two.fab("rehearsal.fault", "partition", "--nodes", "2", "--stack", OTHER)
    (two.own / "hello.py").write_text("print('hello again')\n")
    done, rows, waited, pushed, launched = at_once(
        two,
        ("exec", "uname -s"),
        ("status", "--json"),
        ("wait", "--timeout", "1s"),
        ("push",),
        ("launch.torch", "hello.py"),
    )
    for ran in (done, waited, pushed, launched):
        assert ran.status == 1, ran
        assert "node000002: " in ran.err, ran
    assert done.out == "node[000000-000001]\n  Linux\n"
    assert "2 of 3 nodes answer\n" in waited.err
    assert [(row["name"], row["ssh"] == "yes") for row in rows.json()] == [
        ("node000000", True),
        ("node000001", True),
        ("node000002", False),
    ]
    assert launched.out == ""
    # What could be served has been, and the one left behind is served once it is back.
    assert (
        two.fab("launch.torch", "hello.py", "--nodes", "0-1", "--stack", OTHER).out.count("hello again") == 2
    )
    two.fab("rehearsal.fault", "heal", "--nodes", "2", "--stack", OTHER)
    two.fab("wait", "--stack", OTHER)
    assert two.fab("launch.torch", "hello.py", "--stack", OTHER).out.count("hello again") == 3


@pytest.mark.parametrize("kind", ["mpi", "torch"])
def test_a_node_that_falls_silent_in_a_job_ends_it_within_20_s(two: Workplace, kind: str) -> None:
    (two.own / "sleep.py").write_text("import time\n\ntime.sleep(300)\n")
    with two.begin(f"launch.{kind}", "sleep.py", "--stack", OTHER) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.endswith(" RUNNING\n"):
                break
        began = time.monotonic()
        two.fab("rehearsal.fault", "partition", "--nodes", "2", "--stack", OTHER)
        shown = process.stdout.read()
        assert process.wait() == 255
    assert "node000002 (rank 2) is lost: no sign of life for 12 s" in shown
    assert time.monotonic() - began < 20
    two.fab("rehearsal.fault", "heal", "--nodes", "2", "--stack", OTHER)
    two.fab("wait", "--stack", OTHER)
    # The silent node's own rank ends by itself, its link to the supervisor being cut.
    gone = "for i in $(seq 400); do pgrep -f [s]leep.py >/dev/null || exit 0; sleep 0.1; done; exit 1"
    two.fab("exec", gone, "--stack", OTHER)


def test_a_dead_node_is_named_and_survived(two: Workplace) -> None:
    two.fab("rehearsal.fault", "death", "--nodes", "2", "--stack", OTHER)
    assert set(two.network(OTHER)["running"]) == NAMES - {"node000002"}
    unchanged = two.fab("launch.mpi", "hello.py", "--stack", OTHER, status=None)
    assert unchanged.status not in (0, None)
    assert "node000002" in unchanged.out + unchanged.err
    (two.own / "hello.py").write_text("print('hello once more')\n")
    done, rows, waited, pushed, launched, jobs = at_once(
        two,
        ("exec", "uname -s"),
        ("status", "--json"),
        ("wait", "--timeout", "1s"),
        ("push",),
        ("launch.mpi", "hello.py"),
        ("jobs",),
    )
    for ran in (done, waited, pushed, launched, jobs):
        assert ran.status == 1, ran
        assert "node000002: " in ran.err, ran
    assert done.out == "node[000000-000001]\n  Linux\n"
    assert {row["name"]: row["state"] for row in rows.json()} == dict.fromkeys(NAMES, "running") | {
        "node000002": "stopped"
    }
    assert launched.out == ""
    result = two.fab("launch.mpi", "hello.py", "--nodes", "0-1", "--stack", OTHER)
    assert result.out.count("hello once more") == 2
