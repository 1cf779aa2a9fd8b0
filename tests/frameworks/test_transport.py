"""The proof of transport with real libraries over the rehearsal's bridge, which is TCP: each is refused on
nodes whose size promises InfiniBand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.workplace import ROOT, Workplace

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(300)]

TRAIN = "print('trains', flush=True)\n"
MPIS = {
    "openmpi-4": ("openmpi", ROOT / ".venv-node", "Open MPI"),
    "openmpi-5": ("openmpi", ROOT / ".venv-openmpi", "Open MPI"),
    "mpich": ("mpich", ROOT / ".venv-mpich", "UCX"),
    "intelmpi": ("intelmpi", ROOT / ".venv-impi", "libfabric"),
}
"""By MPI, its flavour, its environment and the library that prints what it uses."""


@pytest.fixture(scope="module")
def code(cluster: Workplace) -> Iterator[Path]:
    """A folder with a script that only prints."""
    folder = cluster.own / "transport"
    folder.mkdir()
    (folder / "train.py").write_text(TRAIN)
    yield folder
    assert "ranklift-probe" not in cluster.fab("exec", "ps -ww -e -o args=").out


def refused(cluster: Workplace, path: Path) -> dict[str, object]:
    """The result of the probe of a job that it refuses before any rank starts."""
    ran = cluster.fab("launch", str(path), "--probe", status=255)
    assert "trains" not in ran.out
    assert "promises InfiniBand between nodes: to run without it, launch with --no-probe" in ran.err
    shown = cluster.fab("job", "--json").json()
    assert (shown["state"]["state"], shown["ends"]) == ("FAILED", [])
    (found,) = [event["fields"] for event in shown["events"] if event["event"] == "probe"]
    assert (found["source"], found["verdict"]) == ("probe", "refused")
    assert found["seconds"] < 60
    return dict(found)


@pytest.mark.parametrize("name", MPIS)
def test_an_mpi_over_tcp_is_refused_with_its_own_line(cluster: Workplace, code: Path, name: str) -> None:
    flavour, python, library = MPIS[name]
    assert (python / "bin/python").exists(), "run `make frameworks` first"
    path = code / f"{name}.yml"
    job = {
        "command": "python train.py",
        "code": ".",
        "distribution": {"type": "mpi", "process_count_per_instance": 2},
        "environment_variables": {"OMPI_MCA_mpi_yield_when_idle": "1", "I_MPI_THREAD_YIELD": "3"},
        "ranklift": {"mpi": flavour, "python": str(python), "nodes": "0-2"},
    }
    path.write_text(json.dumps(job))
    found = refused(cluster, path)
    assert found["transport"] == f"TCP ({library})"
    assert cluster.fab("launch", str(path), "--no-probe").out.count("trains") == 6


def test_torch_over_gloo_is_reported_as_tcp(cluster: Workplace, code: Path) -> None:
    path = code / "torch.yml"
    job = {
        "command": "python train.py",
        "code": ".",
        "distribution": {"type": "pytorch", "process_count_per_instance": 1},
        "ranklift": {"python": str(ROOT / ".venv-frameworks"), "nodes": "0-1"},
    }
    path.write_text(json.dumps(job))
    assert refused(cluster, path)["transport"] == "TCP (Gloo)"


def test_a_rehearsal_does_without_the_automatic_probe_and_says_so_once(
    cluster: Workplace, code: Path
) -> None:
    path = code / "plain.yml"
    job = {
        "command": "python3 train.py",
        "code": ".",
        "distribution": {"type": "pytorch", "process_count_per_instance": 1},
        "ranklift": {"nodes": "2-3"},
    }
    path.write_text(json.dumps(job))
    words = "probe: omitted: rehearsed nodes have no InfiniBand"
    cluster.fab("exec", "rm -f ~/.ranklift/probes.json", "--nodes", "2")  # what jobs of other tests proved
    for is_first in (True, False):
        assert cluster.fab("launch", str(path)).out.count("trains") == 2
        assert (words in cluster.fab("job").out) is is_first
