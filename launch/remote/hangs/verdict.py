"""The verdict on a hanging job: which rank keeps the others waiting, and in which way.

Pure: the same facts give the same verdict. The kinds are tried in the order in which one explains the next: a
rank that is stopped is also missing from the collective that the others wait in.
"""

from __future__ import annotations

from launch.remote.hangs.looked_ranks import Rank, by_place, others, rank_of, shown
from launch.remote.hangs.movement import computes, transfers
from launch.remote.hangs.places import NOWHERE
from launch.remote.hangs.stack_folding import format_ranks, ranks_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from launch.remote.debug.debug_records import DebugFacts, ProcessFacts, RasRank, Verdict, VerdictKind

__all__ = ["judge"]

_STOPPED = ("T", "t")
_WAKES = 2
"""Voluntary context switches of a waiting rank's main thread that show that it moves; a stuck one has
none."""
_POLLS = 500
"""Number of them from which they show nothing in a library that polls, which looks for messages and sleeps in
turns, whether any come or not. MPIs do so on request (I_MPI_THREAD_YIELD=3 of Intel MPI, MPICH's
MPIR_CVAR_ENABLE_HEAVY_YIELD, threads_pthreads_yield_strategy of Open MPI 5), and Horovod 0.28 always, in
horovod/torch/mpi_ops_v2.cc. Seen: 3000 to 23000 by MPIs, of 16 ranks on two processors."""
_MOST_DEAD = 4


def judge(facts: DebugFacts) -> Verdict:
    """Return the verdict on what is known of a job's ranks."""
    ranks = [rank_of(number, node, its) for number, (node, its) in sorted(ranks_of(facts).items())]
    verdict = (
        _stopped(ranks)
        or _in_kernel(ranks)
        or _cut_off(facts, ranks)
        or _ended(facts, ranks)
        or _slow(facts, ranks)
        or _by_ras(facts, ranks)
        or _mismatched_sequence(ranks)
        or _dead_network(facts, ranks)
        or _missing(facts, ranks)
        or _mismatched(ranks)
        or _compute(ranks)
        or _unknown(facts, ranks)
    )
    verdict["notes"] += _notes(facts, ranks)
    return verdict


def _verdict(kind: VerdictKind, text: str, ranks: Iterable[Rank] = (), nodes: Iterable[str] = ()) -> Verdict:
    at_fault = list(ranks)
    names = list(dict.fromkeys([*(rank.node for rank in at_fault), *nodes]))
    return {
        "kind": kind,
        "text": text,
        "ranks": [rank.number for rank in at_fault],
        "nodes": names,
        "notes": [],
    }


# -- the kinds ------------------------------------------------------------------------------------


def _stopped(ranks: Sequence[Rank]) -> Verdict | None:
    found = [rank for rank in ranks if any(one["state"] in _STOPPED for one in rank.processes)]
    if not found:
        return None
    its = next(one for one in found[0].processes if one["state"] in _STOPPED)
    why = "by a debugger" if its["state"] == "t" else "by a signal such as SIGSTOP"
    remedy = (
        f"`kill -CONT {its['pid']}` there lets it go on" if its["state"] == "T" else "let the debugger go on"
    )
    verb = "is" if len(found) == 1 else "are"
    text = f"{others(ranks, found)}{shown(found)} {verb} stopped {why} (process {its['pid']}): {remedy}"
    return _verdict("stopped", text, found)


def _in_kernel(ranks: Sequence[Rank]) -> Verdict | None:
    found = [rank for rank in ranks if any(map(_hangs_in_kernel, rank.processes))]
    if not found:
        return None
    its = next(filter(_hangs_in_kernel, found[0].processes))
    function = its["kernel_function"] or "an unnamed function"
    verb = "hangs" if len(found) == 1 else "hang"
    text = (
        f"{others(ranks, found)}{shown(found)} {verb} in the kernel (state D, process {its['pid']}, in "
        f"{function}): a disk, a file system or a driver does not answer"
    )
    return _verdict("kernel", text, found)


def _hangs_in_kernel(process: ProcessFacts) -> bool:
    """Return whether a process was in state D all the time: one that reads much is often in it, and wakes."""
    return process["state"] == "D" and process["switches"] < _WAKES


