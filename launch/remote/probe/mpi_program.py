"""Messages between ranks of different nodes, by the MPI that started them: a program without any package.

It calls libmpi itself: HPC images do not have mpi4py for every MPI, nor one benchmark for all of them.
The first argument is its own text, the others are distances: rank r sends to rank r + distance.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
from typing import Union

__all__ = ["STATUS_BYTES", "main", "open_mpi"]

Handle = Union[ctypes.c_int, ctypes.c_void_p]  # noqa: UP007  (evaluated by Python 3.8)
_BYTES = 1 << 20
_CLASS = "/sys/class/infiniband"
_NOTHING_TO_RUN = 3
STATUS_BYTES = 64
"""At least the size of an MPI_Status, of which the largest, MPICH's, has 20 bytes."""


def _print(line: str) -> None:
    sys.stdout.write("ranklift-probe: " + line + "\n")
    sys.stdout.flush()


def _ports() -> list[str]:
    """Return the node's ports whose link layer is InfiniBand, as UCX names them."""
    found = []
    for device in sorted(os.listdir(_CLASS)) if os.path.isdir(_CLASS) else ():
        for port in sorted(os.listdir(f"{_CLASS}/{device}/ports")):
            with open(f"{_CLASS}/{device}/ports/{port}/link_layer", encoding="ascii") as file:
                if file.read().strip() == "InfiniBand":
                    found.append(f"{device}:{port}")
    return found


def _load(name: str) -> ctypes.CDLL:
    """Return libmpi: that of the mpirun on PATH, else the one that the linker finds."""
    mpirun = os.path.realpath(shutil.which("mpirun") or "/")
    own = os.path.join(os.path.dirname(os.path.dirname(mpirun)), "lib", name)
    return ctypes.CDLL(own if os.path.exists(own) else name, mode=ctypes.RTLD_GLOBAL)


def open_mpi() -> tuple[ctypes.CDLL, Handle, Handle]:
    """Return libmpi, not initialized yet, and its handles of all ranks and of bytes."""
    is_hydra = "PMI_RANK" in os.environ
    mpi = _load("libmpi.so.12" if is_hydra else "libmpi.so.40")
    if is_hydra:  # MPICH's numbers, which its ABI initiative fixed for Intel MPI and MVAPICH too
        return mpi, ctypes.c_int(0x44000000), ctypes.c_int(0x4C00010D)
    world, byte = (
        ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(mpi, f"ompi_mpi_{name}")))
        for name in ("comm_world", "byte")
    )
    return mpi, world, byte


def main(arguments: list[str]) -> int:
    """Exchange a message over each distance; return 0 where all arrived."""
    try:
        mpi, world, byte = open_mpi()
    except (OSError, ValueError) as error:  # no libmpi, or one without Open MPI's symbols
        _print(f"libmpi cannot be used: {error}")
        return _NOTHING_TO_RUN
    _print("ports " + " ".join(_ports()))
    mpi.MPI_Init(None, None)
    rank, size = ctypes.c_int(), ctypes.c_int()
    mpi.MPI_Comm_rank(world, ctypes.byref(rank))
    mpi.MPI_Comm_size(world, ctypes.byref(size))
    sent, received = ctypes.create_string_buffer(_BYTES), ctypes.create_string_buffer(_BYTES)
    status = ctypes.create_string_buffer(STATUS_BYTES)
    ctypes.memset(sent, rank.value % 251, _BYTES)
    is_right = True
    for distance in map(int, arguments[1:]):
        to, source = (rank.value + distance) % size.value, (rank.value - distance) % size.value
        mpi.MPI_Sendrecv(*(sent, _BYTES, byte, to, 1, received, _BYTES, byte, source, 1), *(world, status))
        is_right &= received.raw == bytes([source % 251]) * _BYTES
    _print("messages arrived" if is_right else "messages arrived damaged")
    mpi.MPI_Finalize()
    return int(not is_right)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
