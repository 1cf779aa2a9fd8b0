"""mpirun, of whatever MPI the head has."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from launch.errors import InputError
from launch.launchers.base import COUNT, JobNode, Launcher, Line, LineStart, Option, Spec, either, wrong
from launch.launchers.shell_line import words
from launch.remote.mpi.base import CommandLine, Start
from launch.remote.mpi.registry import MPIS, command_lines

__all__ = ["Mpi", "common_network"]


class Mpi(Launcher):
    """Starts every rank by mpirun."""

    name = "mpi"
    task = "mpi"
    example = 'fab launch.mpi "train.py --epochs 5" --nodes 0-3 --nproc-per-node 8'
    summary = """Pushes the code and runs it under mpirun.

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
        given = {"mpi": flavour, "mpi_args": line.options["mpirun_args"] or ()}
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
        """Return a command line for each MPI that the head may have."""
        network = common_network([node.private_ip for node in nodes])
        start = Start(ranks, len(nodes), network, remote, spec.mpi_args, infiniband)
        return command_lines(start, spec.mpi)


def common_network(addresses: Sequence[str]) -> str:
    """Return the smallest network of at least a /24 that holds all addresses.

    Open MPI chooses its interfaces by that.

    >>> common_network(["10.0.0.4", "10.0.0.5", "10.0.1.3"])
    '10.0.0.0/23'
    """
    numbers = [int(ipaddress.IPv4Address(address)) for address in addresses]
    length = min(24, 32 - (min(numbers) ^ max(numbers)).bit_length())
    return str(ipaddress.ip_network((min(numbers), length), strict=False))
