"""What looks at a job's nodes found: events of the job, and lines of its output for what lets it start."""

from __future__ import annotations

from launch.remote.base import names
from launch.remote.base.health_records import Finding, Findings
from launch.remote.head.job_state import LaunchOrder
from launch.remote.log.writer import LAUNCHER, StreamWriter

__all__ = ["HealthReport"]


class HealthReport:
    """Findings at the nodes of one launch, which go by their place in the plan."""

    def __init__(self, order: LaunchOrder) -> None:
        self._order = order
        self._names = [node["name"] for node in order.plan["nodes"]]
        self._found: dict[int, list[Finding]] = {}

    def on_findings(self, node: int, fields: Findings) -> None:
        """Record the findings at a node."""
        self._found[node] = fields["findings"]
        mode = self._order.plan["health"]["mode"]
        self._order.folder.event("health", node=self._names[node], mode=mode, findings=fields["findings"])

    def write(self, stream: StreamWriter) -> None:
        """Write what was found to the job's output: a line for each finding, equal ones folded. A restart
        does not repeat them."""
        if self._order.restarts:
            return
        nodes: dict[str, list[int]] = {}
        for node, found in sorted(self._found.items()):
            for one in found:
                line = (
                    f"health {one['level']}: {one['subject']}: {one['measured']}; expected: {one['expected']}"
                )
                nodes.setdefault(f"{line}; {one['remedy']}", []).append(node)
        for line, places in nodes.items():
            where = names.fold([self._names[node] for node in places])
            stream.write(LAUNCHER, places[0], 2, f"{where}: {line}\n".encode())
