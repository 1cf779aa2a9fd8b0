"""What an operator does all day, on a running cluster, from a repository of their own."""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any

import pytest

from tests.e2e.workplace import LIMIT_S, Ran, Workplace

pytestmark = pytest.mark.timeout(1200)

NODES = ("node000000", "node000001")
OWN = {
    "init /etc/rehearsal/init",
    "/bin/sh /etc/rehearsal/bin/keep ranklift-watch.service",
    "/usr/bin/python3 -I -S /usr/local/lib/ranklift/watch.py watch /home/azureuser",
}
"""What runs on a node when no job does: its first process, and its watch with what keeps that."""
ADDRESSES = ("10.0.0.4", "10.0.0.5")
PROBE = """\
import json, os, sys
rank = os.environ["RANK"]
told = {name: value for name, value in os.environ.items() if name not in ("PATH", "_")}
print(json.dumps({"argv": sys.argv[1:], "cwd": os.getcwd(), "node": os.uname().nodename, "env": told}))
with open(os.path.join(os.environ["RANKLIFT_OUTPUT_DIR"], f"rank-{rank}.txt"), "w") as file:
    file.write(rank)
"""
FAILING = """\
import os, sys, time
if os.environ["RANK"] == "2":
    print("loss is nan", flush=True)
    print("rank 2 gives up", file=sys.stderr)
    sys.exit(3)
time.sleep(3600)
"""


@pytest.fixture(scope="module")
def code(cluster: Workplace) -> Workplace:
    """The operator's repository holds scripts, and things that are not to be pushed."""
    (cluster.own / "src").mkdir()
    (cluster.own / "src" / "probe.py").write_text(PROBE)
    (cluster.own / "failing.py").write_text(FAILING)
    (cluster.own / "weights.bin").write_bytes(b"\0" * 1000)
    (cluster.own / "notes").mkdir()
    (cluster.own / "notes" / "idea.py").write_text("# none yet")
    cluster.fab("push", "--nodes", "0-1")
    return cluster


def launch(workplace: Workplace, *words: str, status: int = 0) -> tuple[str, Ran]:
    """A launch on the first two nodes, two processes each; its job's id and what was shown."""
    ran = workplace.fab(
        "launch." + words[0], *words[1:], "--nodes", "0-1", "--nproc-per-node", "2", status=status
    )
    (job,) = set(re.findall(r"^job (\S+) STARTING$", ran.err, re.MULTILINE))
    return job, ran


def reports(ran: Ran) -> dict[int, dict[str, Any]]:
    """What each rank printed, and the node that stood in front of the line."""
    found = {}
    for rank, node, text in re.findall(r"^\[(\d+) (\S+)\] (\{.*)$", ran.out, re.MULTILINE):
        found[int(rank)] = {"shown": node, **json.loads(text)}
    return found


def processes(workplace: Workplace) -> set[str]:
    """Command lines on the first two nodes, without those of sshd and of the question itself."""
    answers = workplace.fab("exec", "ps -ww -e -o args=", "--nodes", "0-1", "--json").json()
    lines = {line.strip() for answer in answers.values() for line in answer["stdout"].splitlines()}
    return {line for line in lines if not re.match(r"sshd(-session)?:|bash -c ps |ps -ww ", line)}


def test_wait_and_status_show_every_node_with_the_port_that_azure_gave_it(cluster: Workplace) -> None:
    waited = cluster.fab("wait", "--json").json()["nodes"][:2]
    assert [(node["name"], node["private_ip"]) for node in waited] == list(zip(NODES, ADDRESSES, strict=True))
    rows = cluster.fab("status", "--json").json()[:2]
    for row, name, address in zip(rows, NODES, ADDRESSES, strict=True):
        assert (row["name"], row["private_ip"], row["slots"]) == (name, address, 8)
        assert (row["size"], row["state"], row["ssh"]) == ("Standard_ND40rs_v2", "running", "yes")
    assert {row["address"] for row in rows} == {f"{node['host']}:{node['port']}" for node in waited}
    shown = cluster.fab("status").out
    assert all(name in shown for name in NODES)


def test_exec_reaches_the_very_nodes_it_names_and_merges_what_is_equal(cluster: Workplace) -> None:
    assert cluster.fab("exec", "uname -s", "--nodes", "0-1").out == "node[000000-000001]\n  Linux\n"
    assert cluster.fab("exec", "uname -n", "--nodes", "1").out == "node000001\n"
    line = 'uname -n; hostname -I | xargs; exit "$(uname -n | tail -c 2)"'
    assert cluster.fab("exec", line, "--nodes", "0-1", status=1).out == (
        "node000000\n  node000000\n  10.0.0.4\nnode000001: exit status 1\n  node000001\n  10.0.0.5\n"
    )


