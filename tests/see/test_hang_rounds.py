"""Jobs of 16 and 64 ranks that hang in every way, by gloo and by MPI: the right rank, in 20 of 20."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.workplace import Workplace
from tests.see.hang_rounds import Rounds, playing
from tests.see.hang_script import WAYS

pytestmark = [pytest.mark.see, pytest.mark.timeout(3600)]

STACK = "rehearsal-hosts"
NODES = 4
JOBS = [(flavour, per_node) for flavour in ("gloo", "mpi") for per_node in (4, 16)]


@pytest.fixture(scope="module")
def hosts(workplace: Workplace) -> Iterator[Workplace]:
    """Four nodes with 44 slots each."""
    workplace.configure(STACK, vmSize="Standard_HC44rs", nodeCount=NODES)
    workplace.fab("up", "--stack", STACK)
    yield workplace
    workplace.fab("down", "--stack", STACK, "--yes")


@pytest.fixture(scope="module", params=JOBS, ids=lambda job: f"{job[0]}-{NODES * job[1]}")
def rounds(request: pytest.FixtureRequest, hosts: Workplace) -> Iterator[Rounds]:
    """A job whose ranks hang as they are ordered."""
    flavour, per_node = request.param
    with playing(hosts, STACK, flavour, NODES, per_node) as made:
        made.debug()
        yield made


@pytest.mark.parametrize("way", WAYS)
def test_the_rank_at_fault_is_the_named_one_in_20_of_20(rounds: Rounds, way: str, figures: list[str]) -> None:
    if way == "loader" and rounds.flavour == "mpi":
        pytest.skip("a DataLoader is torch's")
    rounds.show(way, figures)


@pytest.mark.parametrize("flavour", ["gloo", "mpi"])
def test_a_node_that_is_cut_off_is_named(hosts: Workplace, flavour: str) -> None:
    with playing(hosts, STACK, flavour, NODES, 4) as job:
        job.debug()
        found = job.cut_off(2)
    assert (found.kind, found.nodes_at_fault) == ("dead-network", ("node000002",)), found.verdict
    assert "node000002 is cut off or dead: nothing has come from there for " in found.verdict
