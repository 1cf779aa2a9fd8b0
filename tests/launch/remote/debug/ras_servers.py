"""RAS of three versions of NCCL: what a client's commands are answered, as their sources have it.

2.24 knows no output format and answers text; 2.28.7 knows JSON; 2.28.9 leaves a comma out of it.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

__all__ = ["HUNG_2_24", "json_2_28_7", "json_2_28_9", "ras_server"]

HUNG_2_24 = """\
NCCL version 2.24.3 compiled with CUDA 12.8
CUDA runtime version 12080, driver version 12080

Job summary
===========

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         2         4         8         8   RUNNING  MISMATCH

Errors
======

#0-1 (aa11bb22cc33dd44) INCOMPLETE
  Missing communicator data from 1 rank
  Rank 5 -- GPU 1 managed by process 412 on node 10.0.0.5

Warnings
========

#0-0 (78db921d1c117b4a) MISMATCH
  Communicator ranks have different AllReduce operation counts
  7 ranks have launched up to operation 64
  Rank 7 has launched up to operation 60 -- GPU 3 managed by process 414 on node 10.0.0.5
"""


def json_2_28_7(dead: bool = False) -> str:
    """Four ranks on two nodes: rank 2 is behind, rank 3 does not answer."""
    ranks = [
        {
            "rank": rank,
            "host": f"10.0.0.{4 + rank // 2}",
            "pid": 100 + rank,
            "cuda_dev": rank % 2,
            "nvml_dev": rank % 2,
            "status": {
                "init_state": 0,
                "async_error": 0,
                "finalize_called": False,
                "destroy_flag": False,
                "abort_flag": False,
            },
            "collective_counts": {"Broadcast": 2, "AllReduce": 101 - (rank == 2)},
        }
        for rank in range(3)
    ]
    missing = {
        "rank": 3,
        "host": "10.0.0.5",
        "pid": 103,
        "cuda_dev": 1,
        "nvml_dev": 1,
        "status": {"unresponsive": True, "considered_dead": dead},
    }
    communicator = {
        "hash": "0x4e0104c2022fa2f9",
        "size": 4,
        "ranks_count": 3,
        "missing_ranks_count": 1,
        "ranks": ranks,
        "missing_ranks": [missing],
    }
    found = {"nccl_version": "2.28.7", "communicators_count": 1, "communicators": [communicator]}
    return json.dumps(found, indent=2)


def json_2_28_9() -> str:
    """The same, without the comma between ``nvml_dev`` and ``status`` of the rank that is missing."""
    before, after = json_2_28_7().split('"missing_ranks": [')
    return before + '"missing_ranks": [' + after.replace('"nvml_dev": 1,', '"nvml_dev": 1')


def answers(connection: socket.socket, knows_json: bool, text: str, as_json: str) -> None:
    """Answers a client's lines until it has the status, as ``rasClientEventLoop`` does."""
    is_json = False
    with connection, connection.makefile("rwb") as stream:
        for line in stream:
            command = line.decode().strip().lower()
            if command.startswith("client protocol "):
                stream.write(b"SERVER PROTOCOL 2\n")
            elif command.startswith("timeout "):
                stream.write(b"OK\n")
            elif command == "set format json" and knows_json:
                is_json = True
                stream.write(b"OK\n")
            elif command == "verbose status":
                stream.write((as_json if is_json else text).encode())
                return
            else:
                stream.write(b"ERROR: Unknown command\n")
            stream.flush()


@contextmanager
def ras_server(
    text: str = "", as_json: str = "", respond: Callable[[socket.socket], None] | None = None
) -> Iterator[str]:
    """A server that knows JSON where ``as_json`` is given, or does what ``respond`` does; its address."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listening.accept()
                if respond is not None:
                    respond(connection)
                else:
                    answers(connection, bool(as_json), text, as_json)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{listening.getsockname()[1]}"
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join(5)
