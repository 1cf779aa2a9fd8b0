"""mpirun, of whatever MPI the head has."""

from __future__ import annotations

from collections.abc import Sequence

from launch.errors import InputError
from launch.launchers.base import COUNT, JobNode, Launcher, Line, LineStart, Option, Spec, either, wrong
from launch.launchers.mpirun_args import check_mpirun_args
from launch.launchers.shell_line import words
from launch.remote.mpi.base import CommandLine, Start
from launch.remote.mpi.hostfile import common_network
from launch.remote.mpi.registry import MPIS, command_lines

__all__ = ["Mpi"]


class Mpi(Launcher):
    """Starts every rank by mpirun."""

    name = "mpi"
    task = "mpi"
    example = 'fab launch.mpi "train.py --epochs 5" --nodes 0-3 --nproc-per-node 8'
    summary = """Push the code and run it under mpirun.

The exit status is the job's. Ctrl-C leaves the job running and prints how to follow and end it.
"""
    options = (
        COUNT,
        Option("mpi", f"which MPI: {either(MPIS)} (default: what the head has)", choices=tuple(MPIS)),
        Option("mpirun_args", "further arguments for mpirun, in quotes", read=words),
    )
    fields = frozenset({"mpi", "mpi_args"})

    def start_line(self, line: Line) -> LineStart:
        """Return what a command line starts, under the MPI that is named."""
        started = super().start_line(line)
        flavour = line.options["mpi"]
        if flavour is not None and flavour not in MPIS:
            raise InputError("--mpi", flavour, "is not a known MPI", f"use one of {', '.join(MPIS)}")
        args, count = line.options["mpirun_args"] or (), started.start.processes
        each = [slots if count is None else count for slots in line.slots]
        check_mpirun_args("--mpirun-args", args, flavour, each)
        given = {"mpi": flavour, "mpi_args": args}
        return LineStart(started.start, started.command, fields=given)

    def check(self, spec: Spec) -> None:
        """Raise :class:`~launch.errors.InputError` for an MPI that is not known."""
        if spec.mpi is not None and spec.mpi not in MPIS:
            raise wrong(spec, "mpi", "is not a known MPI", f"use {either(MPIS)}")

    def hidden(self) -> tuple[str, ...]:
        """Return nothing: ranks need the MPI's variables."""
        return ()

    def mpirun(
        self, spec: Spec, nodes: Sequence[JobNode], ranks: int, remote: str, infiniband: bool
    ) -> dict[str, CommandLine]:
        """Return a command line for each MPI that the head may have.

        Raise :class:`~launch.errors.InputError` for arguments that contradict the ranks' number or nodes.
        """
        each = [spec.processes_per_node or node.slots for node in nodes]
        check_mpirun_args("mpi_args", spec.mpi_args, spec.mpi, each)
        network = common_network([node.private_ip for node in nodes])
        start = Start(ranks, len(nodes), network, remote, spec.mpi_args, infiniband)
        return command_lines(start, spec.mpi)
