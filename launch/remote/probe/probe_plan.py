"""The plan of a probe, made from a job's: the same nodes, environment and launcher, another program."""

from __future__ import annotations

import os
from typing import NamedTuple

from launch.remote.base import timing
from launch.remote.base.files import python_folder
from launch.remote.base.records import Plan, PlannedNode

__all__ = ["FOLDER", "LOG_VARIABLES", "Program", "distances", "make", "program_of"]

FOLDER = "probe"
"""Name of the probe's folder in the job's, on the head and on every node."""
LOG_VARIABLES = {
    "NCCL_DEBUG": "INFO",
    "NCCL_DEBUG_SUBSYS": "INIT,NET",
    "UCX_LOG_LEVEL": "info",
    "OMPI_MCA_btl_base_verbose": "10",
    "I_MPI_DEBUG": "5",
    "MPIR_CVAR_DEBUG_SUMMARY": "1",
}
"""What makes NCCL and the MPIs print their connections."""
_LOG_FILES = ("NCCL_DEBUG_FILE", "UCX_LOG_FILE", "I_MPI_DEBUG_OUTPUT")
_START = f"import signal, sys; signal.alarm({timing.PROBE_S:g}); exec(sys.argv[1])"


class Program(NamedTuple):
    """A program that a probe runs; its text travels on the command line, for no image has it."""

    name: str
    text: str
    arguments: list[str]


def program_of(plan: Plan) -> Program:
    """Return what a probe of the job runs: what mpirun starts uses MPI, all else torch."""
    if plan["mpirun"]:
        apart = distances([len(node["ranks"]) for node in plan["nodes"]])
        return Program("MPI", _text("mpi_program.py"), [str(one) for one in apart])
    return Program("torch", _text("torch_program.py"), [str(len(plan["nodes"]))])


def make(plan: Plan) -> Plan:
    """Return the probe's plan. It has the job's id: slots, processes and containers are the job's."""
    program = program_of(plan)
    folder = os.path.dirname(plan["cwd"])
    user_env = {name: value for name, value in plan["user_env"].items() if name not in _LOG_FILES}
    nodes = plan["nodes"] if plan["mpirun"] else [_with_one_rank(*one) for one in enumerate(plan["nodes"])]
    return {
        **plan,
        "argv": [
            "python" if python_folder(plan["python"]) else plan["python"],
            "-c",
            _START,
            program.text,
            *program.arguments,
        ],
        "expand": [],
        "cwd": f"{folder}/{FOLDER}/{os.path.basename(plan['cwd'])}",
        "paths": {
            name: path.replace(folder, f"{folder}/{FOLDER}", 1) for name, path in plan["paths"].items()
        },
        "user_env": {**user_env, **LOG_VARIABLES},
        "nodes": nodes,
        "snapshot": "",
        "checks": {},
        "setup": "",
        "data": [],
        "uploads": [],
        "output_folders": [],
        "services": [],
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


def _with_one_rank(index: int, node: PlannedNode) -> PlannedNode:
    """Return the node with one rank, which starts further processes itself, whatever the job's ranks are."""
    return {**node, "ranks": [{"rank": index, "task": "", "env": {}}]}


def _text(name: str) -> str:
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), name), encoding="utf-8") as file:
        return file.read()
