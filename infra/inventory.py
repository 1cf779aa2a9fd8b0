"""The cluster as the operator's commands see it: which nodes there are and how to reach them.

``.ranklift/<stack>/`` (0700) holds ``inventory.json``, ``ssh_config``, ``known_hosts`` and the user key
(0600), so that plain ``ssh -F .ranklift/dev/ssh_config node00000a``, rsync and editors work with it.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Inventory", "Node"]


@dataclass(frozen=True, slots=True)
class Node:
    """One VM of the scale set."""

    name: str
    """Computer name, e.g. ``node00000a``; the alias in ssh_config."""
    instance_id: int
    """What ``--nodes 0-3,7`` counts in."""
    private_ip: str
    host: str
    """Where the operator's ssh connects: the load balancer, or ``private_ip`` with ``access: private``."""
    port: int
    slots: int
    """Processes the node can take: its GPUs, or its vCPUs when it has none."""
    state: str
    """Azure's word in lower case: ``creating``, ``running``, ``failed``, ``deleting`` ..."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """One stack's nodes, in the order of their instance ids."""

    stack: str
    size: str
    location: str
    user: str
    nodes: tuple[Node, ...]
