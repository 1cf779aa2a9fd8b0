"""One collection of all nodes' reports, on the head: orders to runners, their pieces, what is missing."""

from __future__ import annotations

from launch.remote.base import frames, timing
from launch.remote.debug.fact_shapes import NotFacts, read_facts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from launch.remote.debug.debug_records import DebugOrder, NodeFacts, Stacks
    from launch.remote.head.runners.channel import Channel

__all__ = ["Collection"]

_MOST = 32 << 20
"""Bytes of all reports together, half of what the operator's side reads of an answer. What comes later is
left out, with the reason."""


class Collection:
    """Asks the runners of ``channels`` for their reports at the time ``now``."""

    def __init__(
        self,
        number: int,
        channels: list[Channel],
        names: list[str],
        py_spy: str,
        now: float,
        *,
        per_node: bool,
    ) -> None:
        self.begun = now
        self._number, self._names = number, names
        self._size = 0
        self._parts: dict[int, dict[int, str]] = {}
        self._asked = {id(channel): channel for channel in channels}
        self._reports: dict[str, list[NodeFacts]] = {}
        self._reasons: dict[str, str] = {}
        seen: set[int] = set()
        for channel in channels:
            is_first = channel.node not in seen
            seen.add(channel.node)
            order: DebugOrder = {
                "request": number,
                "py_spy": py_spy,
                "node": int(is_first),
                "per_node": int(per_node),
                "ranks": [],
                "pids": [],
                "until_ms": 0,
                "containers": [],
            }
            channel.send(frames.DEBUG, order)

    def on_stacks(self, channel: Channel, fields: Stacks) -> None:
        """Keep a piece of a report, and the report once it is whole."""
        if fields["request"] != self._number or id(channel) not in self._asked:
            return  # it answers an earlier request, too late
        self._size += len(fields["text"])
        if self._size > _MOST:
            self._answered(channel, f"left out: the reports have more than {_MOST >> 20} MiB")
            return
        parts = self._parts.setdefault(id(channel), {})
        parts[fields["part"]] = fields["text"]
        if len(parts) < fields["of"]:
            return
        text = "".join(parts[part] for part in sorted(parts))
        try:
            report = read_facts(text)
        except NotFacts as error:
            self._answered(channel, f"its report cannot be used: {error}")
            return
        self._reports.setdefault(self._names[channel.node], []).append(report)
        self._answered(channel)

    def _answered(self, channel: Channel, problem: str = "") -> None:
        del self._asked[id(channel)]
        self._parts.pop(id(channel), None)
        if problem:
            self._reasons[self._names[channel.node]] = problem

    def is_over(self, now: float) -> bool:
        """Return whether every runner has answered that is there to answer, or their time is over."""
        if now - self.begun > timing.DEBUG_ANSWER_S:
            return True
        return not any(
            channel.is_open and channel.unended and not _is_unheard(channel, now)
            for channel in self._asked.values()
        )

    @property
    def reports(self) -> dict[str, list[NodeFacts]]:
        """The reports of each node."""
        return self._reports

    def unanswered(self, now: float) -> dict[str, str]:
        """Return by node why it, or one of its runners, has not reported."""
        reasons = dict(self._reasons)
        for channel in self._late:
            if not channel.is_open:
                why = "its runner is gone"
            elif _is_unheard(channel, now):
                why = f"nothing has come from it for {now - channel.last_heard:.0f} s"
            else:
                why = f"it did not report within {timing.DEBUG_ANSWER_S:g} s"
            reasons[self._names[channel.node]] = why
        return reasons

    def unheard(self, now: float) -> dict[str, int]:
        """Return the seconds since anything has come from nodes that have not reported, where those are too
        many for a runner that lives."""
        found = [channel for channel in self._late if channel.is_open and _is_unheard(channel, now)]
        return {self._names[channel.node]: int(now - channel.last_heard) for channel in found}

    @property
    def _late(self) -> list[Channel]:
        return [channel for channel in self._asked.values() if channel.unended]


def _is_unheard(channel: Channel, now: float) -> bool:
    return now - channel.last_heard > timing.DEBUG_UNHEARD_S
