"""The verdict on the way between nodes: InfiniBand only where every connection of every rank says so."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from launch.remote.base.health_records import ProbeLine, ProbeVerdict, Promise
from launch.remote.probe import mpi_lines, nccl_lines, program_lines
from launch.remote.probe.transport_fact import INFINIBAND, NVLINK, ROCE, TORN, Device, Fact

__all__ = ["Evidence", "Seen", "Verdict", "read_line"]

_SHOWN = 2
"""Lines of each node that are kept as evidence."""
_LONGEST = 500
"""Characters of such a line."""
_MOST = 1 << 17
"""Different connections, and devices, that are kept: 300 nodes with 8 ranks have a third of it."""


class Seen(NamedTuple):
    """A line and its printer."""

    rank: int
    """Of the process that the job's runner started."""
    node: str
    line: str
    fact: Fact


class Verdict(NamedTuple):
    """``reason`` is empty for a proven transport."""

    verdict: ProbeVerdict
    transport: str
    """For people: ``InfiniBand, 8 HCAs a node, GPUDirect``; empty where nothing was seen."""
    reason: str
    node: str
    """The one at fault; empty without one."""
    lines: list[ProbeLine]


def read_line(text: str, node: str) -> list[Fact]:
    """Return what a line printed on ``node`` says about its connections."""
    return list(filter(None, _facts(text, node)))


def _facts(text: str, node: str) -> Iterator[Fact | None]:
    if "NCCL INFO" in text or nccl_lines.is_rest(text):
        yield from map(nccl_lines.read, nccl_lines.messages(text))
    elif text.startswith(program_lines.MARK):
        yield program_lines.read(text)
    elif any(mark in text for mark in mpi_lines.MARKS):
        yield mpi_lines.read(text, node)