def _cut_off(facts: DebugFacts, ranks: Sequence[Rank]) -> Verdict | None:
    """Judge nodes from which the head has nothing any more, whatever the others wait in."""
    nodes = sorted(facts["unheard_s"])
    if not nodes:
        return None
    seconds = max(facts["unheard_s"].values())
    more = f" and {len(nodes) - _MOST_DEAD} more" if len(nodes) > _MOST_DEAD else ""
    verb = "is" if len(nodes) == 1 else "are"
    text = (
        f"{others(ranks, [])}{', '.join(nodes[:_MOST_DEAD])}{more} {verb} cut off or dead: nothing has come "
        f"from there for {seconds} s"
    )
    return _verdict("dead-network", text, nodes=nodes)


def _ended(facts: DebugFacts, ranks: Sequence[Rank]) -> Verdict | None:
    """Judge ranks that have ended while others wait for them."""
    ended = {int(rank): status for rank, status in facts["ended"].items()}
    waiting = others(ranks, [])
    if not (ended and waiting):
        return None
    gone = [
        Rank(number, facts["node_of"].get(str(number), "?"), None, (), (NOWHERE,), -1)
        for number in sorted(ended)
    ]
    statuses = ", ".join(map(str, sorted(set(ended.values()))))
    verb = "has" if len(gone) == 1 else "have"
    text = f"{waiting}{shown(gone)} {verb} ended already, with exit status {statuses}"
    return _verdict("missing-rank", text, gone)


