"""The stream of a job whose nodes have InfiniBand: what its ranks' NCCL prints of connections is checked."""

from __future__ import annotations

from launch.remote.base.health_records import ProbeResult
from launch.remote.base.job_dir import Folder
from launch.remote.base.records import Plan
from launch.remote.log.writer import LAUNCHER
from launch.remote.probe.transport_stream import TransportStream
from launch.remote.probe.transport_verdict import Verdict

__all__ = ["RankStream"]


class RankStream(TransportStream):
    """Records and prints the first connection that is not as the size promises; in the end, what all nodes'
    ranks have shown."""

    def __init__(self, folder: Folder, plan: Plan) -> None:
        promise = plan["health"]["promise"]
        super().__init__(folder.path, [node["name"] for node in plan["nodes"]], promise)
        self._job, self._promised_by = folder, promise["size"]
        self._ranks = {given["rank"]: node["name"] for node in plan["nodes"] for given in node["ranks"]}
        self._is_refused = False

    def on_refused(self, verdict: Verdict) -> None:
        """Contradict at once."""
        self._is_refused = True
        self._record(verdict)
        line = (
            f"transport: {verdict.transport}, but {self._promised_by} promises InfiniBand: {verdict.reason}\n"
        )
        self.write(LAUNCHER, 0, 2, line.encode())

    def close(self) -> None:
        """Record what was seen, if every node showed a connection, and close the file."""
        self.read_unfinished()
        if not self._is_refused:
            verdict = self.evidence.verdict(self._ranks, is_by_node=True)
            if verdict.verdict == "proven":  # one rank's lines would prove nothing of the others
                self._record(verdict)
        super().close()

    def _record(self, verdict: Verdict) -> None:
        found: ProbeResult = {
            "source": "ranks",
            "verdict": verdict.verdict,
            "transport": verdict.transport,
            "reason": verdict.reason,
            "seconds": 0.0,
            "lines": verdict.lines,
        }
        self._job.event("probe", **found)
