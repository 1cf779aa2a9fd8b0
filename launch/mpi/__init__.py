"""One command line for every MPI a job may meet; which of them it is, the head tells in the job's turn."""

from __future__ import annotations

from launch.mpi import intelmpi, mpich, openmpi
from launch.mpi.openmpi import FROM_HOSTS_ON_NO_TREE
from launch.mpi.start import CommandLine, Start, common_network

__all__ = ["FROM_HOSTS_ON_NO_TREE", "CommandLine", "Start", "command_lines", "common_network"]


def command_lines(start: Start, flavour: str | None) -> dict[str, CommandLine]:
    """Those of one flavour (``openmpi``, ``mpich``, ``intelmpi``), or of all when the job names none.

    >>> list(command_lines(Start(2, 1, "10.0.0.0/24", ".ranklift/remote/0123"), "openmpi"))
    ['openmpi-4', 'openmpi-5']
    """
    lines = {
        "openmpi-4": openmpi.command_line("4", start),
        "openmpi-5": openmpi.command_line("5", start),
        "mpich": mpich.command_line(start),
        "intelmpi": intelmpi.command_line(start),
    }
    return {name: line for name, line in lines.items() if flavour in (None, name.partition("-")[0])}
