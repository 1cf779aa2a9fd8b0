"""Jobs whose transport is probed, as users launch them: nodes promise InfiniBand, and the bridge is TCP."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.workplace import Workplace

pytestmark = [pytest.mark.health, pytest.mark.timeout(300)]

NCCL = "n:7:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/Socket/0"


@pytest.fixture(scope="module")
def code(cluster: Workplace) -> Iterator[Workplace]:
    """The cluster, with a script that prints what NCCL would."""
    (cluster.own / "train.py").write_text(f"print('trains'); print({NCCL!r})\n")
    yield cluster
    assert "ranklift-probe" not in cluster.fab("exec", "ps -ww -e -o args=").out


def test_a_probe_refuses_what_mpi_does_over_tcp_and_no_probe_lets_it(code: Workplace) -> None:
    line = ["launch.mpi", "train.py", "--nproc-per-node", "2"]
    ran = code.fab(*line, "--probe", status=255)
    assert "trains" not in ran.out
    assert "Open MPI uses TCP between nodes: " in ran.err
    assert "Standard_ND40rs_v2 promises InfiniBand between nodes: to run without it, launch with" in ran.err
    shown = code.fab("job").out
    assert "transport TCP (Open MPI)\n" in shown
    assert "  probe: refused in " in shown
    ran = code.fab(*line, "--no-probe")
    assert (ran.out.count("trains"), "transport: " in ran.out) == (6, False)


def test_what_a_jobs_own_nccl_prints_contradicts_the_size(code: Workplace) -> None:
    ran = code.fab("launch.torch", "train.py")
    assert "transport: TCP (NCCL), but Standard_ND40rs_v2 promises InfiniBand: node00000" in ran.out
    assert ran.out.count("trains") == 3
    assert "transport TCP (NCCL), as its ranks print\n" in code.fab("job").out
