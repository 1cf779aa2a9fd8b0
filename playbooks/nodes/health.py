"""Whether nodes are ready for jobs: each answers, its cloud-init succeeded, its clock is right."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

from infra.inventory import Inventory, Node, StackOutputs
from infra.scale_plan import DEAD
from launch.errors import HostKeyChanged, ManyNodesError, NodeUnreachable, ReplaceNodeError, RetryError
from launch.host import Host
from launch.nodeset import fold
from launch.remote.base import eviction
from launch.remote.base.payloads import Notice
from launch.remote.reading import Malformed, UnixTime, parse, read
from playbooks.cli import output
from playbooks.cli.merged_output import grouped
from playbooks.nodes import vm_ops
from playbooks.nodes.host_names import write_host_names
from playbooks.nodes.look import errors_of, finding_lines, is_passing, look
from playbooks.project import Stack
from playbooks.ssh.fanout import fan_out_hosts

__all__ = [
    "CLOCK_S",
    "OWN_MODULES",
    "Health",
    "clocks_off",
    "drain_of",
    "fate_of",
    "is_settled",
    "probe",
    "remarks",
    "unfit",
    "wait_for_nodes",
]

PROBE_S = 20.0
"""Limit of one node's answer to one query."""
CLOCK_S = 5.0
"""Tolerated clock difference in seconds: certificates and the rendezvous of ranks bear little more."""
PATIENCE_S = 20.0
"""How long a wrong clock is tolerated: time services set it soon after boot."""
PAUSE_S = 1.0
NAME_S = 15.0
"""How long nodes may stay silent before they are named."""
AGAIN_S = 60.0
"""Interval after which silent nodes are named again."""
LINKS_S = 60.0
"""How long errors of a look that pass by themselves are tolerated: drivers and links come up after boot."""
LOOK_AGAIN_S = 5.0
REREAD_S = 5.0
"""Interval of queries to Azure while nodes are missing."""
_OFF = frozenset({"stopped", "deallocated"})
"""States of a VM, as in the inventory, that no waiting ends."""
_MANY = 3
"""From this number of nodes on, clocks are compared with one another, not with this machine's."""
OWN_MODULES = frozenset(
    {
        *("ssh", "mounts", "package_update_upgrade_install", "write_files", "write_files_deferred"),
        *("runcmd", "scripts_user", "power_state_change", "users_groups", "set_hostname"),
    }
)
"""Modules of cloud-init without which a node is not what it was to be; with dashes in versions before 22."""
_MODULE = re.compile(r"\('([\w-]+)', ")
"""Beginning of an error of a module in result.json: a tuple of its name and an exception, as Python prints it
(cloudinit/cmd/main.py, ``status_wrapper``)."""
_QUERY = """\
echo "$(date +%s.%N) $(cat .ranklift/agent/notice.json 2>/dev/null)"
printf '%s\\n' "$(cat .ranklift/drained 2>/dev/null)"
if [ -e /run/cloud-init/result.json ]; then
  cat /run/cloud-init/result.json; echo; echo --
  { cat /var/log/cloud-init-output.log 2>/dev/null || sudo -n cat /var/log/cloud-init-output.log; } |
    grep -av ^ci-info | tail -n 8
elif [ ! -e /run/cloud-init/disabled ] && command -v cloud-init >/dev/null; then echo running; fi
"""
"""cloud-init writes result.json when it has ended, and its generator ``disabled`` where it does not run (its
documentation, "Status" and "Boot stages"). The reason of a failure is followed by three lines of its own and
by the table of keys, whose lines begin with ci-info. ``cloud-init status`` reads these, but is a Python
program, which hundreds of nodes need not start for every query."""


class _CloudInitStages(TypedDict):
    errors: list[str]


class _CloudInit(TypedDict):
    """cloud-init's result.json, as its documentation has it."""

    v1: _CloudInitStages