def _slow(facts: DebugFacts, ranks: Sequence[Rank]) -> Verdict | None:
    """Judge a job whose waiting ranks move between two looks, or that prints."""
    waiting = [rank for rank in ranks if any(place.operation for place in rank.places)]
    moving = [rank for rank in waiting if _moves(rank)]
    said = [] if facts["per_node"] else facts["printed"]  # a user's own launcher does not show whose it is
    printed = [rank.number for rank in ranks if rank.number in said and (rank in waiting or not waiting)]
    if not (printed or 2 * len(moving) > len(waiting) > 0):
        return None
    what = f"{len(moving)} of {len(ranks)} ranks moved" if moving else f"{format_ranks(printed)} printed"
    counts = {rank.number: sum(bool(place.operation) for place in rank.places) for rank in ranks}
    least = min(counts.values(), default=0)
    late = [rank for rank in ranks if counts[rank.number] == least]
    text = f"slow and not stuck: {what} while they were looked at"
    if 0 < len(late) <= max(1, len(ranks) // 4) and least < max(counts.values()):
        place = next((place for place in late[0].places if not place.operation), late[0].place)
        verb = "waits" if len(late) == 1 else "wait"
        text += f"; {shown(late)} {verb} least for others: in {place.text}"
        return _verdict("slow", text, late)
    return _verdict("slow", text)


def _moves(rank: Rank) -> bool:
    if any((one.operation, one.line) != (rank.place.operation, rank.place.line) for one in rank.places):
        return True
    if rank.process is None:
        return False
    if rank.place.is_mpi and rank.process["received"] > 0:
        return True
    switches = rank.process["switches"]
    return switches >= _WAKES and not (rank.place.polls and switches >= _POLLS)


def _by_ras(facts: DebugFacts, ranks: Sequence[Rank]) -> Verdict | None:
    """Judge ranks that, by NCCL's own account, do not answer, or have started fewer collectives."""
    of_process: dict[tuple[str, int], list[Rank]] = {}
    for rank in ranks:
        for pid in {process["inner_pid"] for process in rank.processes}:
            of_process.setdefault((rank.node, pid), []).append(rank)
    groups: dict[str, dict[int, RasRank]] = {}
    for part in (part for parts in facts["nodes"].values() for part in parts):
        for one in part["ras"]:
            groups.setdefault(one["group"], {})[one["rank"]] = one
    for group in sorted(groups.values(), key=len, reverse=True):
        its = [group[number] for number in sorted(group)]
        most = max((one["operations"] for one in its), default=-1)
        behind = [one for one in its if one["operations"] < most]
        if not behind or 2 * len(behind) > max(len(its), 2):
            continue
        found = []
        for one in behind:
            here = of_process.get((facts["addresses"].get(one["host"], ""), one["pid"]), [])
            if len(here) > 1 and len(its) == len(ranks):  # containers of one node repeat numbers
                here = [rank for rank in here if rank.number == one["rank"]]
            found += here if len(here) == 1 else []
        first = behind[0]
        what = f"has started {first['operations']} of {most} collectives"
        if first["operations"] < 0:
            what = first["state"] if first["state"].startswith("does") else f"is {first['state']}"
        at = f", and is in {found[0].place.text}" if found and found[0].place != NOWHERE else ""
        who = f"NCCL's rank {first['rank']} (process {first['pid']} on {first['host']})"
        who = shown(found) if found else who
        text = f"{others(ranks, found)}{who} {what}, by NCCL's account{at}"
        is_elsewhere = not found or not found[0].place.operation
        return _verdict("missing-rank" if is_elsewhere else "mismatched-collective", text, found)
    return None


def _mismatched_sequence(ranks: Sequence[Rank]) -> Verdict | None:
    """Judge ranks whose flight recorders number the collective that they are in differently."""
    known = [rank for rank in ranks if rank.sequence >= 0]
    numbers = [rank.sequence for rank in known]
    if len(known) < 2 or len(set(numbers)) < 2:  # noqa: PLR2004
        return None
    usual = max(set(numbers), key=lambda one: (numbers.count(one), one))
    odd = [rank for rank in known if rank.sequence != usual]
    if any(not rank.place.operation for rank in odd):
        return None  # it is not in a collective: it is late, and missing from the others'
    its = odd[0]
    text = (
        f"{others(ranks, odd)}{shown(odd)} {'is' if len(odd) == 1 else 'are'} at {its.place.operation} "
        f"#{its.sequence}{f' at {its.place.line}' if its.place.line else ''}"
    )
    return _verdict("mismatched-collective", text, odd)


def _dead_network(facts: DebugFacts, ranks: Sequence[Rank]) -> Verdict | None:
    """Judge connections whose data is sent again and again."""
    pairs: dict[frozenset[str], int] = {}
    for rank in ranks:
        for process in rank.processes:
            for one in process["unsent"]:
                other = facts["addresses"].get(one["address"])
                if other is not None and other != rank.node:
                    pair = frozenset((rank.node, other))
                    pairs[pair] = pairs.get(pair, 0) + 1
    down = {
        node: [port["name"] for part in parts for port in part["ports"] if port["state"] != "ACTIVE"]
        for node, parts in facts["nodes"].items()
    }
    down = {node: names for node, names in down.items() if names}
    if not pairs:
        return _port_down(ranks, down)
    nodes = sorted({node for pair in pairs for node in pair})
    common = [node for node in nodes if all(node in pair for pair in pairs)]
    at_fault = common if len(pairs) > 1 and len(common) == 1 else nodes
    count = sum(pairs.values())
    listed = ", ".join(" and ".join(sorted(pair)) for pair in sorted(pairs, key=sorted)[:_MOST_DEAD])
    more = f" and {len(pairs) - _MOST_DEAD} more pairs" if len(pairs) > _MOST_DEAD else ""
    named = f"{at_fault[0]} is cut off: " if len(at_fault) == 1 else ""
    text = (
        f"{others(ranks, [])}{named}no data passes between {listed}{more}: {count} "
        f"connection{'s' * (count != 1)} repeat{'s' * (count == 1)} what is not acknowledged"
    )
    return _verdict("dead-network", text, nodes=at_fault)


def _port_down(ranks: Sequence[Rank], down: dict[str, list[str]]) -> Verdict | None:
    if not down or not others(ranks, []):
        return None
    listed = "; ".join(f"{', '.join(ports)} of {node}" for node, ports in sorted(down.items())[:_MOST_DEAD])
    text = f"{others(ranks, [])}InfiniBand ports are not active: {listed}"
    return _verdict("dead-network", text, nodes=sorted(down))


def _missing(facts: DebugFacts, ranks: Sequence[Rank]) -> Verdict | None:
    """Judge ranks that are elsewhere while others wait in a collective, or that did not report."""
    waiting = [rank for rank in ranks if rank.place.operation]
    if not waiting:
        return None
    elsewhere = [rank for rank in ranks if not rank.place.operation]
    known = [rank for rank in elsewhere if rank.place != NOWHERE]
    at_fault = known or [rank for rank in elsewhere if not (rank.process and rank.process["problem"])]
    if at_fault:
        groups = by_place(at_fault)
        parts = [
            f"{shown(its)} {'is' if len(its) == 1 else 'are'} in {place.text}" for place, its in groups[:3]
        ]
        text = others(ranks, at_fault) + "; ".join(parts)
        return _verdict("missing-rank", text, at_fault)
    silent = sorted(facts["unanswered"])
    if not silent:
        return None
    numbers = [int(rank) for rank, node in facts["node_of"].items() if node in silent]
    unseen = [
        Rank(number, facts["node_of"][str(number)], None, (), (NOWHERE,), -1) for number in sorted(numbers)
    ]
    reported = {rank.number for rank in ranks}
    unseen = [
        rank for rank in unseen if rank.number not in reported and str(rank.number) not in facts["ended"]
    ]
    why = facts["unanswered"][silent[0]]
    text = f"{others(ranks, [])}nothing is known of {shown(unseen) if unseen else ', '.join(silent)}: {why}"
    return _verdict("missing-rank", text, unseen, silent)


def _mismatched(ranks: Sequence[Rank]) -> Verdict | None:
    """Judge ranks that all wait, but in different collectives."""
    groups = by_place([rank for rank in ranks if rank.place.operation])
    if len(groups) < 2:  # noqa: PLR2004
        return None
    usual, odd = groups[0][1], [rank for _, its in groups[1:] for rank in its]
    parts = [
        f"{shown(its)} {'waits' if len(its) == 1 else 'wait'} in {place.text}" for place, its in groups[1:4]
    ]
    text = others(ranks, odd) + "; ".join(parts)
    if len(groups[1][1]) == len(usual):
        return _verdict("mismatched-collective", text, [*usual, *odd])
    return _verdict("mismatched-collective", text, odd)


def _compute(ranks: Sequence[Rank]) -> Verdict | None:
    """Judge ranks of which none waits for another, and some work, or are at different lines of their
    program."""
    moving = [rank for rank in ranks if len({(place.line, place.inside) for place in rank.places}) > 1]
    what = "moved while they were looked at"
    if not moving and not any(rank.place.operation for rank in ranks):
        moving = [rank for rank in ranks if transfers(rank) or (computes(rank) and rank.place != NOWHERE)]
        what = "compute, read or write"  # a program without a known stack may spin while it waits
    if not moving:
        return None
    text = (
        f"slow and not stuck: no rank waits in a collective that is known, and {len(moving)} of {len(ranks)} "
        f"{what}, such as {moving[0].name} in {moving[0].place.text}"
    )
    return _verdict("slow", text)


def _unknown(facts: DebugFacts, ranks: Sequence[Rank]) -> Verdict:
    waiting = by_place([rank for rank in ranks if rank.place.operation])
    known = [rank for rank in ranks if rank.place != NOWHERE]
    if waiting and len(waiting[0][1]) == len(known):
        count = (
            f"{len(ranks)} ranks"
            if len(known) == len(ranks)
            else f"{len(known)} ranks whose stacks are known"
        )
        text = f"all {count} wait in {waiting[0][0].text}, and nothing shows which of them is missing"
        return _verdict("unknown", text)
    groups = by_place(known)
    if groups:
        place, its = groups[0]
        most = f"{len(its)} of {len(ranks)} are in {place.text}"
        return _verdict("unknown", f"no rank waits in a collective that is known; {most}")
    if not ranks:
        why = next(iter(facts["unanswered"].values()), "no rank has a process")
        return _verdict("unknown", f"nothing is known of the ranks: {why}")
    problem = next(
        (rank.process["problem"] for rank in ranks if rank.process and rank.process["problem"]), ""
    )
    why = problem or "their programs are not Python's, of which alone stacks can be read"
    return _verdict("unknown", f"no stack of any rank is known: {why}")


def _notes(facts: DebugFacts, ranks: Sequence[Rank]) -> list[str]:
    """Return what limits the verdict, and what else was noticed, each once."""
    notes = [f"{node}: {why}" for node, why in sorted(facts["unanswered"].items())]
    for node, parts in sorted(facts["nodes"].items()):
        notes += [f"{node}: {problem}" for part in parts for problem in part["problems"]]
        for gpu in (gpu for part in parts for gpu in part["gpus"]):
            if gpu["error"]:
                notes.append(f"{node}: GPU {gpu['index']} does not answer: {gpu['error']}")
            elif gpu["clock_events"] > 0 and gpu["clock_events"] & _HELD_DOWN:
                notes.append(f"{node}: GPU {gpu['index']} has its clocks held down: {gpu['clock_events']:#x}")
    without = [rank for rank in ranks if rank.process is not None and rank.process["problem"]]
    by_problem: dict[str, list[int]] = {}
    for rank in without:
        assert rank.process is not None  # noqa: S101  as filtered above
        by_problem.setdefault(rank.process["problem"], []).append(rank.number)
    notes += [f"no stacks of {format_ranks(numbers)}: {why}" for why, numbers in by_problem.items()]
    return list(dict.fromkeys(notes))


_HELD_DOWN = 0xE8
"""Clock events that mean trouble: hardware slowdown, software and hardware thermal slowdown, power brake
(nvml.h; Azure/cyclecloud-healthagent)."""
