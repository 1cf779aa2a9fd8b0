"""The MPIs that are known, and what is needed of all of them."""

from __future__ import annotations

from launch.remote.mpi.base import CommandLine, Mpi, Start
from launch.remote.mpi.intelmpi import IntelMpi
from launch.remote.mpi.mpich import Mpich
from launch.remote.mpi.openmpi import OpenMpi

__all__ = ["MPIS", "command_lines", "mpi_of", "process_prefixes", "runner_facts"]

MPIS: dict[str, Mpi] = {mpi.flavour: mpi for mpi in (OpenMpi(), Mpich(), IntelMpi())}


def mpi_of(name: str) -> Mpi | None:
    """Return the MPI of a plan's command line; None for an unknown MPI.

    >>> mpi_of("openmpi-5").title, mpi_of("other")
    ('Open MPI', None)
    """
    return next((mpi for mpi in MPIS.values() if name in mpi.names), None)


def command_lines(start: Start, flavour: str | None) -> dict[str, CommandLine]:
    """Return the command lines of one flavour, or of all when the job names none; the head chooses one.

    >>> from launch.remote.mpi.base import Start
    >>> list(command_lines(Start(2, 1, "10.0.0.0/24", ".ranklift/remote/0123"), "openmpi"))
    ['openmpi-4', 'openmpi-5']
    """
    wanted = [mpi for mpi in MPIS.values() if flavour in (None, mpi.flavour)]
    return {name: mpi.command_line(name, start) for mpi in wanted for name in mpi.names}


def process_prefixes() -> tuple[str, ...]:
    """Return the beginnings of variables by which some MPI marks a process as a rank."""
    return tuple(sorted({prefix for mpi in MPIS.values() for prefix in mpi.process_prefixes}))


def runner_facts(mpi: Mpi) -> str:
    """Return what each rank's runner must know of its MPI, as the value of a variable: it imports no MPI.

    >>> runner_facts(MPIS["mpich"])
    'PMI_RANK,PMI_SIZE,MPI_LOCALRANKID,MPI_LOCALNRANKS HYDI_,HYDRA_,I_MPI_HYDRA_,OMPI_,PMIX_,PMI_,PRTE_'
    """
    launchers = {prefix for one in MPIS.values() for prefix in one.launcher_prefixes}
    prefixes = sorted({*process_prefixes(), *launchers})
    return f"{','.join(mpi.rank_variables)} {','.join(prefixes)}"
