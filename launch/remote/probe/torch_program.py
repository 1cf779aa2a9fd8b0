"""One all_reduce over all GPUs of a job's nodes: a program for the job's own Python, which has torch.

Its arguments are its own text, for the processes of a node's further GPUs, the number of nodes, and the
seconds for which a process waits for others. Without a GPU one process of each node uses Gloo.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from datetime import timedelta

__all__ = ["main"]

_NOTHING_TO_RUN = 3
_FLOATS = 1 << 24
_LINE_BUFFERED, _BLOCK = 1, 4096
"""_IOLBF of stdio.h, of glibc and musl; a pipe takes a line that is not longer than the block at once."""
_LOCAL = "RANKLIFT_PROBE_LOCAL"


def _print(line: str) -> None:
    sys.stdout.write("ranklift-probe: " + line + "\n")
    sys.stdout.flush()


def _write_lines_whole() -> None:
    """Have C's stdout, which NCCL writes to, written line by line: in blocks, lines of a node's processes,
    which share one pipe, come torn and mixed."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p  # without a buffer of its own, glibc writes lines in parts
    stdout, buffer = ctypes.c_void_p.in_dll(libc, "stdout"), ctypes.c_void_p(libc.malloc(_BLOCK))
    libc.setvbuf(stdout, buffer, _LINE_BUFFERED, _BLOCK)


def main(arguments: list[str]) -> int:
    """Run this node's part; return 0 where the sum is right."""
    _write_lines_whole()
    source, nodes, limit = arguments[0], int(arguments[1]), float(arguments[2])
    try:
        import torch
        import torch.distributed as dist
    except (ImportError, OSError) as error:  # OSError: a library that torch needs is missing
        _print(f"torch cannot be imported: {error}")
        return _NOTHING_TO_RUN
    if not dist.is_available():
        _print("torch is built without torch.distributed")
        return _NOTHING_TO_RUN
    gpus = torch.cuda.device_count() if dist.is_nccl_available() else 0
    local = int(os.environ.get(_LOCAL, "0"))
    others = range(1, gpus) if _LOCAL not in os.environ else ()
    start = [sys.executable, "-c", "import sys; exec(sys.argv[1])", source, str(nodes), str(limit)]
    children = [subprocess.Popen(start, env={**os.environ, _LOCAL: str(one)}) for one in others]
    each = max(1, gpus)
    world, rank = nodes * each, int(os.environ["NODE_RANK"]) * each + local
    backend = "nccl" if gpus else "gloo"
    where = f"tcp://{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    wait = timedelta(seconds=limit)
    dist.init_process_group(backend, init_method=where, world_size=world, rank=rank, timeout=wait)
    device = torch.device("cuda", local) if gpus else torch.device("cpu")
    ones = torch.ones(_FLOATS if gpus else 1024, device=device)
    dist.all_reduce(ones)
    is_right = bool((ones == world).all().item())
    _print(f"backend {backend}" if is_right else f"a sum over {world} ranks is wrong")
    dist.barrier()
    dist.destroy_process_group()
    failed = sum(child.wait() != 0 for child in children)
    return int(bool(failed) or not is_right)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
