"""An MPI that the package does not know, whose mpirun starts ranks on the head alone."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from launch.remote.mpi.base import CommandLine, Mpi

if TYPE_CHECKING:
    from launch.remote.mpi.base import Start

MPIRUN = """#!/bin/sh
[ "$1" = --version ] && { echo "Toy MPI 0.7"; exit; }
ranks=$2; shift 2
for rank in $(seq 0 $((ranks - 1))); do TOY_RANK=$rank TOY_SIZE=$ranks "$@" & done
wait
"""


class Toy(Mpi):
    """Toy MPI."""

    flavour = "toympi"
    title = "Toy MPI"
    version = re.compile(r"Toy MPI (\d\S+)")
    process_prefixes = ("TOY_",)
    rank_variables = ("TOY_RANK", "TOY_SIZE", "TOY_RANK", "TOY_SIZE")

    def command_line(self, _name: str, start: Start, /) -> CommandLine:
        return CommandLine(
            ["mpirun", "-n", str(start.ranks), *start.extra, *start.program], {"TOY_VERBOSE": "1"}
        )

    def pass_on(self, argv: list[str], names: list[str]) -> list[str]:
        return argv  # its ranks have its whole environment
