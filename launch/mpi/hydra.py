"""What MPICH and Intel MPI share: hydra starts the ranks of both."""

from __future__ import annotations

from launch.mpi.start import Start

__all__ = ["hydra_argv"]


def hydra_argv(start: Start) -> list[str]:
    """mpirun's arguments; the machine file's ``name:n`` lines alone say which rank is where.

    ``-f`` is the same to MPICH, but Intel MPI then puts the first line's number of ranks on every node.

    Hydra would give every rank the whole environment of the head's mpirun, HOME and PATH among it. It is
    told to pass on two variables instead, by its own connections and never on a command line.
    """
    argv = ["mpirun", "-np", str(start.ranks), "-machinefile", "{machinefile}", "-launcher", "ssh"]
    argv += ["-genvlist", "RANKLIFT_SUPERVISOR,RANKLIFT_TOKEN"]
    return [*argv, *start.extra, *start.program]