@dataclass(frozen=True, slots=True)
class Health:
    """A node's answer to a health check."""

    clock: float = 0.0
    """Seconds that its clock is ahead of this machine's."""
    blur: float = 0.0
    """Uncertainty of that in seconds: half of what the query took."""
    setting_up: bool = False
    """Whether its cloud-init still runs."""
    failed: tuple[str, ...] = ()
    """Errors of its cloud-init that a job could miss something by."""
    harmless: tuple[str, ...] = ()
    """Errors of cloud-init's modules that do nothing for this project."""
    last_lines: tuple[str, ...] = ()
    """End of cloud-init's output, when it failed."""
    fate: str = ""
    """What Azure has announced to do to it; else empty."""
    drain: str = ""
    """Since when no new job takes it, and whose word that is; else empty."""

    @classmethod
    def read(cls, text: str, sent: float, received: float) -> Health:
        """Read a node's answer to a query sent and answered at these times, in Unix time.

        >>> found = Health.read('112.5\\n\\n{"v1": {"errors": ["no disk"]}}\\n--\\nE: full', 100.0, 101.0)
        >>> found.clock, found.blur, found.setting_up, found.failed, found.harmless, found.last_lines
        (12.0, 0.5, False, ('no disk',), (), ('E: full',))
        """
        first, _, rest = text.partition("\n")
        drain, _, rest = rest.partition("\n")
        document, _, log = rest.partition("\n--\n")
        time_there, _, notice = first.partition(" ")
        try:
            clock = read(UnixTime, parse(time_there)) - (sent + received) / 2
        except Malformed:
            return cls()
        try:
            errors = tuple(read(_CloudInit, parse(document))["v1"]["errors"])
        except Malformed:
            errors = ()
        failed = tuple(error for error in errors if not _is_harmless(error))
        return cls(
            clock,
            (received - sent) / 2,
            setting_up=rest.strip() == "running",
            failed=failed,
            harmless=tuple(error for error in errors if error not in failed),
            last_lines=tuple(log.strip().split("\n")) if failed else (),
            fate=_fate(notice, received),
            drain=drain.strip(),
        )


def _is_harmless(error: str) -> bool:
    """Return whether an error is that of a module which neither Azure nor the nodes' document uses.

    An error that names no module is not harmless: it may be about the document as a whole.

    >>> _is_harmless("('ssh-import-id', OSError('no network'))"), _is_harmless("('write-files', OSError())")
    (True, False)
    """
    named = _MODULE.match(error)
    return named is not None and named[1].replace("-", "_") not in OWN_MODULES


def _fate(notice: str, now: float) -> str:
    try:
        event = read(Notice, parse(notice))
    except Malformed:
        return ""
    return eviction.words(event["type"], event["not_before"], now)


def probe(stack: Stack, inventory: Inventory, nodes: Sequence[Node]) -> dict[str, Health | Exception]:
    """Check every node; return its health, or the error for a node that does not answer."""
    from playbooks.ssh.connection import Cluster

    def query(host: Host) -> Health:
        sent = time.time()
        done = host.run(["sh", "-c", _QUERY], timeout=PROBE_S)
        return Health.read(done.stdout.decode("utf-8", "replace"), sent, time.time())

    with Cluster(inventory, stack.folder) as cluster:
        return fan_out_hosts(cluster.host, nodes, query, what="the health check", timeout=PROBE_S + 1)


def fate_of(answer: Health | Exception) -> str:
    """Return what Azure has announced to do to the node; empty when nothing is known."""
    return answer.fate if isinstance(answer, Health) else ""


def drain_of(answer: Health | Exception) -> str:
    """Return since when no new job takes the node, and whose word that is; empty where one may."""
    return answer.drain if isinstance(answer, Health) else ""


def clocks_off(answers: Mapping[str, Health | Exception]) -> dict[str, float]:
    """Return the seconds by which clocks are wrong, by node; a clock that is ahead has more than 0.

    Three nodes and more are compared with their median: then a node's clock is wrong, not this machine's.

    >>> clocks_off({"a": Health(clock=0.1), "b": Health(clock=-61.0), "c": Health(clock=0.2)})
    {'b': -61.1}
    """
    import statistics

    signs = {name: answer for name, answer in answers.items() if isinstance(answer, Health)}
    middle = statistics.median_low(sign.clock for sign in signs.values()) if len(signs) >= _MANY else 0.0
    return {
        name: round(sign.clock - middle, 3)
        for name, sign in signs.items()
        if abs(sign.clock - middle) - sign.blur > CLOCK_S
    }


