"""Which node has how many ranks, as Open MPI and hydra read it."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["hostfile_text", "machinefile_text"]


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
