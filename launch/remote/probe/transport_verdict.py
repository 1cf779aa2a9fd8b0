"""The verdict on the way between nodes: InfiniBand only where every connection of every rank says so."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from launch.remote.base.health_records import ProbeLine, ProbeVerdict, Promise
from launch.remote.probe import mpi_lines, nccl_lines, program_lines
from launch.remote.probe.transport_fact import INFINIBAND, ROCE, Device, Fact

__all__ = ["Evidence", "Seen", "Verdict", "read_line"]

_SHOWN = 2
"""Lines of each node that are kept as evidence."""


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


def read_line(text: str, node: str) -> Fact | None:
    """Return what a line printed on ``node`` says about its connections; None where it says nothing."""
    if "NCCL INFO" in text:
        return nccl_lines.read(text)
    if text.startswith(program_lines.MARK):
        return program_lines.read(text)
    if any(mark in text for mark in mpi_lines.MARKS):
        return mpi_lines.read(text, node)
    return None


class Evidence:
    """What is seen of the way between nodes that ``promise`` something of it; lines come in any number."""

    def __init__(self, promise: Promise) -> None:
        self._promise = promise
        self._devices: dict[tuple[str, str], Device] = {}
        """By process and number."""
        self._ports: dict[str, set[str]] = {}
        """Those of InfiniBand by node, where the node has listed them."""
        self._known: set[tuple[int, str, Fact]] = set()
        self._connections: list[Seen] = []
        self._refused: Verdict | None = None

    def add(self, one: Seen) -> Verdict | None:
        """Add a line; return a refusal where it is the first that asks for one.

        One connection that is not InfiniBand refuses all, and so does one of NCCL without GPUDirect where
        that is promised. A process lists its devices before its connections.
        """
        if one.fact.library == program_lines.PORTS and one.fact.devices:
            self._ports[one.node] = {found.name for found in one.fact.devices}
        else:
            self._devices.update({(one.fact.process, found.number): found for found in one.fact.devices})
        if not one.fact.transport or (one.rank, one.node, one.fact) in self._known:
            return None
        self._known.add((one.rank, one.node, one.fact))
        fact = self._resolved(one)
        self._connections.append(one._replace(fact=fact))
        transport, what = fact.transport, f"{fact.library} uses {fact.transport} between nodes"
        if transport == INFINIBAND:
            if fact.library != "NCCL" or fact.gpudirect or not self._promise.get("gpudirect"):
                return None
            transport, what = f"{INFINIBAND} without GPUDirect", "NCCL does without GPUDirect"
        if self._refused is not None:
            return None
        line: ProbeLine = {"rank": one.rank, "node": one.node, "line": one.line.strip()}
        reason = f"{one.node}, rank {one.rank if fact.rank < 0 else fact.rank}: {what}: {line['line']}"
        self._refused = Verdict("refused", f"{transport} ({fact.library})", reason, one.node, [line])
        return self._refused

    def _resolved(self, one: Seen) -> Fact:
        """Return the fact with its devices' names, and as RoCE where one of them is an Ethernet device."""
        fact = one.fact
        if fact.transport != INFINIBAND:
            return fact
        if fact.library == "NCCL":
            unlisted = [Device(number, number, INFINIBAND) for number in fact.used]
            found = [self._devices.get((fact.process, device.number), device) for device in unlisted]
            names = tuple(device.name for device in found)
            is_ethernet = any(device.transport == ROCE for device in found)
        else:
            names = fact.used
            is_ethernet = fact.library == "UCX" and not set(names) <= self._ports.get(one.node, set(names))
        return fact._replace(used=names, transport=ROCE if is_ethernet else INFINIBAND)

    def verdict(self, ranks: Mapping[int, str], *, is_by_node: bool = False) -> Verdict:
        """Return what is proven. ``ranks``, each with its node, must all have shown a connection, or with
        ``is_by_node`` one of each node: otherwise nothing is."""
        found = self._connections
        if self._refused is not None:
            return self._refused
        nodes = {one.node for one in found} if is_by_node else set()
        shown = {one.rank for one in found}
        silent = sorted(rank for rank, node in ranks.items() if rank not in shown and node not in nodes)
        if not found or (silent and not any(one.fact.is_for_all for one in found)):
            who = "no rank has"
            if found:
                who = f"rank {silent[0]} on {ranks[silent[0]]} has not"
            node = ranks[silent[0]] if silent else ""
            return Verdict("unproven", "", f"{who} shown a connection to another node", node, [])
        return Verdict("proven", _words(found, self._promise), "", "", _lines(found))


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
