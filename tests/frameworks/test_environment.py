"""Exactly what ranks see on three nodes with two processes each (guide G4, G5, G11)."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.e2e.workplace import Workplace

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(300)]

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
    ((_, told),) = answer.items()
    found: dict[str, str] = json.loads(told["stdout"])
    return found


@pytest.mark.parametrize("kind", ["mpi", "pytorch", "tensorflow"])
def test_ranks_see_exactly_these_variables(cluster: Workplace, sessions: dict[str, str], kind: str) -> None:
    ran = cluster.fab("launch", str(HERE / "environment" / f"{kind}.yml"))
    (job,) = set(re.findall(r"^job (\S+) STARTING$", ran.err, re.MULTILINE))
    parts = []
    for rank, line in sorted(re.findall(r"^\[(\d+) \S+\] (\{.*)$", ran.out, re.MULTILINE)):
        told = json.loads(line)
        parts.append(f"rank {rank} on {told['node']}")
        for name, value in sorted(told["env"].items()):
            if name in SHELLS_OWN or name.startswith(MPIS_OWN) or sessions.get(name) == value:
                continue
            text = re.sub(r"snapshots/[0-9a-f]{16}", "snapshots/<snapshot>", value.replace(job, "<job>"))
            parts.append(f"  {name}={text.replace(sessions['PATH'], '<path>')}")
    shown = "\n".join([*parts, ""])
    assert shown == (HERE / "golden" / f"environment-{kind}.txt").read_text()
