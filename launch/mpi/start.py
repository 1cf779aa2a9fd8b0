"""What every MPI's command line is made from, and what comes of it."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field

__all__ = ["SSH_OPTIONS", "CommandLine", "Start", "common_network"]

SSH_OPTIONS = "-o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=5"
"""For ssh when an MPI starts its own processes on other nodes: no question is ever asked."""


@dataclass(frozen=True, slots=True)
class Start:
    """The ranks to start, as far as an MPI has to know of them."""

    ranks: int
    hosts: int
    network: str
    """Holds every node's private address."""
    remote: str
    """Folder of the node code under the home folder, which may lie elsewhere on every node."""
    extra: tuple[str, ...] = ()
    """The user's own arguments for mpirun; last, so that they win."""

    @property
    def program(self) -> list[str]:
        """What is started once for every rank: a runner, which asks the supervisor for everything else.

        So no argument, no variable and no secret of the user's is ever on a command line of an MPI.
        """
        return ["sh", "-c", f'exec python3 -I -S "$HOME/{self.remote}/__main__.py" rank']


@dataclass(frozen=True, slots=True)
class CommandLine:
    """One MPI's way to start the job.

    ``{hostfile}`` and ``{machinefile}`` stand for those files on the head.
    """

    argv: list[str]
    env: dict[str, str] = field(default_factory=dict)
    """For mpirun itself, giving way to what the head and the user set."""

    @property
    def words(self) -> list[str]:
        """As it would be typed."""
        given = [f"{name}={value}" for name, value in self.env.items()]
        return ["env", *given, *self.argv] if given else self.argv


def common_network(addresses: Sequence[str]) -> str:
    """The smallest network of at least a /24 that holds all addresses, for Open MPI's interface choice.

    >>> common_network(["10.0.0.4", "10.0.0.5", "10.0.1.3"])
    '10.0.0.0/23'
    """
    numbers = [int(ipaddress.IPv4Address(address)) for address in addresses]
    length = min(24, 32 - (min(numbers) ^ max(numbers)).bit_length())
    return str(ipaddress.ip_network((min(numbers), length), strict=False))
