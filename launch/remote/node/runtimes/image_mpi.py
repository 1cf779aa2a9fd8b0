"""Whether the MPI in an image fits the node's mpirun, whose runners start the ranks."""

from __future__ import annotations

import os

from launch.remote.mpi.registry import MPIS
from launch.remote.node.prepare import Unfit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from launch.remote.node.runtimes.container import Container

__all__ = ["check_mpi", "mpi_misfit"]

_QUERY = ["sh", "-c", "command -v mpirun >/dev/null || exit 0; exec mpirun --version"]
"""Command that prints the version of an image's MPI. An image without mpirun cannot be queried: its ranks may
use no MPI, as Azure ML's mpi jobs of PyTorch do."""


def check_mpi(container: Container, mpirun: str, run: Callable[[list[str]], bytes]) -> None:
    """Raise Unfit where ranks in the container could not join ``mpirun``, given by its name and title.

    ``run`` runs a command in the container and returns its output.
    """
    name, _, title = mpirun.partition(" ")
    if "PMI_FD" in os.environ and not container.passes_descriptors:
        raise Unfit(
            f"runtime = {container.name}: it does not pass on the descriptor by which ranks of "
            f"{title} reach their launcher; use Open MPI, or another --runtime"
        )
    reason = mpi_misfit(name, title, run(_QUERY).decode("utf-8", "replace"), container.title)
    if reason:
        raise Unfit(reason)


def mpi_misfit(name: str, title: str, output: str, image: str) -> str:
    """Return why an image whose MPI prints ``output`` cannot run under the node's mpirun; "" where it can.

    ``name`` and ``title`` are the mpirun's, as in :class:`launch.remote.mpi.detect.FoundMpi`. Ranks join
    their mpirun by PMIx or PMI, which each MPI keeps within one major version of Open MPI, and within MPICH
    and Intel MPI.

    >>> mpi_misfit("openmpi-4", "Open MPI 4.1.4", "mpirun (Open MPI) 4.1.9", "pytorch:24")
    ''
    >>> mpi_misfit("openmpi-4", "Open MPI 4.1.4", "mpirun (Open MPI) 5.0.3", "pytorch:24")[:67]
    "the image pytorch:24 has Open MPI 5.0.3, the node's mpirun is Open "
    """
    for mpi in MPIS.values():
        match = mpi.version.search(output)
        if match and mpi.name(match[1]) != name:
            return (
                f"the image {image} has {mpi.title} {match[1]}, the node's mpirun is {title}: ranks of the "
                "one cannot join the other; use an image whose MPI has the same major version"
            )
        if match:
            return ""
    return ""
