"""The container runtimes that are known."""

from __future__ import annotations

from launch.remote.node.prepare import Unfit
from launch.remote.node.runtimes.charliecloud import Charliecloud
from launch.remote.node.runtimes.docker import Docker
from launch.remote.node.runtimes.enroot import Enroot
from launch.remote.node.runtimes.node_facts import read_node_facts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from launch.remote.base.payloads import RunnerSpec
    from launch.remote.node.runtimes.container import Container

__all__ = ["CONTAINERS", "container_of"]

CONTAINERS: dict[str, type[Container]] = {kind.name: kind for kind in (Docker, Enroot, Charliecloud)}


def container_of(spec: RunnerSpec) -> Container:
    """Return the container of a job's ranks. Raise Unfit where the plan names an unknown runtime."""
    name = spec["environment"]["runtime"]
    if name not in CONTAINERS:
        raise Unfit(f"runtime = {name}: not known here; use {', '.join(sorted(CONTAINERS))}")
    return CONTAINERS[name](spec, read_node_facts())