def test_a_push_leaves_out_what_is_ignored_and_moves_nothing_the_second_time(code: Workplace) -> None:
    again = code.fab("push", "--nodes", "0-1", "--json").json()
    assert (again["bytes_sent"], again["results"]) == (0, {NODES[0]: None, NODES[1]: None})
    find = f"cd ~/.ranklift/snapshots/{again['snapshot']} && find . -type f | sort"
    files = "".join(
        f"  ./{name}\n"
        for name in (".gitignore", ".ranklift-ignore", "fabfile.py", "failing.py", "src/probe.py")
    )
    assert code.fab("exec", find, "--nodes", "0-1").out == f"node[000000-000001]\n{files}"


@pytest.mark.parametrize("kind", ["mpi", "torch"])
def test_ranks_have_their_numbers_their_variables_their_arguments_and_the_code(
    code: Workplace, kind: str
) -> None:
    job, ran = launch(code, kind, "src/probe.py --name 'a b' --rank $RANK", "--env", "NOTE=two words, $HOME")
    result = reports(ran)
    assert sorted(result) == [0, 1, 2, 3]
    for rank, report in result.items():
        node, local = divmod(rank, 2)
        env = report["env"]
        assert (report["shown"], report["node"]) == (NODES[node], NODES[node])
        assert report["argv"] == ["--name", "a b", "--rank", str(rank)]
        assert report["cwd"] == f"/home/azureuser/.ranklift/jobs/{report['env']['RANKLIFT_JOB_ID']}/work"
        expected = {
            "RANK": str(rank),
            "WORLD_SIZE": "4",
            "LOCAL_RANK": str(local),
            "LOCAL_WORLD_SIZE": "2",
            "NODE_RANK": str(node),
            "MASTER_ADDR": ADDRESSES[0],
            "MASTER_PORT": "6105",
            "AZ_BATCH_HOST_LIST": ",".join(ADDRESSES),
            "AZ_BATCH_NODE_LIST": ";".join(ADDRESSES),
            "AZ_BATCH_MASTER_NODE": f"{ADDRESSES[0]}:6105",
            "AZ_BATCH_IS_CURRENT_NODE_MASTER": "true" if node == 0 else "false",
            "AZ_BATCHAI_MPI_MASTER_NODE": ADDRESSES[0],
            "AZ_BATCHAI_PYTORCH_INIT_METHOD": f"tcp://{ADDRESSES[0]}:6105",
            "AZ_BATCHAI_TASK_INDEX": str(rank),
            "AZUREML_NODE_COUNT": "2",
            "AZUREML_RUN_ID": job,
            "RANKLIFT_JOB_ID": job,
            "NOTE": "two words, $HOME",
        }
        assert {name: env.get(name) for name in expected} == expected
        mpi = {"OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": "4"}
        if kind == "mpi":
            assert {name: env.get(name) for name in mpi} == mpi
        else:
            assert [name for name in env if name.startswith(("OMPI_", "PMIX_"))] == []
    assert f"job {job} SUCCEEDED" in ran.err
    assert processes(code) == OWN


def test_outputs_and_logs_of_every_rank_are_collected_and_shown(code: Workplace) -> None:
    job, ran = launch(code, "torch", "src/probe.py", "--name", "keep")
    collected = code.fab("collect", job, "--json").json()
    assert set(collected["results"]) == set(NODES)
    folder = code.own / "results" / job
    outputs = {path.name: path.read_text() for path in folder.rglob("rank-*.txt")}
    assert outputs == {f"rank-{rank}.txt": str(rank) for rank in range(4)}
    logs = {path.name: path.read_text() for path in folder.rglob("rank-*.log")}
    assert sorted(logs) == [f"rank-{rank}.log" for rank in range(4)]
    lines = dict(re.findall(r"^\[(\d) \S+\] (.*)$", ran.out, re.MULTILINE))
    assert {f"rank-{rank}.log": f"{line}\n" for rank, line in lines.items()} == logs
    assert code.fab("logs", job, "--rank", "2").out == f"[2 node000001] {lines['2']}\n"
    assert sorted(code.fab("logs", job).out.splitlines()) == sorted(ran.out.splitlines())
    node_1 = code.fab("logs", job, "--node", "1", "--since", "1h", "--grep", "RANK").out.splitlines()
    assert sorted(node_1) == [f"[{rank} node000001] {lines[rank]}" for rank in "23"]
    assert len(code.fab("logs", "-f", job, "--rank", "0-3", "--tail", "2").out.splitlines()) == 2
    rows = {row["job"]: row for row in code.fab("jobs", "--nodes", "0-1", "--json").json()}
    assert (rows[job]["state"], rows[job]["exit_status"], rows[job]["ranks"]) == ("SUCCEEDED", 0, 4)


