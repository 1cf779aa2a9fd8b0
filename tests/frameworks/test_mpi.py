"""Every MPI over rehearsed nodes: what ranks see, that they reach each other, and how their jobs end."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.workplace import ROOT, Ran, Workplace

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(300)]

HEAD, NODES = "node000000", ("node000000", "node000001", "node000002")
ADDRESSES = ("10.0.0.4", "10.0.0.5", "10.0.0.6")
MPIS = {
    "openmpi-4": ("openmpi", ROOT / ".venv-node", "Open MPI v4.1"),
    "openmpi-5": ("openmpi", ROOT / ".venv-openmpi", "Open MPI v5.0"),
    "mpich": ("mpich", ROOT / ".venv-mpich", "MPICH"),
    "intelmpi": ("intelmpi", ROOT / ".venv-impi", "Intel(R) MPI Library"),
}
FLAVOURS = pytest.mark.parametrize("name", MPIS)
MPI4PY_TESTS = ROOT / ".venv-mpich/share/mpi4py-tests"
MPI4PY_MODULES = ("cco_obj", "p2p_obj", "op", "group", "status")
"""Collectives and point-to-point messages of any objects, reductions, groups: 206 tests in a few seconds. Of
the others some start processes of their own, and ranks that wait by polling share two processors here."""
SEE = """\
import json, os
from mpi4py import MPI

world = MPI.COMM_WORLD
told = {name: value for name, value in os.environ.items() if name.startswith(("OMPI_COMM_WORLD", "AZ_BATCH"))}
print(json.dumps({
    "rank": world.rank,
    "size": world.size,
    "node": os.uname().nodename,
    "all": world.allreduce(1 << world.rank),
    "next": world.sendrecv(world.rank, dest=(world.rank + 1) % world.size),
    "library": MPI.Get_library_version(),
    "token": "RANKLIFT_TOKEN" in os.environ,
    "env": told,
}))
"""
END = """\
import os, signal, subprocess, sys, time
from mpi4py import MPI

world, how = MPI.COMM_WORLD, sys.argv[1]
subprocess.Popen(["setsid", "sleep", "4711"])
world.barrier()
if how == "wait":
    print("up", flush=True)
    time.sleep(600)
