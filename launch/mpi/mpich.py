"""MPICH's command line, which is also that of what is built on it, such as MVAPICH."""

from __future__ import annotations

from launch.mpi.hydra import hydra_argv
from launch.mpi.start import SSH_OPTIONS, CommandLine, Start

__all__ = ["command_line"]


def command_line(start: Start) -> CommandLine:
    """mpirun's arguments. MPICH takes options for ssh from a variable alone, and binds no rank by itself."""
    return CommandLine(hydra_argv(start), {"HYDRA_LAUNCHER_EXTRA_ARGS": SSH_OPTIONS})