def unfit(answers: Mapping[str, Health | Exception], nodes: Mapping[str, int]) -> dict[str, ReplaceNodeError]:
    """Return faults of nodes that answer, with remedies, by name; ``nodes`` are instance ids by name."""
    found: dict[str, ReplaceNodeError] = {}
    for name, answer in answers.items():
        if isinstance(answer, Health) and answer.failed:
            lines = "".join(f"\n  {line}" for line in (*answer.failed, *answer.last_lines))
            found[name] = ReplaceNodeError(
                name,
                f"cloud-init failed; its errors and the last lines of its output:{lines}\n"
                f"correct the cause, then `fab replace {nodes[name]} --reimage`",
            )
    for name, seconds in clocks_off(answers).items():
        way = "ahead" if seconds > 0 else "behind"
        found.setdefault(
            name,
            ReplaceNodeError(
                name,
                f"its clock is {abs(seconds):.0f} s {way}: certificates and the rendezvous of ranks fail; "
                f'`fab exec "sudo chronyc makestep" --nodes {nodes[name]}` sets it, or replace the node',
            ),
        )
    return found


def remarks(answers: Mapping[str, Health | Exception]) -> list[str]:
    """Return a line for each error of cloud-init that does not matter, and each drain, with their nodes.

    >>> remarks({"node000000": Health(harmless=("x",)), "node000001": Health(harmless=("x",))})
    ['node[000000-000001]: cloud-init reports an error that jobs do not depend on: x']
    """
    nodes: dict[str, list[str]] = {}
    for name, answer in answers.items():
        for error in answer.harmless if isinstance(answer, Health) else ():
            nodes.setdefault(error, []).append(name)
    drained = {name: text for name, answer in answers.items() if (text := drain_of(answer))}
    return [
        *(
            f"{fold(names)}: cloud-init reports an error that jobs do not depend on: {error}"
            for error, names in nodes.items()
        ),
        *(f"{line}: no new job before `fab undrain`" for line in grouped(drained)),
    ]


def wait_for_nodes(
    stack: Stack, limit: float, wanted: int | None = None, *, kept: Collection[str] = ()
) -> Inventory:
    """Wait until Azure has as many nodes as the stack wants and each is ready for jobs; return them.

    Nodes that are waited for are named soon, with the remedy for one that stays silent. Raises
    :class:`~launch.errors.ManyNodesError` naming nodes that are not ready within ``limit`` seconds, or that
    waiting does not help: a VM that is off, a failed cloud-init, a wrong clock, another host key, devices
    with errors. The devices of nodes that a replacement has ``kept``, by name, are not looked at: they may be
    the next to be replaced.
    """
    deadline = time.monotonic() + limit
    outputs = stack.outputs()
    wanted = outputs.node_count if wanted is None else wanted
    inventory = vm_ops.refresh(stack, outputs)
    read_at = time.monotonic()
    answers: dict[str, Health | Exception] = {}
    reported = -1
    naming = read_at + NAME_S
    clocks_until: float | None = None
    while True:
        open_ones = [node for node in inventory.nodes if not is_settled(answers.get(node.name))]
        if clocks_until is not None:  # a wrong clock may be right at the next query
            open_ones = list(inventory.nodes)
        answers |= probe(stack, inventory, open_ones)
        current = {node.name: answers[node.name] for node in inventory.nodes}
        _raise_for_changed_keys(current)
        good = sum(is_settled(answer) for answer in current.values())
        if good != reported:
            output.progress(f"{good} of {wanted} nodes answer")
            reported = good
        if good == len(current) and good >= wanted:
            ids = {node.name: node.instance_id for node in inventory.nodes}
            wrong = unfit(current, ids)
            if not wrong:
                _finish(stack, inventory, current, outputs)  # what is healthy can be used
                _wait_for_devices(stack, inventory, ids, deadline, kept)
                return inventory
            clocks_until = clocks_until or time.monotonic() + PATIENCE_S
            if any(isinstance(a, Health) and a.failed for a in current.values()) or (
                time.monotonic() > min(deadline, clocks_until)
            ):
                raise ManyNodesError("the health check", current | wrong)
        now = time.monotonic()
        if now > min(deadline, naming):
            waiting = ManyNodesError("waiting", _states(wanted, inventory, current))
            hint = _replacing(inventory, current)
            if now > deadline or _are_off(wanted, inventory, current):
                on = f"`{shlex.join(['fab', 'wait', '--stack', stack.name])}` continues to wait"
                waiting.args = ("\n".join(filter(None, (str(waiting), hint, on if now > deadline else ""))),)
                raise waiting
            for line in str(waiting).splitlines()[1:]:
                output.progress(f"waiting for {line}")
            if hint:
                output.progress(f"if this persists: {hint}")
            naming = now + AGAIN_S
        time.sleep(PAUSE_S)
        if time.monotonic() - read_at > REREAD_S:
            inventory = vm_ops.refresh(stack, outputs)
            read_at = time.monotonic()


