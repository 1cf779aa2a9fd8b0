"""Exactly what ranks see on three nodes with two processes each (guide G4, G5, G11).

Much of it needs no framework and is part of `make test`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.workplace import ROOT, Workplace
from tests.launch.standin import open_mpi

pytestmark = pytest.mark.timeout(300)

HERE = Path(__file__).parent
MPIS_OWN = (
    "OMPI_MCA_",
    "PMIX_",
    "ORTE_",
    "OMPI_ARGV",
    "OMPI_COMMAND",
    "OMPI_FILE_LOCATION",
    "OMPI_FIRST_RANKS",
    "HFI_",
    "IPATH_",
)
"""Beginnings of variables in which Open MPI speaks to itself."""
SHELLS_OWN = ("PWD", "SHLVL", "OLDPWD", "_", "SSH_CLIENT", "SSH_CONNECTION")


@pytest.fixture(scope="module")
def sessions(cluster: Workplace) -> dict[str, str]:
    """What any session on a node sees, with or without a job."""
    line = "import json, os; print(json.dumps(dict(os.environ)))"
    answer = cluster.fab("exec", f"python3 -c '{line}'", "--nodes", "0", "--json").json()
    ((_, result),) = answer.items()
    found: dict[str, str] = json.loads(result["stdout"])
    return found


@pytest.mark.parametrize("kind", ["mpi", "pytorch", "tensorflow"])
def test_ranks_see_exactly_these_variables(cluster: Workplace, sessions: dict[str, str], kind: str) -> None:
    ran = cluster.fab("launch", str(HERE / "environment" / f"{kind}.yml"))
    (job,) = set(re.findall(r"^job (\S+) STARTING$", ran.err, re.MULTILINE))
    parts = []
    for rank, line in sorted(re.findall(r"^\[(\d+) \S+\] (\{.*)$", ran.out, re.MULTILINE)):
        result = json.loads(line)
        parts.append(f"rank {rank} on {result['node']}")
        for name, value in sorted(result["env"].items()):
            if name in SHELLS_OWN or name.startswith(MPIS_OWN) or sessions.get(name) == value:
                continue
            text = re.sub(r"snapshots/[0-9a-f]{16}", "snapshots/<snapshot>", value.replace(job, "<job>"))
            parts.append(f"  {name}={text.replace(sessions['PATH'], '<path>')}")
    shown = "\n".join([*parts, ""])
    if kind == "mpi":  # each version adds variables of its own
        kind = open_mpi().name
        shown = shown.replace(f"  OMPI_VERSION={open_mpi().version}\n", "  OMPI_VERSION=<version>\n")
    assert shown == (HERE / "golden" / f"environment-{kind}.txt").read_text()


UNEVEN = (2, 1, 2)
WHERE = """\
import json, os, socket
names = {names}
print(json.dumps([int(os.environ[name]) for name in names] + [socket.gethostname()]))
"""


@pytest.fixture(scope="module")
def uneven(cluster: Workplace) -> Iterator[Workplace]:
    """The cluster with two, one and two slots on its first nodes, which one size of VM never has."""
    saved = cluster.project / ".ranklift" / "rehearsal" / "inventory.json"
    before = saved.read_text()
    inventory = json.loads(before)
    for node, slots in zip(inventory["nodes"], UNEVEN, strict=False):
        node["slots"] = slots
    saved.write_text(json.dumps(inventory))
    try:
        yield cluster
    finally:
        saved.write_text(before)


def under(environment: str) -> tuple[str, ...]:
    return ("launch.mpi", "--python", str(ROOT / environment))


@pytest.mark.parametrize(
    "how",
    [
        pytest.param(("launch.torch",), id="torch"),
        pytest.param(("launch.mpi",), id="openmpi4"),
        pytest.param(under(".venv-openmpi"), id="openmpi5", marks=pytest.mark.frameworks),
        pytest.param(under(".venv-mpich"), id="mpich", marks=pytest.mark.frameworks),
        pytest.param(under(".venv-impi"), id="intelmpi", marks=pytest.mark.frameworks),
    ],
)
def test_ranks_on_uneven_nodes_know_their_place(uneven: Workplace, how: tuple[str, ...]) -> None:
    names = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"]
    if how[0] == "launch.mpi":
        names = [f"OMPI_COMM_WORLD_{name}" for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")]
    (uneven.own / "where.py").write_text(WHERE.format(names=[*names, "NODE_RANK"]))
    task, *options = how
    ran = uneven.fab(task, "where.py", "--nodes", "0-2", "--nproc-per-node", "auto", *options)
    result = sorted(json.loads(line) for line in re.findall(r"^\[\d+ \S+\] (\[.*)$", ran.out, re.MULTILINE))
    assert result == [
        [0, 5, 0, 2, 0, "node000000"],
        [1, 5, 1, 2, 0, "node000000"],
        [2, 5, 0, 1, 1, "node000001"],
        [3, 5, 0, 2, 2, "node000002"],
        [4, 5, 1, 2, 2, "node000002"],
    ]
