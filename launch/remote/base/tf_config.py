"""TF_CONFIG (guide G11), which needs the ports that each node has reserved."""

from __future__ import annotations

import json
from collections.abc import Iterable

__all__ = ["FIRST_PORT", "TYPES", "tf_configs"]

FIRST_PORT = 2222
"""Azure ML's port for TensorFlow's servers; a node where the port is taken uses its next free one."""
TYPES = ("chief", "worker", "ps")
"""Types of tasks, in the order of TF_CONFIG's cluster."""


def tf_configs(tasks: Iterable[tuple[int, str, str]]) -> dict[int, str]:
    """Return TF_CONFIG by rank, from each task's rank, type and ``address:port``.

    Indices within a type follow the ranks.

    >>> print(tf_configs([(0, "worker", "10.0.0.4:2222"), (1, "ps", "10.0.0.5:2222")])[0])
    {"cluster": {"worker": ["10.0.0.4:2222"], "ps": ["10.0.0.5:2222"]}, \
"task": {"type": "worker", "index": 0}, "environment": "cloud"}
    """
    ordered = sorted(tasks)
    cluster: dict[str, list[str]] = {}
    for kind in TYPES:
        addresses = [address for _, of, address in ordered if of == kind]
        if addresses:
            cluster[kind] = addresses
    configs = {}
    seen = dict.fromkeys(TYPES, 0)
    for rank, kind, _ in ordered:
        task = {"type": kind, "index": seen[kind]}
        configs[rank] = json.dumps({"cluster": cluster, "task": task, "environment": "cloud"})
        seen[kind] += 1
    return configs
