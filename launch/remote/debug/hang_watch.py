"""The supervisor's watch over ranks that hang: on request, and where nothing was printed for too long."""

from __future__ import annotations

import json
import time
from contextlib import suppress

from launch.remote.base.files import replace_file
from launch.remote.base.records import Failure
from launch.remote.debug.collection import Collection
from launch.remote.debug.debug_request import ANSWER, HANG, read_request
from launch.remote.head.outcome import TIMED_OUT, Outcome
from launch.remote.head.shutdown import Stop
from launch.remote.log.writer import LAUNCHER, last_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from launch.remote.debug.debug_records import DebugAnswer, DebugFacts, Stacks, Verdict
    from launch.remote.debug.dump_lines import DumpLines
    from launch.remote.head.job_state import LaunchOrder
    from launch.remote.head.rank_states import RankStates
    from launch.remote.head.runners.channel import Channel
    from launch.remote.head.runners.runner_pool import RunnerPool

__all__ = ["HangWatch"]

_LATE = 2
"""Number of looks that are repeated at once because they left a node or the verdict unknown."""
_BY_ITSELF = ""
"""The request of a collection that the supervisor starts by itself."""


class HangWatch:
    """Looks at the ranks of one launch; a job that moves is never ended."""

    def __init__(self, order: LaunchOrder, pool: RunnerPool, ranks: RankStates) -> None:
        self._order, self._pool, self._ranks = order, pool, ranks
        self._hang_after: float | None = order.plan.get("hang_after_s")
        self._py_spy = order.plan.get("py_spy", "")
        self._printed: dict[int, float] = {}
        self._running_since: float | None = None
        self._collection: Collection | None = None
        self._request = _BY_ITSELF
        self._count = self._late = 0
        self._has_doubted = False
        self._dumps: DumpLines | None = None
        """Since the first look: before, nobody has asked a flight recorder."""
        found = read_request(order.folder)
        self._answered = found[0] if found else ""
        """The newest request that needs no answer any more: one of an earlier launch."""

    def on_output(self, rank: int, now: float, stream: int = 0, data: bytes | None = None) -> None:
        """Note that a rank has printed; ``data`` is None for a notice of what was left out. What PyTorch
        prints because a look has asked its flight recorder is no movement, and ends no silence."""
        if data is None or self._dumps is None or self._dumps.has_more(rank, stream, data):
            self._printed[rank] = now

    def on_stacks(self, channel: Channel, fields: Stacks) -> None:
        """Take a piece of a runner's report."""
        if self._collection is not None:
            self._collection.on_stacks(channel, fields)

    def on_tick(self, now: float) -> Stop | None:
        """Start or end a collection; return the end of a job that hangs."""
        if self._running_since is None:
            if not self._ranks.all_started:
                return None
            self._running_since = now
        if self._collection is not None:
            return self._end_collection(now) if self._collection.is_over(now) else None
        found = read_request(self._order.folder)
        if found is not None and found[0] != self._answered:
            self._start(found[0], found[1], now)
        elif self._hang_after is not None and self._ranks.running and now - self._newest > self._hang_after:
            self._start(_BY_ITSELF, self._py_spy, now)
        return None

    @property
    def _newest(self) -> float:
        """When a rank has last shown that the job moves."""
        return max([self._running_since or 0.0, *self._printed.values()])

    def _start(self, request: str, py_spy: str, now: float) -> None:
        self._count += 1
        self._request = request
        if self._dumps is None:
            from launch.remote.debug.dump_lines import DumpLines  # no job's start waits for it

            self._dumps = DumpLines()
        channels = [one for one in self._pool.open_channels if one.unended and not one.is_done]
        per_node = bool(self._order.plan["per_node"])
        self._collection = Collection(
            self._count, channels, self._ranks.names, py_spy, now, per_node=per_node
        )

    def _end_collection(self, now: float) -> Stop | None:
        collection, self._collection = self._collection, None
        assert collection is not None  # noqa: S101  as its only caller knows
        facts = self._facts(collection, now)
        from launch.remote.hangs.verdict import judge  # no job's start waits for these imports

        verdict = judge(facts)
        answer: DebugAnswer = {
            "request": self._request,
            "job": self._order.folder.job,
            "state": "RUNNING",
            "time": time.time(),
            "seconds": round(now - collection.begun, 3),
            "facts": facts,
            "verdict": verdict,
        }
        self._write(ANSWER, answer)
        if self._request != _BY_ITSELF:
            self._answered = self._request
            return None
        return self._judge_silence(answer, verdict, now)

    def _judge_silence(self, answer: DebugAnswer, verdict: Verdict, now: float) -> Stop | None:
        """End the job if no rank has printed meanwhile, and the verdict proves that it hangs."""
        silent = int(now - self._newest)
        if self._hang_after is None or silent < self._hang_after:
            self._late = 0
            return None
        is_open = bool(answer["facts"]["unanswered"]) or verdict["kind"] == "unknown"
        if is_open and self._late < _LATE:
            self._late += 1  # what is not known of a node or a rank may be that it moves: look again
            return None
        from launch.remote.hangs.movement import doubt

        reason = f"no rank has printed anything for {silent} s: {verdict['text']}"
        doubted = doubt(answer["facts"], verdict)
        if verdict["kind"] == "slow" or doubted:
            self._running_since, self._late = now, 0
            if not doubted:
                self._print(reason)
            elif not self._has_doubted:
                self._has_doubted = True
                self._print(f"{reason}; the job goes on: {doubted}")
            return None
        self._write(HANG, answer)
        self._print(reason)
        for note in verdict["notes"]:
            self._print(note)
        return Stop(Outcome("FAILED", TIMED_OUT, reason, self._failure(verdict)))

    def _failure(self, verdict: Verdict) -> Failure:
        rank = verdict["ranks"][0] if verdict["ranks"] else None
        node = verdict["nodes"][0] if verdict["nodes"] else None
        lines = [verdict["text"]]
        if rank is not None and rank in self._ranks.node_of:
            lines = last_lines(self._order.stream.tail(rank, self._ranks.node_of[rank])) or lines
        return {"rank": rank, "node": node, "status": TIMED_OUT, "last_lines": lines}

    def _facts(self, collection: Collection, now: float) -> DebugFacts:
        names, since = self._ranks.names, now if self._running_since is None else self._running_since
        nodes = self._order.plan["nodes"]
        return {
            "node_of": {str(rank): names[node] for rank, node in self._ranks.node_of.items()},
            "addresses": {node["private_ip"]: node["name"] for node in nodes},
            "ended": {str(rank): status for rank, status in self._ranks.ended.items()},
            "silent_s": {
                str(rank): int(now - self._printed.get(rank, since)) for rank in self._ranks.node_of
            },
            "printed": sorted(rank for rank, at in self._printed.items() if at > collection.begun),
            "nodes": collection.reports,
            "unanswered": collection.unanswered(now),
            "unheard_s": collection.unheard(now),
            "per_node": bool(self._order.plan["per_node"]),
        }

    def _print(self, line: str) -> None:
        self._order.stream.write(LAUNCHER, 0, 2, line.encode("utf-8", "replace") + b"\n")

    def _write(self, name: str, answer: DebugAnswer) -> None:
        with suppress(OSError):  # a full disk loses the file: who asked is answered that nothing came
            replace_file(self._order.folder.file(name), json.dumps(answer).encode(), outlives_machine=False)
