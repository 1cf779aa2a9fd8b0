"""Keep jobs off nodes that a command is about to remove, from before it checks them until they are gone.

Every free slot of such a node is held on the node itself, in the command's name: a job launched there
meanwhile is refused with that name, and one that came first is found when the node is checked. The process
that holds the slots lives as long as the command's connection, so that a killed command leaves nothing; where
the operator's machine lost its power, it ends with the command's own time limit.
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
"""Limit of one node's answer to the request for its slots."""
_NO_PYTHON = 127
"""A shell's exit status for an unknown command."""


def holder_name(command: str) -> str:
    """Return the name under which slots are held, unique to each call of a command."""
    name = f"`{command}` of {getpass.getuser()} on {socket.gethostname()} (process {os.getpid()})"
    return name.encode()[:HOLDER_BYTES].decode("utf-8", "ignore")


@contextmanager
def kept_free(
    stack: Stack, inventory: Inventory, nodes: Sequence[Node], holder: str, limit_s: float
) -> Iterator[dict[str, str]]:
    """Hold the nodes' free slots for ``holder`` while the block runs, ``limit_s`` at most.

    Gives the reason by node where that failed. Nodes that do not run, and those without the Python that every
    job needs, are skipped: no job can start there.
    """
    from playbooks.ssh.connection import Cluster

    by_name = {node.name: node for node in nodes if node.state not in DEAD}
    with Cluster(inventory, stack.folder) as cluster:

        def mark(name: str) -> None:
            slots = str(by_name[name].slots)
            words = ["python3", "-I", "-S", "-c", _program(), slots, holder, f"{limit_s:.0f}"]
            ended = cluster.host(by_name[name]).start(words, timeout=MARK_S)
            if ended is not None and ended.exit_status != _NO_PYTHON:
                lines = ended.stderr.strip().splitlines() or [b"its slots cannot be held"]
                raise GiveUpError(f"{name}: {lines[-1].decode('utf-8', 'replace')}")

        answers = fan_out(mark, by_name, what="keeping jobs off", timeout=2 * MARK_S)
        yield {
            name: str(answer).removeprefix(f"{name}: ")
            for name, answer in answers.items()
            if isinstance(answer, Exception)
        }


@cache
def _program() -> str:
    return resources.files("launch.remote.node").joinpath("slots.py").read_text("utf-8")