@pytest.mark.parametrize("kind", ["mpi", "torch"])
def test_a_failing_rank_ends_the_job_is_named_with_its_last_lines_and_gives_the_exit_status(
    code: Workplace, kind: str
) -> None:
    job, ran = launch(code, kind, "failing.py", status=3)
    assert "last lines of rank 2 on node000001:\n  loss is nan\n  rank 2 gives up\n" in ran.err
    assert f"error: job {job} FAILED: rank 2 on node000001 ended with exit status 3" in ran.err
    assert processes(code) == OWN
    followed = code.fab("logs", "-f", job, status=3)
    assert "[2 node000001] loss is nan\n" in followed.out
    shown = code.fab("jobs", "--nodes", "0-1").out
    (row,) = (line.split() for line in shown.splitlines() if job in line)
    assert (row[1], row[-1]) == ("FAILED", "3")


def test_a_job_goes_on_without_its_operator_until_it_is_cancelled(code: Workplace) -> None:
    words = ("failing.py", "--nodes", "0", "--nproc-per-node", "2", "--detach")
    job = code.fab("launch.torch", *words).out.strip()
    assert any("failing.py" in line for line in processes(code))
    assert code.fab("cancel", job).out.startswith(f"job {job} CANCELLED")
    assert processes(code) == OWN


def test_free_nodes_are_taken_first_and_jobs_go_by_parts_of_their_ids(code: Workplace) -> None:
    words = ("failing.py", "--nodes", "any:1", "--nproc-per-node", "2", "--detach")
    first, second = (code.fab("launch.torch", *words, "--name", name) for name in ("left", "right"))
    assert "any:1: node000000\n" in first.err
    assert "any:1: node000001\n" in second.err
    left, right = first.out.strip(), second.out.strip()
    shown = code.fab("job", "left")
    assert (shown.err, shown.out.startswith(f"job       {left}\n")) == ("", True)
    assert code.fab("job", right.rpartition("-")[2], "--json").json()["state"]["nodes"] == ["node000001"]
    assert code.fab("logs", "--node", "node[000000-000001]", status=2).err.startswith(f"job {right}\n")
    refused = code.fab("cancel", status=2)
    assert f"give it, as in `fab cancel {right}`, or --yes" in refused.err
    assert code.fab("cancel", "--yes").out.startswith(f"job {right} CANCELLED")
    assert code.fab("cancel", left[:-2]).out.startswith(f"job {left} CANCELLED")
    assert "no job that runs or waits" in code.fab("cancel", "--yes", status=2).err
    assert processes(code) == OWN


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["launch.mpi", "nope.py"], "script = 'nope.py': is not in the pushed code"),
        (["launch.torch", "notes/idea.py"], "script = 'notes/idea.py': is not in the pushed code"),
        (
            ["launch.torch", "failing.py", "--nproc-per-node", "9"],
            "--nproc-per-node = 9: node000000 has 8 slots",
        ),
        (
            ["launch.mpi", "failing.py", "--nodes", "0,40"],
            "--nodes = '0,40': 40 is not a node of stack rehearsal",
        ),
    ],
)
def test_a_launch_that_cannot_work_is_refused_before_anything_is_made(
    code: Workplace, words: list[str], problem: str
) -> None:
    count = "ls ~/.ranklift/jobs ~/.ranklift/snapshots | wc -l"
    before = code.fab("exec", count, "--nodes", "0-1").out
    refused = code.fab(*words, status=2)
    assert refused.err.startswith("error: ")
    assert problem in refused.err
    assert refused.out == ""
    assert code.fab("exec", count, "--nodes", "0-1").out == before


def test_plain_ssh_works_with_what_is_kept_of_the_stack(cluster: Workplace) -> None:
    settings = cluster.project / ".ranklift" / "rehearsal" / "ssh_config"
    result = subprocess.run(
        ["ssh", "-F", settings, "node000001", "uname -n; ssh node000000 uname -n"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
        timeout=LIMIT_S,
    )
    assert result.stdout == "node000001\nnode000000\n"
