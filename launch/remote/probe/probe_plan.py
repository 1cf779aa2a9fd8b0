"""The plan of a probe, made from a job's: the same nodes, environment and launcher, another program."""

from __future__ import annotations

import json
import os
import zlib
from typing import NamedTuple

from launch.remote.base import timing
from launch.remote.base.files import python_folder
from launch.remote.base.records import CommandLine, Plan, PlannedNode, PlannedRank
from launch.remote.mpi.base import Start
from launch.remote.mpi.hostfile import common_network, hostfile_text, machinefile_text
from launch.remote.mpi.registry import command_lines
from launch.remote.probe.network_mark import LIBRARIES
from launch.remote.probe.program_lines import MARK

__all__ = ["FOLDER", "NOTHING_TO_RUN", "Program", "distances", "make", "programs_of", "subject_of"]

FOLDER = "probe"
"""Name of the probe's folder in the job's, on the head and on every node."""
NOTHING_TO_RUN = 3
"""Exit status of a program that lacks what it needs: the next one may have it."""
_NCCL_LOG = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET"}
_MPI_LOG = {
    "UCX_LOG_LEVEL": "info",
    "OMPI_MCA_btl_base_verbose": "10",
    "I_MPI_DEBUG": "5",
    "MPIR_CVAR_DEBUG_SUMMARY": "1",
}
"""What makes NCCL and the MPIs print their connections."""
_OWN = (*LIBRARIES, "OMPI_MCA_")
_LOG_FILES = ("NCCL_DEBUG_FILE", "UCX_LOG_FILE", "I_MPI_DEBUG_OUTPUT")
_PYTHON = "import sys; exec(sys.argv[1])"
_NCCL_TESTS = (
    "f=$(command -v all_reduce_perf || echo /opt/nccl-tests/build/all_reduce_perf); "
    f'test -x "$f" || {{ echo "{MARK}there is no $f"; exit {NOTHING_TO_RUN}; }}; '
    'exec "$f" -b 64M -e 64M -g 1 -n 5 -w 1'
)


class Program(NamedTuple):
    """A program that a probe runs; texts travel on the command line, for no image has them."""

    name: str
    argv: list[str]
    variables: dict[str, str]
    nodes: list[PlannedNode]
    mpirun: dict[str, CommandLine]
    is_by_node: bool
    """A node has shown its connections when one of its ranks has: NCCL's rings leave a node by some."""


def programs_of(plan: Plan) -> list[Program]:
    """Return what a probe of the job may run, the first choice first: what mpirun starts uses MPI, all else
    torch, or the image's nccl-tests where its Python has none."""
    python = ["python" if python_folder(plan["python"]) else plan["python"], "-c", _PYTHON]
    if plan["mpirun"]:
        apart = distances([len(node["ranks"]) for node in plan["nodes"]])
        argv = [*python, _text("mpi_program.py"), *map(str, apart)]
        return [Program("MPI", argv, {**_NCCL_LOG, **_MPI_LOG}, plan["nodes"], plan["mpirun"], False)]
    argv = [*python, _text("torch_program.py"), str(len(plan["nodes"])), f"{timing.PROBE_S:g}"]
    torch = Program("torch", argv, _NCCL_LOG, _with_ranks(plan, [1] * len(plan["nodes"])), {}, True)
    if not plan["health"]["promise"].get("gpus"):
        return [torch]
    counts = [node["reserve"] for node in plan["nodes"]]
    network = common_network([node["private_ip"] for node in plan["nodes"]])
    start = Start(sum(counts), len(counts), network, plan["remote"], (), bool(plan["infiniband"]))
    lines: dict[str, CommandLine] = {
        name: {"argv": line.argv, "env": dict(line.env)} for name, line in command_lines(start, None).items()
    }
    nodes, argv = _with_ranks(plan, counts), ["sh", "-c", _NCCL_TESTS]
    return [torch, Program("nccl-tests", argv, _NCCL_LOG, nodes, lines, True)]


def subject_of(plan: Plan, program: Program) -> str:
    """Return what a probe proves beside its nodes: the program, what it runs in, the user's variables of the
    libraries, and the MPI with its arguments. A container without InfiniBand's devices, a variable or
    ``--mca btl tcp`` makes ranks use sockets."""
    runs_in = plan["environment"]["id"] or plan["python"]
    own = {name: value for name, value in plan["user_env"].items() if name.startswith(_OWN)}
    # a number is that of the ranks: fewer nodes than were proven need no other proof
    mpirun = {
        name: [word for word in line["argv"] if not word.isdigit()] for name, line in program.mpirun.items()
    }
    choices = json.dumps([own, mpirun], sort_keys=True).encode()
    return f"{program.name} in {runs_in} {zlib.crc32(choices):08x}"


def make(plan: Plan, program: Program) -> Plan:
    """Return the probe's plan. It has the job's id: slots, processes and containers are the job's."""
    folder = os.path.dirname(plan["cwd"])
    user_env = {name: value for name, value in plan["user_env"].items() if name not in _LOG_FILES}
    ranks_on = [(node["name"], len(node["ranks"])) for node in program.nodes]
    return {
        **plan,
        "argv": program.argv,
        "expand": [],
        "cwd": f"{folder}/{FOLDER}/{os.path.basename(plan['cwd'])}",
        "paths": {
            name: path.replace(folder, f"{folder}/{FOLDER}", 1) for name, path in plan["paths"].items()
        },
        "user_env": {**user_env, **program.variables},
        "nodes": program.nodes,
        "mpirun": program.mpirun,
        "hostfile": hostfile_text(ranks_on),
        "machinefile": machinefile_text(ranks_on),
        "drop": [] if program.mpirun else plan["drop"],
        "snapshot": "",
        "snapshots": [],
        "checks": {},
        "setup": "",
        "identity": "",
        "data": [],
        "uploads": [],
        "output_folders": [],
        "services": [],
        "hang_after_s": None,
        "max_restarts": 0,
        "min_nodes": None,
        "grace_s": timing.GRACE_S,
    }


def distances(ranks: list[int]) -> list[int]:
    """Return the distances over which every rank meets a rank of another node; ``ranks`` has each node's
    number of ranks, which are numbered node by node.

    >>> distances([8, 8]), distances([1, 3]), distances([2, 1, 1])
    ([8], [3, 1, 2], [2])
    """
    node_of = [node for node, count in enumerate(ranks) for _ in range(count)]
    chosen: list[int] = []
    size = len(node_of)
    left = set(range(size))
    for distance in sorted(range(1, size), key=lambda one: (one != max(ranks), one)):
        met = {one for one in left if node_of[one] != node_of[(one + distance) % size]}
        if met:
            chosen.append(distance)
            left -= met
    return chosen


def _with_ranks(plan: Plan, counts: list[int]) -> list[PlannedNode]:
    """Return the nodes with so many ranks on each, whatever the job's ranks are."""
    nodes: list[PlannedNode] = []
    first = 0
    for node, count in zip(plan["nodes"], counts):  # noqa: B905  (strict= is Python 3.10's)
        ranks: list[PlannedRank] = [
            {"rank": rank, "task": "", "env": {}} for rank in range(first, first + count)
        ]
        nodes.append({**node, "ranks": ranks})
        first += count
    return nodes


def _text(name: str) -> str:
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), name), encoding="utf-8") as file:
        return file.read()
