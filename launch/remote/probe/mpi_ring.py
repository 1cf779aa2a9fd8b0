"""Bandwidth of a ring: under MPI every rank sends to the next one and receives from the one before.

A ring is as fast as its slowest node. Of two ranks each sends to the other. Rank 0 prints the figure.
"""

from __future__ import annotations

import ctypes
import sys
import time

from launch.remote.probe.mpi_program import STATUS_BYTES, open_mpi

__all__ = ["MARK", "main"]

MARK = "ranklift-ring: "
"""What rank 0's line begins with; GB/s of each node follow."""
_WINDOW = 4
"""Messages on their way at once: what one waits for, the others use."""
_WARM_UP = 2
_MOST = 1 << 16
"""Times that a window of messages is sent at most."""


def main(size: int, seconds: float) -> int:
    """Send messages of ``size`` bytes around the ring for about ``seconds``; return 0."""
    mpi, world, byte = open_mpi()
    mpi.MPI_Init(None, None)
    rank, ranks = ctypes.c_int(), ctypes.c_int()
    mpi.MPI_Comm_rank(world, ctypes.byref(rank))
    mpi.MPI_Comm_size(world, ctypes.byref(ranks))
    after, before = (rank.value + 1) % ranks.value, (rank.value - 1) % ranks.value
    sent = ctypes.create_string_buffer(size)
    received = [ctypes.create_string_buffer(size) for _ in range(_WINDOW)]
    requests = (type(world) * (2 * _WINDOW))()  # handles are all of one type
    each_request = [ctypes.byref(requests, n * ctypes.sizeof(world)) for n in range(2 * _WINDOW)]
    statuses = ctypes.create_string_buffer(2 * _WINDOW * STATUS_BYTES)

    def send(count: int) -> float:
        """Send so many windows of messages around; return the seconds that it took all ranks."""
        mpi.MPI_Barrier(world)
        began = time.monotonic()
        for _ in range(count):
            for place, buffer in enumerate(received):
                mpi.MPI_Irecv(buffer, size, byte, before, 1, world, each_request[place])
            for place in range(_WINDOW):
                mpi.MPI_Isend(sent, size, byte, after, 1, world, each_request[_WINDOW + place])
            mpi.MPI_Waitall(2 * _WINDOW, requests, statuses)
        mpi.MPI_Barrier(world)
        return time.monotonic() - began

    send(1)  # makes the connections
    each = send(_WARM_UP) / _WARM_UP
    count = ctypes.c_int(max(1, min(_MOST, int(seconds / each))))
    mpi.MPI_Bcast(ctypes.byref(count), ctypes.sizeof(count), byte, 0, world)
    took = send(count.value)
    if rank.value == 0:
        sys.stdout.write(f"{MARK}{size * _WINDOW * count.value / took / 1e9:.6g}\n")
        sys.stdout.flush()
    mpi.MPI_Finalize()
    return 0