class Evidence:
    """What is seen of the way between nodes that ``promise`` something of it; lines come in any number."""

    def __init__(self, promise: Promise) -> None:
        self._promise = promise
        self._devices: dict[tuple[str, str], Device] = {}
        """By process, or its node, and number."""
        self._with_ethernet: set[str] = set()
        """Nodes that have listed a device of Ethernet."""
        self._ports: dict[str, set[str]] = {}
        """Those of InfiniBand by node, where the node has listed them."""
        self._known: set[tuple[int, str, Fact]] = set()
        self._connections: list[Seen] = []
        self._torn: Seen | None = None
        """The first connection of which nothing is known."""
        self._within_rack: set[int] = set()
        """Ranks that reach other nodes over NVLink."""
        self._refused: Verdict | None = None

    def add(self, one: Seen) -> Verdict | None:
        """Add a line; return a refusal where it is the first that asks for one.

        One connection that is not InfiniBand refuses all, and so does one of NCCL without GPUDirect where
        that is promised. A process lists its devices before its connections.
        """
        self._keep_devices(one)
        if one.fact.transport == NVLINK:
            self._within_rack.add(one.rank)
            return None
        if one.fact.transport == TORN:
            self._torn = self._torn or one
            return None
        if not one.fact.transport or (one.rank, one.node, one.fact) in self._known:
            return None
        fact = self._resolved(one)
        if len(self._known) < _MOST and fact.transport:
            self._known.add((one.rank, one.node, one.fact))
            self._connections.append(one._replace(fact=fact, line=one.line.strip()[:_LONGEST]))
        transport, what = fact.transport, f"{fact.library} uses {fact.transport} between nodes"
        if transport in ("", INFINIBAND):
            is_as_promised = fact.library != "NCCL" or fact.gpudirect or not self._promise.get("gpudirect")
            if not transport or is_as_promised:
                return None
            transport, what = f"{INFINIBAND} without GPUDirect", "NCCL does without GPUDirect"
        if self._refused is not None:
            return None
        line: ProbeLine = {"rank": one.rank, "node": one.node, "line": one.line.strip()[:_LONGEST]}
        reason = f"{one.node}, rank {one.rank if fact.rank < 0 else fact.rank}: {what}: {line['line']}"
        self._refused = Verdict("refused", f"{transport} ({fact.library})", reason, one.node, [line])
        return self._refused

    def _keep_devices(self, one: Seen) -> None:
        if one.fact.library == program_lines.PORTS:
            self._ports[one.node] = {found.name for found in one.fact.devices}
            return
        for found in one.fact.devices if len(self._devices) < _MOST else ():
            self._devices[one.fact.process, found.number] = self._devices[one.node, found.number] = found
            if found.transport == ROCE:
                self._with_ethernet.add(one.node)

    def _resolved(self, one: Seen) -> Fact:
        """Return the fact with its devices' names, and as RoCE where one of them is an Ethernet device;
        without a transport where that is unknown."""
        fact = one.fact
        if fact.transport != INFINIBAND:
            return fact
        if fact.library == "NCCL":
            # processes of a node count its devices alike, and one's list may be torn
            listed = [
                self._devices.get((fact.process, number)) or self._devices.get((one.node, number))
                for number in fact.used
            ]
            if not all(listed) and one.node in self._with_ethernet:
                return fact._replace(transport="")
            names = tuple(
                number if found is None else found.name
                for number, found in zip(fact.used, listed)  # noqa: B905  (strict= is Python 3.10's)
            )
            is_ethernet = any(found is not None and found.transport == ROCE for found in listed)
        else:
            names = fact.used
            ports = (
                list(self._ports.values()) if fact.is_for_all else [self._ports.get(one.node, {"", *names})]
            )
            is_ethernet = any(not found or not found.issuperset(names) for found in ports)
        return fact._replace(used=names, transport=ROCE if is_ethernet else INFINIBAND)

    def verdict(self, ranks: Mapping[int, str], *, is_by_node: bool = False) -> Verdict:
        """Return what is proven. ``ranks``, each with its node, must all have shown a connection, or with
        ``is_by_node`` one of each node: where some have not, or a line is torn, the proof has failed. Where
        none has, there is nothing to prove it with."""
        found = self._connections
        if self._refused is not None:
            return self._refused
        if not found:
            reason = (
                "no rank has shown a connection to another node: their libraries print none that is known"
            )
            return Verdict("unproven", "", reason, "", [])
        nodes = {one.node for one in found} if is_by_node else set()
        shown = {one.rank for one in found} | self._within_rack
        missing = {rank: node for rank, node in ranks.items() if rank not in shown and node not in nodes}
        what = "has not shown a connection to another node, though others have"
        if any(one.fact.is_for_all for one in found):
            missing = self._without_port(ranks)
            what = "has not listed its ports of InfiniBand, by which its connections would be known"
        for rank, node in sorted(missing.items()):
            return Verdict("failed", "", f"rank {rank} on {node} {what}", node, [])
        torn = self._torn
        if torn is not None:
            line: ProbeLine = {"rank": torn.rank, "node": torn.node, "line": torn.line.strip()[:_LONGEST]}
            reason = f"{torn.node}, rank {torn.rank}: a line lacks a part, and its connection is unknown: "
            return Verdict("failed", "", reason + line["line"], torn.node, [line])
        return Verdict("proven", _words(found, self._promise), "", "", _lines(found))

    def _without_port(self, ranks: Mapping[int, str]) -> dict[int, str]:
        """Return the ranks on nodes that have not listed ports of InfiniBand, where others have: what one
        rank prints of all holds for nodes that have such a port."""
        return {rank: node for rank, node in ranks.items() if self._ports and not self._ports.get(node)}


def _words(connections: Collection[Seen], promise: Promise) -> str:
    """Return a proven transport for people; the number of devices is that of the node that uses fewest. What
    MPI uses proves nothing of NCCL, which MPI may only start."""
    used: dict[str, set[str]] = {}
    for one in connections:
        if one.fact.used:
            used.setdefault(one.node, set()).update(one.fact.used)
    words = [INFINIBAND]
    if used:
        fewest = min(map(len, used.values()))
        words.append(f"{fewest} HCA{'s' * (fewest > 1)} a node")
    if all(one.fact.gpudirect for one in connections):
        words.append("GPUDirect")
    if promise.get("gpus") and all(one.fact.library != "NCCL" for one in connections):
        words.append("by MPI: NCCL was not probed")
    return ", ".join(words)


def _lines(connections: Iterable[Seen]) -> list[ProbeLine]:
    shown: dict[str, list[ProbeLine]] = {}
    for one in connections:
        lines = shown.setdefault(one.node, [])
        if len(lines) < _SHOWN:
            lines.append({"rank": one.rank, "node": one.node, "line": one.line.strip()})
    return [line for lines in shown.values() for line in lines]
