"""Jobs that may use the nodes' identity, and jobs that may not, where it may delete the nodes."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.e2e.workplace import LIMIT_S, Ran, Workplace

pytestmark = [pytest.mark.azure, pytest.mark.timeout(1800)]

STACK = "rehearsal"
SOCKET = "/run/ranklift/metadata"
TOKEN = (
    "http://169.254.169.254/metadata/identity/oauth2/token?api-version=2018-02-01"
    "&resource=https://management.azure.com/"
)
RANK = f"""\
import os, sys, time, urllib.request
asked = urllib.request.Request({TOKEN!r}, headers={{"Metadata": "true"}})
try:
    with urllib.request.build_opener(urllib.request.ProxyHandler({{}})).open(asked, timeout=20) as answer:
        found = "a token" if b"access_token" in answer.read() else "no token"
except OSError:
    found = "nothing"
print("rank", os.environ["RANK"], "gets", found, flush=True)
time.sleep(float(sys.argv[1]))
"""
ASK = f"curl -s --max-time 10 -H Metadata:true --noproxy '*' '{TOKEN}' | grep -o access_token"
"""What a process beside the ranks would ask; it fails where the node's rules refuse it."""
RUNNER = (
    "for fd in /proc/[0-9]*/fd/*; do case $(readlink $fd) in */jobs/{job}/exits.jsonl) echo $fd ;; esac; done"
)


@pytest.fixture(scope="module")
def cluster(workplace: Workplace) -> Iterator[Workplace]:
    """Two nodes with an identity, which a cluster that ends by itself has."""
    workplace.configure(STACK, nodeCount=2, ttlHours=24)
    workplace.fab("up", "--stack", STACK)
    (workplace.own / "rank.py").write_text(RANK)
    yield workplace
    workplace.fab("down", "--stack", STACK, "--yes")


def on_nodes(cluster: Workplace, line: str, nodes: str = "0-1") -> list[str]:
    """What a line of shell prints on each node."""
    ran = cluster.fab("exec", line, "--nodes", nodes, "--json", status=None)
    return [result["stdout"].strip() for result in ran.json().values()]


def wait_until_no_process_reaches_the_service(cluster: Workplace) -> None:
    until = time.monotonic() + LIMIT_S
    while any(on_nodes(cluster, ASK)):
        assert time.monotonic() < until
        time.sleep(0.2)


@contextmanager
def running(cluster: Workplace, kind: str) -> Iterator[str]:
    """A job with the identity whose ranks have asked for a token and go on; its id."""
    job = cluster.fab(f"launch.{kind}", "rank.py 600", "--identity", "--detach").out.strip()
    try:
        with cluster.begin("logs", job, "--follow") as following:
            assert following.stdout is not None
            found = (line for line in following.stdout if " gets a token" in line)
            assert len([*itertools.islice(found, 2)]) == 2
        yield job
    finally:
        cluster.fab("cancel", job, status=None)


def gets(ran: Ran) -> list[str]:
    return sorted(line.partition("] ")[2] for line in f"{ran.out}{ran.err}".splitlines() if " gets " in line)


@pytest.mark.parametrize("kind", ["torch", "mpi"])
def test_ranks_of_a_job_with_the_identity_get_its_tokens_and_nobody_does_afterwards(
    cluster: Workplace, kind: str
) -> None:
    count = ("--nproc-per-node", "2")
    ran = cluster.fab(f"launch.{kind}", "rank.py 0", "--identity", *count)
    assert gets(ran) == [f"rank {rank} gets a token" for rank in range(4)]
    assert on_nodes(cluster, ASK) == ["", ""]
    ran = cluster.fab(f"launch.{kind}", "rank.py 0", *count)
    assert gets(ran) == [f"rank {rank} gets nothing" for rank in range(4)]


def test_a_job_file_gets_the_identity_that_the_user_allows(cluster: Workplace) -> None:
    (cluster.own / "job.yml").write_text(
        "command: python rank.py 0\ncode: .\ndistribution: {type: pytorch}\nranklift: {identity: true}\n"
    )
    refused = cluster.fab("launch", "job.yml", "--nodes", "0", status=2)
    assert "ranklift.identity = true: is not for a file alone to decide" in refused.err
    assert gets(cluster.fab("launch", "job.yml", "--nodes", "0", "--identity")) == ["rank 0 gets a token"]


@pytest.mark.parametrize("kind", ["torch", "mpi"])
def test_a_killed_runner_loses_the_identity(cluster: Workplace, kind: str) -> None:
    with running(cluster, kind) as job:
        assert on_nodes(cluster, ASK) == ["access_token"] * 2
        found = on_nodes(cluster, RUNNER.format(job=job), "1")[0].split("/")
        on_nodes(cluster, f"kill -9 {found[2]}", "1")
        wait_until_no_process_reaches_the_service(cluster)


