"""Names of a stack's Azure resources: derived from the stack alone, so that anyone can find them."""

from __future__ import annotations

import hashlib
import re

__all__ = ["BACKEND_POOL", "STACK_TAG", "cluster_name"]

STACK_TAG = "ranklift-stack"
"""The tag that every resource of a stack carries, with the stack's name as its value."""

BACKEND_POOL = "nodes"
"""Name of the load balancer's backend pool, which the nodes join."""

_LONGEST = 40  # a scale set's name may have 64 characters, and "ranklift-" comes before


def cluster_name(stack: str) -> str:
    """The name of the stack's resource group and scale set, and what its other resources begin with.

    Stack names may hold what Azure's names may not; those that had to be altered end in a digest, so that
    no two stacks share a name.

    >>> cluster_name("dev"), cluster_name("rehearsal-2"), cluster_name("Dev")
    ('ranklift-dev', 'ranklift-rehearsal-2', 'ranklift-dev-9c24f4')
    """
    plain = re.sub(r"[^a-z0-9]+", "-", stack.lower()).strip("-")
    if plain != stack or len(plain) > _LONGEST:
        digest = hashlib.sha256(stack.encode()).hexdigest()[:6]
        plain = f"{plain[: _LONGEST - 7].rstrip('-')}-{digest}".lstrip("-")
    return f"ranklift-{plain}"
