"""The verdict on the way between nodes: InfiniBand only where every connection of every rank says so."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from launch.remote.base.health_records import ProbeLine, ProbeVerdict, Promise
from launch.remote.probe import mpi_lines, nccl_lines, program_lines
from launch.remote.probe.transport_fact import INFINIBAND, ROCE, Device, Fact

__all__ = ["Seen", "Verdict", "judge", "read_line"]

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


def judge(seen: Iterable[Seen], ranks: Mapping[int, str], promise: Promise) -> Verdict:
    """Return what is proven of the way between nodes.

    ``ranks`` are those that must have shown a connection, by the node of each: without one nothing is proven.
    One connection that is not InfiniBand refuses all, and so does one without GPUDirect where ``promise`` has
    it.
    """
    known = list(seen)
    named = {(one.fact.process, found.number): found for one in known for found in one.fact.devices}
    ports = _ports(known)
    connections = [one._replace(fact=_resolved(one, named, ports)) for one in known if one.fact.transport]
    for one in connections:
        fact = one.fact
        if fact.transport != INFINIBAND:
            return _refused(one, fact.transport, f"{fact.library} uses {fact.transport} between nodes")
    if promise.get("gpudirect"):
        for one in connections:
            if one.fact.library == "NCCL" and not one.fact.gpudirect:
                return _refused(one, f"{INFINIBAND} without GPUDirect", "NCCL does without GPUDirect")
    silent = [] if any(one.fact.is_for_all for one in connections) else _silent(connections, ranks)
    if silent or not connections:
        node = ranks[silent[0]] if silent else ""
        who = "no rank" if len(silent) == len(ranks) else f"not every rank (rank {silent[0]} on {node})"
        return Verdict("unproven", "", f"{who} has shown a connection to another node", node, [])
    return Verdict("proven", _words(connections), "", "", _evidence(connections))


def _ports(known: Collection[Seen]) -> dict[str, set[str]]:
    """Return the InfiniBand ports of each node that has listed them."""
    listed = [one for one in known if one.fact.library == program_lines.PORTS]
    return {one.node: {found.name for found in one.fact.devices} for one in listed}


def _resolved(
    one: Seen, named: Mapping[tuple[str, str], Device], ports: Mapping[str, Collection[str]]
) -> Fact:
    """Return the fact with its devices' names, and as RoCE where one of them is an Ethernet device."""
    fact = one.fact
    if fact.transport != INFINIBAND:
        return fact
    if fact.library == "NCCL":
        unlisted = [Device(number, number, INFINIBAND) for number in fact.used]
        found = [named.get((fact.process, one.number), one) for one in unlisted]
        names = tuple(device.name for device in found)
        is_ethernet = any(device.transport == ROCE for device in found)
    else:
        names = fact.used
        is_ethernet = fact.library == "UCX" and not set(names).issubset(ports.get(one.node, names))
    return fact._replace(used=names, transport=ROCE if is_ethernet else INFINIBAND)


def _silent(connections: Collection[Seen], ranks: Mapping[int, str]) -> list[int]:
    return sorted(set(ranks).difference(one.rank for one in connections))


def _refused(one: Seen, transport: str, what: str) -> Verdict:
    rank = one.rank if one.fact.rank < 0 else one.fact.rank
    words = f"{transport} ({one.fact.library})"
    reason = f"{one.node}, rank {rank}: {what}: {one.line.strip()}"
    return Verdict("refused", words, reason, one.node, [_line(one)])


def _words(connections: Collection[Seen]) -> str:
    """Return a proven transport for people; the number of devices is that of the node that uses fewest."""
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
    return ", ".join(words)


def _evidence(connections: Iterable[Seen]) -> list[ProbeLine]:
    shown: dict[str, list[ProbeLine]] = {}
    for one in connections:
        lines = shown.setdefault(one.node, [])
        if len(lines) < _SHOWN:
            lines.append(_line(one))
    return [line for lines in shown.values() for line in lines]


def _line(one: Seen) -> ProbeLine:
    return {"rank": one.rank, "node": one.node, "line": one.line.strip()}