def _wait_for_devices(
    stack: Stack, inventory: Inventory, ids: Mapping[str, int], deadline: float, kept: Collection[str]
) -> None:
    """Wait until each node that is not ``kept`` has what its VM size promises, for as long as links may take
    to come up; report what else a look finds. Raise :class:`~launch.errors.ManyNodesError` naming nodes with
    errors."""
    links_until = min(deadline, time.monotonic() + LINKS_S)
    looks = look(stack, inventory, [node for node in inventory.nodes if node.name not in kept])
    while True:
        wrong: dict[str, Exception] = {
            name: answer for name, answer in looks.items() if isinstance(answer, Exception)
        }
        wrong |= errors_of(looks, ids)
        if not wrong:
            break
        if time.monotonic() > links_until or not all(is_passing(looks[name]) for name in wrong):
            raise ManyNodesError("the look at the devices", looks | wrong)
        output.progress(f"waiting for {fold(wrong)}: {next(iter(wrong.values()))}")
        time.sleep(LOOK_AGAIN_S)
        looks |= look(stack, inventory, [node for node in inventory.nodes if node.name in wrong])
    for line in finding_lines(looks):
        output.progress(line)


def _finish(
    stack: Stack, inventory: Inventory, answers: Mapping[str, Health | Exception], outputs: StackOutputs
) -> None:
    for line in remarks(answers):
        output.progress(line)
    if outputs.dns_servers:
        write_host_names(stack, inventory)


def _raise_for_changed_keys(answers: Mapping[str, Health | Exception]) -> None:
    """Raise the error of a node that shows another host key: waiting does not help."""
    for answer in answers.values():
        if isinstance(answer, HostKeyChanged):
            raise answer


def is_settled(answer: Health | Exception | None) -> bool:
    """Return whether the node answers and its cloud-init has ended."""
    return isinstance(answer, Health) and not answer.setting_up


def _are_off(wanted: int, inventory: Inventory, answers: Mapping[str, Health | Exception]) -> bool:
    """Return whether all nodes waited for are switched off, which only a user switches on."""
    silent = [node for node in inventory.nodes if not is_settled(answers[node.name])]
    return bool(silent) and len(answers) >= wanted and all(node.state in _OFF for node in silent)


def _states(
    wanted: int, inventory: Inventory, answers: Mapping[str, Health | Exception]
) -> dict[str, object]:
    """Return by node its answer, or the error that names what is waited for."""
    states: dict[str, object] = {}
    for node in inventory.nodes:
        answer = answers[node.name]
        if isinstance(answer, Health) and answer.setting_up:
            answer = RetryError("its cloud-init still runs")
        elif isinstance(answer, Exception) and node.state in DEAD:
            answer = NodeUnreachable(node.name, f"Azure reports it as {node.state}")
        states[node.name] = answer
    for number in range(len(answers), wanted):
        name = f"(node {number + 1} of {wanted})"
        states[name] = NodeUnreachable(name, "Azure has not created it yet")
    return states


def _replacing(inventory: Inventory, answers: Mapping[str, Health | Exception]) -> str:
    """Return the remedy for nodes that do not answer; empty when each does."""
    silent = [node for node in inventory.nodes if isinstance(answers[node.name], Exception)]
    if not silent:
        return ""
    hint = shlex.join(["fab", "replace", str(silent[0].instance_id), "--stack", inventory.stack])
    what = "such a node" if len(silent) > 1 else "it"
    return f"`{hint}` replaces {what} (--reimage: on the same machine); the others keep working"
