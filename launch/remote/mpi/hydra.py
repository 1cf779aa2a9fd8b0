"""What MPICH and Intel MPI share: hydra starts the ranks of both."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from launch.remote.mpi.base import Mpi

if TYPE_CHECKING:
    from launch.remote.mpi.base import Start

__all__ = ["Hydra"]


class Hydra(Mpi):
    """An MPI whose ranks hydra starts."""

    library = "libmpi.so.12"
    mpirun_prefixes: tuple[str, ...] = ("HYDRA_", "MPIEXEC_")
    process_prefixes = ("PMI_",)
    launcher_prefixes: tuple[str, ...] = ("HYDRA_", "HYDI_")
    rank_variables = ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS")
    kills_at_once = True
    abort = re.compile(rb"Abort\(\d+\) on node \d+ \(rank ")
    peer_lost = re.compile(rb"Fatal error in (internal|PMPI)_")
    node_lost = (re.compile(r"connection to proxy \d+ at host (\S+) failed"),)

    @staticmethod
    def argv(start: Start) -> list[str]:
        """Return mpirun's arguments; the machine file's ``name:n`` lines alone fix which rank is where.

        ``-f`` is the same to MPICH, but Intel MPI then puts the first line's number of ranks on every node.

        Hydra would give every rank the whole environment of the head's mpirun, HOME and PATH among it. With
        ``-genvlist`` it passes on two variables instead, by its own connections and never on a command line.
        """
        argv = ["mpirun", "-np", str(start.ranks), "-machinefile", "{machinefile}", "-launcher", "ssh"]
        argv += ["-genvlist", "RANKLIFT_SUPERVISOR,RANKLIFT_TOKEN"]
        return [*argv, *start.extra, *start.program]

    def pass_on(self, argv: list[str], names: list[str]) -> list[str]:
        """Return the command line with further names in the list of variables.

        >>> Hydra().pass_on(["mpirun", "-genvlist", "B,RANKLIFT_TOKEN", "sh"], ["A"])
        ['mpirun', '-genvlist', 'B,RANKLIFT_TOKEN,A', 'sh']
        """
        return [",".join([word, *names]) if word.endswith(",RANKLIFT_TOKEN") else word for word in argv]
