"""Keeps jobs off nodes that a command is about to remove: from before it asks what they do to their end.

Every free slot of such a node is held on the node itself, in the command's name: a job that is launched there
meanwhile is refused by that name, and one that was quicker is seen when the node is asked what it does. Who
holds them lives as long as the command's connection, so that nothing is left of a command that was killed; of
one whose machine lost its power, nothing after the command's own time limit.
"""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import resources

from infra.inventory import Inventory, Node
from infra.scale_plan import DEAD
from launch.errors import GiveUpError
from launch.remote.node.slots import HOLDER_BYTES
from playbooks.project import Stack
from playbooks.ssh.fanout import fan_out

__all__ = ["holder_name", "kept_free"]

MARK_S = 20.0
"""How long one node may take to give its slots to the command."""
_NO_PYTHON = 127
"""A shell's exit status where there is no such command."""


def holder_name(command: str) -> str:
    """Who removes nodes, for whoever is refused them; every call of a command has a name of its own."""
    name = f"`{command}` of {getpass.getuser()} on {socket.gethostname()} (process {os.getpid()})"
    return name.encode()[:HOLDER_BYTES].decode("utf-8", "ignore")


@contextmanager
def kept_free(
    stack: Stack, inventory: Inventory, nodes: Sequence[Node], holder: str, limit_s: float
) -> Iterator[dict[str, str]]:
    """Holds what is free of the nodes' slots for ``holder`` while the block runs, ``limit_s`` at most.

    Gives why that was not possible, by node. Nodes that do not run, and those without the Python that every
    job needs, can be given no job.
    """
    from playbooks.ssh.connection import Cluster

    by_name = {node.name: node for node in nodes if node.state not in DEAD}
    with Cluster(inventory, stack.folder) as cluster:

        def mark(name: str) -> None:
            slots = str(by_name[name].slots)
            words = ["python3", "-I", "-S", "-c", _program(), slots, holder, f"{limit_s:.0f}"]
            ended = cluster.host(by_name[name]).start(words, timeout=MARK_S)
            if ended is not None and ended.exit_status != _NO_PYTHON:
                said = ended.stderr.strip().splitlines() or [b"its slots cannot be held"]
                raise GiveUpError(f"{name}: {said[-1].decode('utf-8', 'replace')}")

        answers = fan_out(mark, by_name, what="keeping jobs off", timeout=2 * MARK_S)
        yield {
            name: str(answer).removeprefix(f"{name}: ")
            for name, answer in answers.items()
            if isinstance(answer, Exception)
        }


@cache
def _program() -> str:
    return resources.files("launch.remote.node").joinpath("slots.py").read_text("utf-8")
