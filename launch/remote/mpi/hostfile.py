"""Which node has how many ranks, as Open MPI and hydra read it, and the network of the nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["common_network", "hostfile_text", "machinefile_text"]


def hostfile_text(ranks_on: Iterable[tuple[str, int]]) -> str:
    """Return one ``name slots=n`` line for each node that has ranks, in the order of ranks.

    ``slots`` are the job's ranks there, not what the node could take: with ``--map-by slot`` that alone
    fixes which rank is where. Names rather than addresses, because launchers print them in their errors;
    every name resolves on every node, where need be by /etc/hosts. Always with ``slots=``: DeepSpeed takes no
    other line, and a node without would count its cores.

    >>> print(hostfile_text([("node000000", 2), ("node000001", 1)]), end="")
    node000000 slots=2
    node000001 slots=1
    """
    return "".join(f"{name} slots={count}\n" for name, count in ranks_on if count)


def machinefile_text(ranks_on: Iterable[tuple[str, int]]) -> str:
    """Return the same for hydra (MPICH, Intel MPI): one ``name:n`` line for each node that has ranks.

    >>> print(machinefile_text([("node000000", 2), ("node000001", 1)]), end="")
    node000000:2
    node000001:1
    """
    return "".join(f"{name}:{count}\n" for name, count in ranks_on if count)


def common_network(addresses: Sequence[str]) -> str:
    """Return the smallest network of at least a /24 that holds all addresses.

    Open MPI chooses its interfaces by that.

    >>> common_network(["10.0.0.4", "10.0.0.5", "10.0.1.3"])
    '10.0.0.0/23'
    """
    import ipaddress  # heads rarely need it

    numbers = [int(ipaddress.IPv4Address(address)) for address in addresses]
    length = min(24, 32 - (min(numbers) ^ max(numbers)).bit_length())
    return str(ipaddress.ip_network((min(numbers), length), strict=False))