if world.rank == 3:
    print("gives up", flush=True)
    if how == "abort":
        world.Abort(7)
        time.sleep(600)
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    os._exit(5)
world.barrier()
"""


@pytest.fixture(scope="module")
def code(cluster: Workplace) -> Iterator[Workplace]:
    """A cluster to whose nodes the scripts are pushed."""
    folder = cluster.own / "mpi"
    folder.mkdir()
    (folder / "see.py").write_text(SEE)
    (folder / "end.py").write_text(END)
    yield cluster
    assert "sleep 4711" not in cluster.fab("exec", "ps -ww -e -o args=").out


def job(
    cluster: Workplace, name: str, command: str, *, nodes: str = "0-2", processes: int = 2, **own: Any
) -> list[str]:
    """The words that launch a job under the MPI of that name."""
    flavour, python, _ = MPIS[name]
    assert (python / "bin/python").exists(), "run `make frameworks` first"
    keys = {"mpi": flavour, "python": str(python), "nodes": nodes, **own}
    text = {
        "command": command,
        "code": ".",
        "display_name": f"mpi-{name}",
        "distribution": {"type": "mpi", "process_count_per_instance": processes},
        "environment_variables": {"OMPI_MCA_mpi_yield_when_idle": "1", "I_MPI_THREAD_YIELD": "3"},
        "ranklift": keys,
    }
    path = cluster.own / "mpi" / f"{name}.yml"
    path.write_text(json.dumps(text))  # JSON is YAML too
    return ["launch", str(path)]


def lines(ran: Ran) -> dict[int, list[str]]:
    """What each rank printed."""
    found: dict[int, list[str]] = {}
    for rank, text in re.findall(r"^\[(\d+) \S+\] (.*)$", ran.out, re.MULTILINE):
        found.setdefault(int(rank), []).append(text)
    return found


@FLAVOURS
def test_ranks_take_part_in_one_world_and_see_the_guides_variables(code: Workplace, name: str) -> None:
    ran = code.fab(*job(code, name, "python see.py"))
    result = {rank: json.loads(text[-1]) for rank, text in lines(ran).items()}
    assert sorted(result) == list(range(6))
    for rank, seen in result.items():
        assert (seen["rank"], seen["size"], seen["node"]) == (rank, 6, NODES[rank // 2])
        assert (seen["all"], seen["next"]) == (0b111111, (rank - 1) % 6)
        assert MPIS[name][2] in seen["library"]
        assert not seen["token"]
        expected = {
            "OMPI_COMM_WORLD_RANK": str(rank),
            "OMPI_COMM_WORLD_SIZE": "6",
            "OMPI_COMM_WORLD_LOCAL_RANK": str(rank % 2),
            "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
            "AZ_BATCH_MASTER_NODE": f"{ADDRESSES[0]}:6105",
            "AZ_BATCHAI_MPI_MASTER_NODE": ADDRESSES[0],
            "AZ_BATCH_HOST_LIST": ",".join(ADDRESSES),
        }
        assert {key: seen["env"].get(key) for key in expected} == expected


@FLAVOURS
@pytest.mark.parametrize(("how", "status"), [("fails", 5), ("killed", 137), ("abort", 7)])
def test_the_first_rank_that_ends_badly_ends_the_job_with_its_status(
    code: Workplace, name: str, how: str, status: int
) -> None:
    began = time.monotonic()
    ran = code.fab(*job(code, name, f"python end.py {how}"), status=status)
    assert "rank 3 on node000001" in ran.err
    assert "gives up" in lines(ran)[3]
    assert time.monotonic() - began < 60


@FLAVOURS
def test_a_job_whose_mpirun_is_killed_ends_and_so_do_its_ranks(code: Workplace, name: str) -> None:
    with code.begin(*job(code, name, "python end.py wait")) as process:
        shown = _read_until(process, "up")
        kill = "pkill -KILL -u azureuser '^(mpirun|prterun|mpiexec.hydra)$'"
        code.fab("exec", kill, "--nodes", "0")
        rest = process.stdout.read() if process.stdout else ""
        assert process.wait(60) == 128 + 9, shown + rest
    assert re.search(r"mpirun (was ended by|.* as a shell does after) signal 9 \(SIGKILL\)", rest)


@FLAVOURS
def test_a_job_can_be_cancelled(code: Workplace, name: str) -> None:
    with code.begin(*job(code, name, "python end.py wait")) as process:
        shown = _read_until(process, "up")
        (identifier,) = set(re.findall(r"^job (\S+) STARTING", shown, re.MULTILINE))
        assert "CANCELLED" in code.fab("cancel", identifier).out
        assert process.wait(60) == 130


def _read_until(process: subprocess.Popen[str], word: str) -> str:
    shown = ""
    assert process.stdout is not None
    for line in process.stdout:
        shown += line
        if re.search(rf"\] {word}$", line):
            return shown
    raise AssertionError(shown)


@pytest.mark.parametrize("name", ["openmpi-5", "mpich", "intelmpi"])
def test_nodes_without_the_heads_mpi_are_named_before_any_rank_starts(code: Workplace, name: str) -> None:
    environment = MPIS[name][1]
    # A place of each node's own: two nodes have the whole environment there, two its Python alone.
    own = f"/tmp/{environment.name}"
    code.fab("exec", f"cp -r {environment}/. {own}", "--nodes", "0-1")
    code.fab("exec", f"mkdir -p {own}/bin; ln -s {environment}/bin/python {own}/bin", "--nodes", "2-3")
    try:
        ran = code.fab(*job(code, name, "python see.py", nodes="0-3", python=own), status=255)
    finally:
        code.fab("exec", f"rm -rf {own}")
    assert "no rank was started: node[000002-000003]: mpirun is Open MPI 4.1" in ran.err
    assert lines(ran) == {}


@pytest.mark.parametrize("name", ["mpich", "intelmpi"])
def test_an_mpi_that_the_head_has_not_is_named(code: Workplace, name: str) -> None:
    ran = code.fab(*job(code, name, "python see.py", python=str(ROOT / ".venv-openmpi")), status=127)
    title = "MPICH" if name == "mpich" else "Intel MPI"
    assert f"{HEAD}, the head: mpirun is Open MPI 5.0" in ran.err
    assert f"; {title} is required" in ran.err


@FLAVOURS
def test_further_arguments_for_mpirun_come_last_and_count(code: Workplace, name: str) -> None:
    more = ["-x" if name.startswith("openmpi") else "-genv", "MINE"]
    more = [more[0], "MINE=1"] if name.startswith("openmpi") else [*more, "1"]
    ran = code.fab(*job(code, name, "echo $MINE", nodes="0-1", processes=1, mpirun_args=more))
    assert lines(ran) == {0: ["1"], 1: ["1"]}


@pytest.mark.parametrize(("benchmark", "nodes"), [("PingPong", "0-1"), ("Allreduce", "0-3")])
def test_intels_benchmark_measures_from_node_to_node(code: Workplace, benchmark: str, nodes: str) -> None:
    command = f"IMB-MPI1 {benchmark} -iter 20 -npmin 4 -msglog 3:10 -time 1"
    ran = code.fab(*job(code, "intelmpi", command, nodes=nodes, processes=1))
    rows = [line.split() for line in lines(ran)[0] if re.match(r"\s*\d+\s+\d+\s+[\d.]+", line)]
    assert [int(row[0]) for row in rows] == [0, *(2**power for power in range(3, 11))]
    assert all(float(row[2]) > 0 for row in rows)
    if benchmark == "PingPong":
        assert float(rows[-1][2]) < 100_000, "a message took more than 0.1 s"


@FLAVOURS
def test_mpi4pys_own_tests_pass_over_four_nodes(code: Workplace, name: str) -> None:
    assert (MPI4PY_TESTS / "main.py").exists(), "run `make frameworks` first"
    pattern = f"test_({'|'.join(MPI4PY_MODULES)})\\.py"
    command = f"cd {MPI4PY_TESTS} && exec python -B main.py --quiet --failfast -i '{pattern}'"
    ran = code.fab(*job(code, name, command, nodes="0-3", processes=1))
    for rank, text in lines(ran).items():
        assert _passed(text) > 150, (rank, text)
    assert len(lines(ran)) == 4


def _passed(text: Sequence[str]) -> int:
    whole = "\n".join(text)
    found = re.search(r"Ran (\d+) tests", whole)
    return int(found[1]) if found and re.search(r"^OK", whole, re.MULTILINE) else 0


def test_every_environment_is_where_the_nodes_see_it() -> None:
    missing = [str(Path(python).name) for _, python, _ in MPIS.values() if not (python / "bin").exists()]
    assert missing == [], "run `make frameworks` first"
