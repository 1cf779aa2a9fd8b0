"""Intel MPI's command line."""

from __future__ import annotations

from launch.mpi.hydra import hydra_argv
from launch.mpi.start import SSH_OPTIONS, CommandLine, Start

__all__ = ["command_line"]


def command_line(start: Start) -> CommandLine:
    """mpirun's arguments.

    Pinning is off unless the user says otherwise: it would give two jobs on one node the same processors.
    The fabric is left to the library and to the user (``I_MPI_FABRICS``, ``FI_PROVIDER``).
    """
    env = {"I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS": SSH_OPTIONS, "I_MPI_PIN": "off"}
    return CommandLine(hydra_argv(start), env)