def test_a_killed_supervisor_ends_the_identity_of_its_job(cluster: Workplace) -> None:
    with running(cluster, "torch") as job:
        state = f"$HOME/.ranklift/jobs/{job}/state.json"
        program = f"import json, os; print(json.load(open('{state}'))['supervisor']['pid'])"
        on_nodes(cluster, f'kill -9 $(python3 -c "{program}")', "0")
        wait_until_no_process_reaches_the_service(cluster)


def test_a_signature_that_a_rank_copies_serves_no_other_job_node_or_time(cluster: Workplace) -> None:
    program = "import json, sys; sys.stdout.write(json.load(open(sys.argv[1]))['identity'])"
    ask = f"curl -s --max-time 10 --unix-socket {SOCKET} --data-binary @- http://node/ranklift/identity/grant"
    job = cluster.fab("launch.torch", "rank.py 600", "--identity", "--nodes", "0", "--detach").out.strip()
    try:
        until = time.monotonic() + LIMIT_S
        while not any(on_nodes(cluster, ASK, "0")):
            assert time.monotonic() < until
        signed = on_nodes(cluster, f'python3 -c "{program}" .ranklift/jobs/{job}/job.json', "0")[0]
    finally:
        cluster.fab("cancel", job)
    assert signed.startswith(f"identity {job}\nnode000000\n-----BEGIN SSH SIGNATURE-----")
    (once,) = on_nodes(cluster, f"{ask} <<'END'\n{signed}\nEND", "0")
    assert (
        once == f"this node has granted the identity to job {job} before, and grants it once: launch it again"
    )
    (elsewhere,) = on_nodes(cluster, f"{ask} <<'END'\n{signed}\nEND", "1")
    assert elsewhere == f"the request of job {job} was signed for other nodes than node000001"
    other = signed.replace(f"identity {job}", "identity another")
    (another,) = on_nodes(cluster, f"{ask} <<'END'\n{other}\nEND", "0")
    assert another.startswith("the signature for job another is not the operator's: ")
    assert on_nodes(cluster, ASK) == ["", ""]


@contextmanager
def replaced(cluster: Workplace, path: str, by: str) -> Iterator[None]:
    """A file of node 1 holds something else meanwhile."""
    on_nodes(cluster, f"cp -p {path} /tmp/kept && echo '{by}' >{path}", "1")
    try:
        yield
    finally:
        on_nodes(cluster, f"cat /tmp/kept >{path}", "1")


@pytest.mark.parametrize("kind", ["torch", "mpi"])
def test_a_job_that_one_node_refuses_the_identity_does_not_start_and_says_why(
    cluster: Workplace, kind: str
) -> None:
    with replaced(cluster, "/etc/ranklift/allowed_signers", ""):
        ran = cluster.fab(f"launch.{kind}", "rank.py 0", "--identity", status=None)
    assert ran.status != 0 and gets(ran) == []
    shown = " ".join(f"{ran.out} {ran.err}".split())
    assert "node000001" in shown
    assert "the job may not use the nodes' identity here: the signature for job" in shown
    assert on_nodes(cluster, ASK) == ["", ""]


@pytest.mark.parametrize("kind", ["torch", "mpi"])
def test_a_node_that_cannot_change_its_rules_starts_no_rank_and_ends_the_job(
    cluster: Workplace, kind: str
) -> None:
    (nft,) = on_nodes(cluster, "PATH=$PATH:/usr/sbin command -v nft", "1")
    with replaced(cluster, nft, "#!/bin/sh\necho it is broken; exit 1"):
        ran = cluster.fab(f"launch.{kind}", "rank.py 0", "--identity", status=None)
    assert ran.status != 0 and "rank 1 gets" not in f"{ran.out}{ran.err}"
    assert "the node's rules cannot be changed: it is broken" in " ".join(f"{ran.out} {ran.err}".split())
    wait_until_no_process_reaches_the_service(cluster)


def test_the_dry_run_says_what_the_identity_opens_and_shows_no_signature(cluster: Workplace) -> None:
    shown = cluster.fab("launch.torch", "rank.py 0", "--identity", "--dry-run").out
    assert "may act as the nodes' identity" in " ".join(shown.split())
    plan = cluster.fab("launch.torch", "rank.py 0", "--identity", "--dry-run", "--json").json()
    assert plan["identity"] is None
    assert "identity" not in cluster.fab("launch.torch", "rank.py 0", "--dry-run").out
