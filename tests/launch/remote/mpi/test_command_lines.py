"""What each MPI is asked, against golden files and rule by rule."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from launch.remote.mpi.base import CommandLine, Start
from launch.remote.mpi.hostfile import common_network, hostfile_text, machinefile_text
from launch.remote.mpi.registry import command_lines

GOLDEN = Path(__file__).parent / "golden"
NAMES = ("openmpi-4", "openmpi-5", "mpich", "intelmpi")
UNEVEN = [("node000000", 2), ("node000001", 0), ("node00000a", 3)]


def lines(hosts: int = 8, flavour: str | None = None, extra: tuple[str, ...] = ()) -> dict[str, CommandLine]:
    start = Start(hosts * 8, hosts, "10.0.0.0/25", ".ranklift/remote/0123456789ab", extra)
    return command_lines(start, flavour)


def golden(name: str, line: CommandLine) -> None:
    """Compares with the file; WRITE_GOLDEN=1 writes it instead, for a reader to check in a diff."""
    text = "".join(f"{word}\n" for word in line.words)
    path = GOLDEN / name
    if os.environ.get("WRITE_GOLDEN"):
        path.write_text(text)
    assert path.read_text() == text


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("hosts", [8, 64])
def test_the_whole_command_line(name: str, hosts: int) -> None:
    golden(f"{name}-{hosts}-hosts.txt", lines(hosts)[name])


def test_intel_mpi_takes_ucx_over_infiniband_and_passes_that_on_to_ranks() -> None:
    start = Start(8, 2, "10.0.0.0/25", ".ranklift/remote/0123456789ab", infiniband=True)
    line = command_lines(start, "intelmpi")["intelmpi"]
    assert line.env["FI_PROVIDER"] == "mlx"
    assert line.argv[line.argv.index("-genvlist") + 1] == "FI_PROVIDER,RANKLIFT_SUPERVISOR,RANKLIFT_TOKEN"
    assert "FI_PROVIDER" not in lines(2)["intelmpi"].env
    assert "FI_PROVIDER" not in command_lines(start, "mpich")["mpich"].env


@pytest.mark.parametrize(
    ("flavour", "names"),
    [
        (None, NAMES),
        ("openmpi", ("openmpi-4", "openmpi-5")),
        ("mpich", ("mpich",)),
        ("intelmpi", ("intelmpi",)),
    ],
    ids=str,
)
def test_a_job_that_names_its_mpi_has_no_other_ones_line(flavour: str | None, names: tuple[str, ...]) -> None:
    assert tuple(lines(flavour=flavour)) == names


@pytest.mark.parametrize("name", NAMES)
def test_the_users_arguments_are_the_last_before_the_program(name: str) -> None:
    plain, with_extra = (lines(extra=extra)[name].argv for extra in ((), ("--mca", "pml", "a b")))
    assert with_extra == [*plain[:-3], "--mca", "pml", "a b", *plain[-3:]]
    assert plain[-3:-1] == ["sh", "-c"]


@pytest.mark.parametrize("name", NAMES)
def test_nothing_secret_and_no_ssh_that_may_ask_is_started(name: str) -> None:
    line = lines()[name]
    assert "RANKLIFT_TOKEN" in " ".join(line.argv)
    assert not any("RANKLIFT_TOKEN=" in word for word in line.words)
    assert "BatchMode=yes" in shlex.join(line.words)


def test_open_mpis_tree_is_left_out_where_it_is_known_to_hang() -> None:
    for count, flat in ((63, False), (64, True), (65, True), (130, True)):
        for name in ("openmpi-4", "openmpi-5"):
            assert any("no_tree_spawn" in word for word in lines(count)[name].argv) is flat


def test_what_is_for_mpirun_itself_is_shown_before_it_as_it_would_be_typed() -> None:
    assert CommandLine(["mpirun"], {"A": "1", "B": "2 3"}).words == ["env", "A=1", "B=2 3", "mpirun"]
    assert CommandLine(["mpirun"]).words == ["mpirun"]


def test_nodes_without_ranks_are_in_neither_file() -> None:
    assert hostfile_text(UNEVEN) == "node000000 slots=2\nnode00000a slots=3\n"
    assert machinefile_text(UNEVEN) == "node000000:2\nnode00000a:3\n"


@pytest.mark.parametrize(
    ("addresses", "network"),
    [
        (["10.0.0.4"], "10.0.0.0/24"),
        (["10.0.0.4", "10.0.0.250"], "10.0.0.0/24"),
        (["10.0.0.4", "10.0.1.3"], "10.0.0.0/23"),
        (["10.0.0.4", "10.0.15.3"], "10.0.0.0/20"),
    ],
)
def test_the_network_open_mpi_is_bound_to_holds_every_node(addresses: list[str], network: str) -> None:
    assert common_network(addresses) == network
