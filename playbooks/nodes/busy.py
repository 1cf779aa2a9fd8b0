"""What a cluster's nodes are doing: jobs, records, removals."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from infra.inventory import Inventory
from infra.scale_plan import DEAD, Use
from launch.remote.base.names import is_removal
from launch.remote.node.slots import DRAINED
from playbooks.foreign_jobs import own_jobs, strangers
from playbooks.project import Stack
from playbooks.ssh.fanout import fan_out_hosts

if TYPE_CHECKING:
    from launch.client.events import JobState
    from launch.client.left_files import LeftFiles
    from launch.host import Host

__all__ = ["ASK_DRAIN", "COLLECTED", "STEP_S", "WORK", "collected_on", "copied_marks", "not_copied", "uses"]

STEP_S = 20.0
"""Limit of one node's answer to one query."""
COLLECTED = ".ranklift/collected"
"""Folder on a head with a file for each job that was collected whole, dated at the start of the collect."""
ASK_DRAIN = f"f={DRAINED.lstrip('/')}; test ! -f $f || head -c 4096 $f"
"""Shell line: prints the node's drain. A job may have put a pipe in its place, which has no end."""
WORK = ".work"
"""Suffix of such a file for a collect that copied also what the job left in its working folders."""
_ASK_COLLECTED = (
    'for f in .ranklift/jobs/*/state.json; do d=${f%/state.json}; j=${d##*/}; for n in "$j" '
    f'"$j{WORK}"; do if [ "{COLLECTED}/$n" -nt "$f" ]; then echo "$n"; fi; done; done'
)


def uses(stack: Stack, inventory: Inventory, holder: str = "") -> dict[str, Use]:
    """Return what every node of the inventory is doing, by name.

    A job counts for its head and for all nodes that it occupies or waits for; a node that does not answer is
    ``unknown`` unless Azure reports that it does not run. Slots that ``holder``, the caller, has count as
    free.
    """
    from playbooks.ssh.connection import Cluster

    by_name = {node.name: node for node in inventory.nodes}
    alive = [node for node in inventory.nodes if node.state not in DEAD]
    with Cluster(inventory, stack.folder) as cluster:
        answers = fan_out_hosts(
            cluster.host,
            alive,
            lambda host: _query(host, by_name[host.name].slots),
            what="listing its jobs",
            timeout=3 * STEP_S,
        )
    jobs: dict[str, list[str]] = {name: [] for name in by_name}
    held: dict[str, list[str]] = {name: [] for name in by_name}
    uncollected: dict[str, list[str]] = {name: [] for name in by_name}
    records: dict[str, int] = {}
    drains: dict[str, str] = {}
    unknown: dict[str, str] = {}
    removals: dict[str, str] = {}
    left: dict[str, Mapping[str, LeftFiles]] = {}
    unended: set[str] = set()
    believed = {name: answer for name, answer in answers.items() if not isinstance(answer, Exception)}
    listed = {name: answer.jobs for name, answer in believed.items()}
    foreign = strangers(stack, listed)
    told = {name: answer.collected for name, answer in believed.items() if name not in foreign}
    copied = copied_marks(stack, listed, told)
    for name, answer in answers.items():
        if isinstance(answer, Exception) or name in foreign:
            unknown[name] = foreign.get(name) or str(answer).removeprefix(f"{name}: ")
            continue
        states, collected, holders, drains[name], left[name] = answer
        unended.update(state.job for state in states if not state.is_terminal)
        others = [one for one in holders if one not in (holder, drains[name])]
        held[name] = [one for one in others if not is_removal(one)]
        removals[name] = next(filter(is_removal, others), "")
        records[name] = sum(state.is_terminal for state in states)
        for state in states:
            if state.is_terminal and state.job in collected:
                continue
            there = uncollected if state.is_terminal else jobs
            for where in (name, *state.nodes):
                if where in there:
                    there[where].append(state.job)
    return {
        name: Use(
            tuple(dict.fromkeys((*held[name], *jobs[name]))),
            records.get(name, 0),
            tuple(dict.fromkeys(uncollected[name])),
            unknown.get(name, ""),
            by_name[name].state in DEAD,
            removals.get(name, ""),
            tuple(one for one in held[name] if one not in jobs[name]),
            drains.get(name, ""),
            tuple(
                (job, str(files)) for job, files in not_copied(left.get(name, {}), unended, copied).items()
            ),
        )
        for name in by_name
    }


def copied_marks(
    stack: Stack, listed: Mapping[str, Iterable[JobState]], told: Mapping[str, Collection[str]]
) -> set[str]:
    """Return what collects have copied, of what each head has ``told`` as :func:`collected_on`: that is
    believed of a head's own jobs, by the jobs that all heads ``listed``."""
    own = own_jobs(stack, listed)
    return {mark for head, marks in told.items() for mark in marks if mark.removesuffix(WORK) in own[head]}


def not_copied(
    left: Mapping[str, LeftFiles], unended: Collection[str], copied: Collection[str]
) -> dict[str, LeftFiles]:
    """Return what ended jobs left in their working folders, without those that a collect ``copied``."""
    return {job: files for job, files in left.items() if job not in unended and f"{job}{WORK}" not in copied}


class _Query(NamedTuple):
    """What one node answers."""

    jobs: tuple[JobState, ...]
    """Those with this head."""
    collected: frozenset[str]
    holders: tuple[str, ...]
    """Who holds the node's slots."""
    drain: str
    left: Mapping[str, LeftFiles]


def _query(host: Host, slots: int) -> _Query:
    from launch.client.left_files import left_on
    from launch.client.query import list_every
    from launch.client.rpc import readable, rpc_argv, version_there
    from launch.code.node_code import remote_id
    from launch.remote.reading import parse, read

    drain = host.run(["sh", "-c", ASK_DRAIN], timeout=STEP_S).stdout.decode("utf-8", "replace").strip()
    remote = version_there(host, remote_id(), STEP_S)
    if remote is None:  # no job was ever launched there
        return _Query((), frozenset(), (), drain, {})
    jobs = list_every(host, remote=remote)
    done = host.run(rpc_argv(remote, "slots", str(slots)), timeout=STEP_S)
    with readable(host):
        taken = read(list[tuple[int, str]], parse(done.stdout))
    collected = collected_on(host) if jobs else frozenset()
    holders = tuple(holder for _, holder in taken)
    return _Query(jobs, collected, holders, drain, left_on(host, remote))


def collected_on(host: Host) -> frozenset[str]:
    """Return the ids of the jobs with this head that a collect copied whole, begun after their end; with the
    suffix :data:`WORK` also of those of which a collect copied what they left in their working folders."""
    found = host.run(["sh", "-c", _ASK_COLLECTED], timeout=STEP_S).stdout
    return frozenset(found.decode("utf-8", "replace").split())
