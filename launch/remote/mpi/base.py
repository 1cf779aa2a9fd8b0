"""What each MPI contributes, and the command line that it makes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from launch.remote.base import timing

__all__ = ["SSH_OPTIONS", "CommandLine", "Mpi", "Start"]

SSH_OPTIONS = " ".join(timing.ssh_options())
"""For the ssh that an MPI starts: it never asks a question."""


class Start(NamedTuple):
    """The ranks to start, as far as an MPI needs to know them."""

    ranks: int
    hosts: int
    network: str
    """Holds every node's private address."""
    remote: str
    """Folder of the node code under the home folder, which may lie elsewhere on every node."""
    extra: tuple[str, ...] = ()
    """The user's own arguments for mpirun; last, so that they win."""
    infiniband: bool = False
    """The nodes' VM size has it."""

    @property
    def program(self) -> list[str]:
        """The program started once for every rank: a runner, which gets all that is the user's from the
        supervisor, never on a command line."""
        return ["sh", "-c", f'exec python3 -I -S "$HOME/{self.remote}/__main__.py" rank']


class CommandLine(NamedTuple):
    """One MPI's way to start the job; ``{hostfile}`` and ``{machinefile}`` stand for those files on the
    head."""

    argv: list[str]
    env: Mapping[str, str] = {}
    """For mpirun itself, giving way to what the head and the user set."""

    @property
    def words(self) -> list[str]:
        """The words as a user would type them."""
        given = [f"{name}={value}" for name, value in self.env.items()]
        return ["env", *given, *self.argv] if given else self.argv


class Mpi:
    """One MPI. An attribute that a subclass leaves out is of no meaning to that MPI."""

    flavour: str
    """Its name in options and job files."""
    title: str
    version: re.Pattern[str]
    """Finds the version, as its first group, in the output of ``mpirun --version``."""
    modules: tuple[str, ...] = ()
    """Environment modules of Azure's HPC images that have it, the first choice first."""
    library: str = ""
    """Library that programs built with it need, where mpirun does not see to that itself."""
    soname: str = ""
    """Its library, by which a program is one of its ranks."""
    mpirun_prefixes: tuple[str, ...] = ()
    """Beginnings of variables that mean something to its mpirun."""
    process_prefixes: tuple[str, ...] = ()
    """Beginnings of variables by which its mpirun marks a process as a rank."""
    launcher_prefixes: tuple[str, ...] = ()
    """Beginnings of further variables of its launcher, of no use to a job's setup line."""
    rank_variables: tuple[str, str, str, str]
    """Variables with a rank's number, the number of ranks, and both again among those of its node."""
    signals_group: bool = False
    """Whether mpirun is a script, so that a signal must go to the whole process group."""
    abort: re.Pattern[bytes] | None = None
    """What a rank writes when it calls MPI_Abort, or the library does on an error."""
    peer_lost: re.Pattern[bytes] | None = None
    """What a rank writes that ends because a peer has ended."""
    peer_lost_statuses: tuple[int, ...] = ()
    """Exit statuses of a rank that ends because a peer has ended."""
    node_lost: tuple[re.Pattern[str], ...] = ()
    """What mpirun writes when a node, its daemon or the way there is gone; the first group is the node."""

    settled: Mapping[str, str] = {}
    """Options of its mpirun that say what a job's plan says, by name without dashes: how many ``ranks`` there
    are, how many on ``each`` node or, with ``ppr`` or ``map`` to it, on each part of one, which ``hosts``
    there are, which ``program`` they run."""
    values: Mapping[str, int] = {}
    """How many words the values of its mpirun's other options are."""
    flags: frozenset[str] = frozenset()
    """Options of its mpirun without a value."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of its command lines in a plan, one for each way to call mpirun."""
        return (self.flavour,)

    def name(self, _version: str, /) -> str:
        """Return the name of the command line for that version."""
        return self.flavour

    def open_files(self, _name: str, _hosts: int, _ranks: int, /) -> int | None:
        """Return the most files that its mpirun may open with so many hosts and ranks on its own; None for as
        many as the head allows."""
        return None

    def is_peer_loss(self, status: int, output: bytes) -> bool:
        """Return whether a rank with that exit status and last output ended because a peer had ended."""
        wrote = self.peer_lost is not None and self.peer_lost.search(output)
        return bool(wrote) or status in self.peer_lost_statuses

    def command_line(self, name: str, start: Start, /) -> CommandLine:
        """Return mpirun's arguments and environment."""
        raise NotImplementedError

    def pass_on(self, argv: list[str], names: list[str]) -> list[str]:
        """Return the command line with further variables to pass on to ranks, beside the runner's own."""
        raise NotImplementedError
