"""mpirun as one types it on the head."""

from __future__ import annotations

from bench.cluster import Bench
from launch.remote.mpi.openmpi import FROM_HOSTS_ON_NO_TREE

__all__ = ["mpirun_line"]


def mpirun_line(bench: Bench, count: int, per_node: int, program: str) -> str:
    """Starts ``per_node`` processes on each of the first ``count`` nodes; leaves its hostfile there."""
    names = bench.names()[:count]
    hosts = "".join(f"{name} slots={per_node}\\n" for name in names)
    bench.ssh(names[0], f"printf '{hosts}' > bench-hostfile")
    options = f"-np {count * per_node} --hostfile bench-hostfile --map-by slot --bind-to none"
    if count >= FROM_HOSTS_ON_NO_TREE:
        options += f" --mca plm_rsh_no_tree_spawn 1 --mca plm_rsh_num_concurrent {count}"
    return f"mpirun {options} {program}"
