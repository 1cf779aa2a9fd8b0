"""The command ``rank-stacks``: what this node's ranks do, looked at three times within two seconds.

Flight recorders are asked after that, for PyTorch prints then and takes processor time, and read last.

A child of the runner, which must not wait for it: a file of /proc may hang with the process that it is about.
The report is JSON on stdout; what takes too long is left out, with the reason.
"""

from __future__ import annotations

import json
import sys
import time

from launch.remote.base import frames, processes, timing
from launch.remote.debug.bounded import NotRead, ReadTooLong
from launch.remote.debug.debug_records import NodeFacts, ProcessFacts
from launch.remote.debug.device_state import PortCounters, gpu_states, print_gpus
from launch.remote.debug.flight_record import read_record, request_record
from launch.remote.debug.nccl_ras import ADDRESS, NoRas, RasError, ask_ras
from launch.remote.debug.process_state import (
    ProcessState,
    environ_of,
    environ_rank,
    read_state,
    sockets_of,
    started_at,
    stuck_sockets,
    unsent_of,
)
from launch.remote.debug.python_stacks import PySpy
from launch.remote.debug.tcp_counters import received_bytes
from launch.remote.health.sysfs import has_nvidia_driver

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from launch.remote.debug.debug_records import Collective, DebugOrder, RasRank, Unsent

__all__ = ["main"]

_LOOKS = 3
_RAS_S = 2.5
_FILE_S, _FILES_S = 1.0, 1.5
"""Limits for one flight record, and for all those that were not asked for."""
_PROCESSES = 24
"""Processes of a rank whose facts are reported: its workers that load data are the most."""
_POLL_S = 0.25
_CLOCK_S = 0.05
"""Files' times come from a coarser clock, which may be behind by this much."""
_NAMED = 8
_REPORT = timing.DEBUG_PIECES * timing.DEBUG_PIECE


class _Watched:
    """A process and what was seen of it."""

    def __init__(self, pid: int, first: ProcessState) -> None:
        self.pid, self.first = pid, first
        self.facts: ProcessFacts = {
            "pid": pid,
            "inner_pid": first.inner_pid or pid,
            "name": first.name,
            "state": first.state,
            "kernel_function": first.kernel_function,
            "cpu_ms": 0,
            "ended_ms": 0,
            "io": 0,
            "switches": 0,
            "received": 0,
            "threads": [],
            "later": [],
            "problem": "",
            "unsent": [],
        }

    def look(self, spy: PySpy, limit: float) -> None:
        """Read its stacks, its main thread's alone where they were read before."""
        seconds = limit - time.monotonic()
        if seconds <= 0:
            self.facts["problem"] = self.facts["problem"] or "there was no time left to read its stacks"
            return
        threads, problem = spy.dump(self.pid, min(seconds, timing.DEBUG_STACK_S))
        if not self.facts["threads"]:
            self.facts["threads"], self.facts["problem"] = threads, problem
        elif threads:
            self.facts["later"].append({"frames": threads[0]["frames"]})

    def end(self, stuck: dict[str, Unsent], received: dict[str, int]) -> None:
        """Complete the facts with what has changed since the first look; ``received`` are the bytes since, by
        socket."""
        last = read_state(self.pid)
        if last is None:
            self.facts["state"] = "gone"
            return
        facts, first = self.facts, self.first
        facts["cpu_ms"], facts["switches"] = last.cpu_ms - first.cpu_ms, last.switches - first.switches
        facts["ended_ms"], facts["io"] = last.ended_ms - first.ended_ms, last.io - first.io
        if facts["state"] == "D" and last.state != "D":
            facts["state"] = last.state  # it was in the kernel for a moment
        sockets = sockets_of(self.pid) if stuck or received else set()
        facts["unsent"] = unsent_of(sockets, stuck)
        facts["received"] = sum(received[inode] for inode in sockets & received.keys())


def main(order: str) -> int:
    """Print the report on the ranks of an order, bencoded; or the GPUs for the word ``gpus``."""
    if order == "gpus":
        return print_gpus()
    wanted: DebugOrder = frames.unpack(order.encode("utf-8", "surrogateescape"))
    sys.stdout.write(_bounded(_collect(wanted)))
    sys.stdout.flush()
    return 0


def _collect(order: DebugOrder) -> NodeFacts:
    begun = time.monotonic()
    limit = order["until_ms"] / 1000
    look_limit = limit - timing.DEBUG_RECORD_S
    problems: list[str] = []
    ports = PortCounters() if order["node"] else None
    by_rank = _watched(order, problems)
    watched = [one for its in by_rank.values() for one in its]
    spy, before = PySpy(order["py_spy"]), received_bytes()
    environs = {rank: environ_of(its[-1].pid) for rank, its in by_rank.items() if its}
    for look in range(_LOOKS):
        due = min(look_limit, begun + look * timing.DEBUG_SPAN_S / (_LOOKS - 1))
        time.sleep(max(0.0, due - time.monotonic()))
        for one in watched:
            if not look or one.facts["threads"]:
                one.look(spy, look_limit)
    stuck, after = stuck_sockets(), received_bytes()
    received = {inode: count - before[inode] for inode, count in after.items() if inode in before}
    for one in watched:
        one.end(stuck, received)
    looked = time.monotonic() - begun
    asked = _ask(environs, by_rank)
    found: NodeFacts = {
        "looked_ms": int(looked * 1000),
        "ranks": [],
        "ports": ports.traffic() if ports is not None else [],
        "gpus": [],
        "ras": [],
        "problems": problems,
    }
    if order["node"] and has_nvidia_driver():
        found["gpus"], problem = gpu_states(max(0.5, look_limit - time.monotonic()))
        problems += [problem] if problem else []
        found["ras"] = _ras(environs, limit, problems)
    collectives = _records(asked, environs, limit, problems)
    until = min(limit, time.monotonic() + _FILES_S)
    for rank, its in sorted(by_rank.items()):
        if rank not in asked and its:  # a rank may have written its file by itself
            collectives[rank] = _collective(environs[rank], rank, its, until, problems)
        processes = [one.facts for one in its]
        found["ranks"].append({"rank": rank, "processes": processes, "collective": collectives.get(rank, [])})
    return found


