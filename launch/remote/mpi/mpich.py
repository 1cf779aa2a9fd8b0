"""MPICH, and what is built on it, such as MVAPICH."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from launch.remote.mpi.base import SSH_OPTIONS, CommandLine
from launch.remote.mpi.hydra import Hydra

if TYPE_CHECKING:
    from launch.remote.mpi.base import Start

__all__ = ["Mpich"]


class Mpich(Hydra):
    """MPICH."""

    flavour = "mpich"
    title = "MPICH"
    version = re.compile(r"HYDRA build details:\s+Version:\s+(\d\S+)")
    modules = ("mpi/mvapich2", "mpi/mvapich")

    def command_line(self, _name: str, start: Start, /) -> CommandLine:
        """Return mpirun's arguments and environment: MPICH takes options for ssh from a variable alone, and
        binds no rank by itself."""
        return CommandLine(self.argv(start), {"HYDRA_LAUNCHER_EXTRA_ARGS": SSH_OPTIONS})