def _ask(environs: dict[int, dict[str, str]], by_rank: dict[int, list[_Watched]]) -> dict[int, float]:
    """Ask ranks' flight recorders for their files; return when, in Unix seconds, of each that listens. A
    stopped process writes nothing."""
    asked = {}
    for rank, environ in environs.items():
        now = time.time()
        is_stopped = any(one.facts["state"] in ("T", "t") for one in by_rank[rank])
        if not is_stopped and request_record(environ, rank):
            asked[rank] = now
    return asked


def _records(
    asked: dict[int, float], environs: dict[int, dict[str, str]], limit: float, problems: list[str]
) -> dict[int, list[Collective]]:
    """Return the newest collective of each rank that was asked, once its file has come, or the time is
    over."""
    found: dict[int, list[Collective]] = {}
    faults: dict[int, str] = {}
    until = min(limit, time.monotonic() + timing.DEBUG_RECORD_S)
    while True:
        for rank in sorted(asked.keys() - found.keys()):
            left = min(_FILE_S, until - time.monotonic())
            if left <= 0:
                break
            try:
                record = read_record(environs[rank], rank, asked[rank] - _CLOCK_S, left)
            except NotRead as error:  # also of a file that is being written
                if left == _FILE_S or not isinstance(error, ReadTooLong):  # else the look's time was over
                    faults[rank] = str(error)
                continue
            if record:
                found[rank] = record
        if len(found) == len(asked) or time.monotonic() >= until:
            break
        time.sleep(_POLL_S)
    problems += [fault for rank, fault in faults.items() if rank not in found]
    missing = sorted(asked.keys() - found.keys() - faults.keys())
    if missing:
        ranks = ", ".join(map(str, missing[:_NAMED])) + ", ..." * (len(missing) > _NAMED)
        problems.append(f"no file of the flight recorder came in time, of rank {ranks}")
    return found


def _collective(
    environ: dict[str, str], rank: int, its: list[_Watched], until: float, problems: list[str]
) -> list[Collective]:
    """Return the newest collective of a rank's flight record; none where it has none, or none can be read."""
    try:
        return read_record(environ, rank, started_at(its[0].pid) if its else 0.0, until - time.monotonic())
    except NotRead as error:
        problems.append(str(error))
        return []


def _ras(environs: dict[int, dict[str, str]], limit: float, problems: list[str]) -> list[RasRank]:
    """Return what NCCL's RAS answers, which one process of the node listens for; none where NCCL has none."""
    environ = next(iter(environs.values()), {})
    if environ.get("NCCL_RAS_ENABLE") == "0":
        return []
    address = environ.get("NCCL_RAS_ADDR") or ADDRESS
    try:
        return ask_ras(address, min(_RAS_S, max(0.5, limit - time.monotonic())))
    except NoRas:
        return []
    except RasError as error:
        problems.append(str(error))
        return []


def _watched(order: DebugOrder, problems: list[str]) -> dict[int, list[_Watched]]:
    """Return the processes of each rank: of a launcher of the user's, those of each RANK that it has set."""
    by_rank: dict[int, list[_Watched]] = {}
    for rank, pid, started_in in zip(order["ranks"], order["pids"], order["containers"]):  # noqa: B905
        below = [pid, *processes.descendants(pid)]
        if started_in:
            inside = _in_container(started_in)
            below += inside
            if not inside:
                problems.append(f"no process of rank {rank}'s container was found ({started_in})")
        own = environ_rank(environ_of(pid))
        for one in below:
            number = environ_rank(environ_of(one)) if order["per_node"] else None
            if order["per_node"] and number in (None, own):
                continue
            its = by_rank.setdefault(rank if number is None else number, [])
            state = read_state(one) if len(its) < _PROCESSES else None
            if state is not None:
                its.append(_Watched(one, state))
    return by_rank


def _in_container(started_in: str) -> list[int]:
    """Return the processes that a daemon has started in a container, parents first."""
    name = started_in.partition(":")[2].encode()
    return sorted(processes.members([name])) if name else []


def _bounded(facts: NodeFacts) -> str:
    """Return the report as text of at most the size that the head takes: first other threads' stacks are left
    out, then those of all but the first process of a rank, then stacks, then halves of the longest list."""
    text = json.dumps(facts)
    for keep in range(3):
        if len(text) <= _REPORT:
            return text
        if not keep:
            facts["problems"].append(f"stacks were left out: the report had {len(text)} characters")
        for rank in facts["ranks"]:
            for place, process in enumerate(rank["processes"]):
                is_kept = keep < 1 or (keep < 2 and not place)  # noqa: PLR2004
                process["threads"] = process["threads"][:1] if is_kept else []
                process["later"] = process["later"] if is_kept else []
        text = json.dumps(facts)
    for rank in facts["ranks"]:
        rank["processes"] = rank["processes"][:1]
    lists: list[list[Any]] = [facts["ras"], facts["problems"], facts["ports"], facts["gpus"], facts["ranks"]]
    while len(text := json.dumps(facts)) > _REPORT:
        longest = max(lists, key=lambda one: len(json.dumps(one)))
        del longest[len(longest) // 2 :]
    return text
