"""Whether nodes are fit for work: each answers, its cloud-init has ended well, its clock is right."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from infra.inventory import Inventory, Node
from infra.scale_plan import DEAD
from launch.errors import HostKeyChanged, ManyNodesError, NodeUnreachable, ReplaceNodeError, RetryError
from launch.remote.base import eviction
from playbooks.cli import output as render
from playbooks.project import Stack
from playbooks.ssh.fanout import fan_out

__all__ = ["CLOCK_S", "Sign", "clocks_off", "fate_of", "probe", "unfit", "wait_for_nodes"]

PROBE_S = 20.0
"""How long one node may take to answer one question."""
CLOCK_S = 5.0
"""By how many seconds a clock may differ: certificates and the rendezvous of ranks bear little more."""
PATIENCE_S = 20.0
"""How long a clock that is off is waited for: time services set it soon after boot."""
PAUSE_S = 1.0
NAME_S = 15.0
"""How long nodes that do not answer are waited for before they are named."""
AGAIN_S = 60.0
"""After how long they are named again."""
REREAD_S = 5.0
"""How often Azure is asked again while nodes are missing."""
_OFF = frozenset({"stopped", "deallocated"})
"""States of a VM, as the inventory has them, that end by no waiting."""
_MANY = 3
"""From so many nodes on, their clocks are compared with one another rather than with this machine's."""
_ASK = """\
echo "$(date +%s.%N) $(cat .ranklift/notice.json 2>/dev/null)"
if [ -e /run/cloud-init/result.json ]; then
  cat /run/cloud-init/result.json; echo; echo --
  { cat /var/log/cloud-init-output.log 2>/dev/null || sudo -n cat /var/log/cloud-init-output.log; } |
    grep -av ^ci-info | tail -n 8
elif [ ! -e /run/cloud-init/disabled ] && command -v cloud-init >/dev/null; then echo running; fi
"""
"""cloud-init writes result.json when it has ended, and its generator ``disabled`` where it does not run (its
documentation, "Status" and "Boot stages"). The reason of a failure is followed by three lines of its own and
by the table of keys, whose lines begin with ci-info. ``cloud-init status`` reads these, but is a Python
program, which hundreds of nodes need not start for every question."""


@dataclass(frozen=True, slots=True)
class Sign:
    """What a node that answers says of itself."""

    clock: float = 0.0
    """Seconds that its clock is ahead of this machine's."""
    blur: float = 0.0
    """By how many seconds that may be wrong: half of what the question took."""
    setting_up: bool = False
    """Whether its cloud-init still runs."""
    failed: tuple[str, ...] = ()
    """What failed in its cloud-init."""
    last_lines: tuple[str, ...] = ()
    """Of cloud-init's output, when something failed."""
    fate: str = ""
    """What Azure is about to do to it, if it has said so."""

    @classmethod
    def read(cls, text: str, sent: float, received: float) -> Sign:
        """From a node's answer to a question sent and answered then, in Unix time.

        >>> Sign.read('112.5\\n{"v1": {"errors": ["no disk"]}}\\n--\\nE: full', 100.0, 101.0)
        Sign(clock=12.0, blur=0.5, setting_up=False, failed=('no disk',), last_lines=('E: full',), fate='')
        """
        first, _, rest = text.partition("\n")
        document, _, output = rest.partition("\n--\n")
        time_there, _, notice = first.partition(" ")
        try:
            clock = float(time_there) - (sent + received) / 2
        except ValueError:
            return cls()
        try:
            errors = tuple(map(str, json.loads(document)["v1"]["errors"]))
        except (ValueError, KeyError, TypeError):
            errors = ()
        return cls(
            clock,
            (received - sent) / 2,
            setting_up=rest.strip() == "running",
            failed=errors,
            last_lines=tuple(output.strip().split("\n")) if errors else (),
            fate=_fate(notice, received),
        )


def _fate(notice: str, now: float) -> str:
    try:
        told = json.loads(notice)
        return eviction.words(str(told["type"]), float(told["not_before"]), now)
    except (ValueError, KeyError, TypeError):
        return ""


def probe(stack: Stack, inventory: Inventory, nodes: Sequence[Node]) -> dict[str, Sign | Exception]:
    """Asks every node for a sign of life; the error for each that gave none."""
    from playbooks.ssh.connection import Cluster

    by_name = {node.name: node for node in nodes}
    with Cluster(inventory, stack.folder) as cluster:

        def ask(name: str) -> Sign:
            with cluster.host(by_name[name]) as host:
                sent = time.time()
                done = host.run(["sh", "-c", _ASK], timeout=PROBE_S)
                return Sign.read(done.stdout.decode("utf-8", "replace"), sent, time.time())

        return fan_out(ask, by_name, what="the answer", timeout=PROBE_S + 1)


def fate_of(answer: Sign | Exception) -> str:
    """What Azure is about to do to a node that answered so; empty when nothing is known of that."""
    return answer.fate if isinstance(answer, Sign) else ""


def clocks_off(answers: Mapping[str, Sign | Exception]) -> dict[str, float]:
    """The nodes whose clocks are off, and by how many seconds; ahead is more than 0.

    Three and more are compared with the middle one of them: then it is a node's clock, not this machine's.

    >>> clocks_off({"a": Sign(clock=0.1), "b": Sign(clock=-61.0), "c": Sign(clock=0.2)})
    {'b': -61.1}
    """
    import statistics

    signs = {name: answer for name, answer in answers.items() if isinstance(answer, Sign)}
    middle = statistics.median_low(sign.clock for sign in signs.values()) if len(signs) >= _MANY else 0.0
    return {
        name: round(sign.clock - middle, 3)
        for name, sign in signs.items()
        if abs(sign.clock - middle) - sign.blur > CLOCK_S
    }


def unfit(answers: Mapping[str, Sign | Exception], nodes: Mapping[str, int]) -> dict[str, ReplaceNodeError]:
    """What is wrong with nodes that answer and what to do, by name; ``nodes`` are instance ids by name."""
    found: dict[str, ReplaceNodeError] = {}
    for name, answer in answers.items():
        if isinstance(answer, Sign) and answer.failed:
            said = "".join(f"\n  {line}" for line in (*answer.failed, *answer.last_lines))
            found[name] = ReplaceNodeError(
                name,
                f"cloud-init failed; its errors and the last lines of its output:{said}\n"
                f"mend what it stumbled over, then `fab replace {nodes[name]} --reimage`",
            )
    for name, seconds in clocks_off(answers).items():
        way = "ahead" if seconds > 0 else "behind"
        found.setdefault(
            name,
            ReplaceNodeError(
                name,
                f"its clock is {abs(seconds):.0f} s {way}: certificates and the rendezvous of ranks fail so; "
                f'`fab exec "sudo chronyc makestep" --nodes {nodes[name]}` sets it, or replace the node',
            ),
        )
    return found


def wait_for_nodes(stack: Stack, limit: float, wanted: int | None = None) -> Inventory:
    """Returns when Azure has as many nodes as the stack wants and each is fit for work.

    Those that are waited for are soon named, with what to do about one that stays silent. Raises
    :class:`~launch.errors.ManyNodesError` naming those that were not within ``limit`` seconds, or that
    waiting does not mend: a VM that is off, a cloud-init that failed, a wrong clock, another host key.
    """
    deadline = time.monotonic() + limit
    outputs = stack.outputs()
    wanted = outputs.node_count if wanted is None else wanted
    inventory = stack.refresh(outputs)
    asked = time.monotonic()
    answers: dict[str, Sign | Exception] = {}
    told = -1
    naming = asked + NAME_S
    clocks_until: float | None = None
    while True:
        open_ones = [node for node in inventory.nodes if not _is_settled(answers.get(node.name))]
        if clocks_until is not None:  # a clock is right when it is asked again
            open_ones = list(inventory.nodes)
        answers |= probe(stack, inventory, open_ones)
        current = {node.name: answers[node.name] for node in inventory.nodes}
        _refuse_others(current)
        good = sum(_is_settled(answer) for answer in current.values())
        if good != told:
            render.progress(f"{good} of {wanted} nodes answer")
            told = good
        if good == len(current) and good >= wanted:
            ids = {node.name: node.instance_id for node in inventory.nodes}
            wrong = unfit(current, ids)
            if not wrong:
                return inventory
            clocks_until = clocks_until or time.monotonic() + PATIENCE_S
            if any(isinstance(a, Sign) and a.failed for a in current.values()) or (
                time.monotonic() > min(deadline, clocks_until)
            ):
                raise ManyNodesError("making nodes fit for work", current | wrong)
        now = time.monotonic()
        if now > min(deadline, naming):
            waiting = ManyNodesError("waiting", _everyone(wanted, inventory, current))
            hint = _replacing(inventory, current)
            if now > deadline or _are_off(wanted, inventory, current):
                on = f"`{shlex.join(['fab', 'wait', '--stack', stack.name])}` waits on"
                waiting.args = ("\n".join(filter(None, (str(waiting), hint, on if now > deadline else ""))),)
                raise waiting
            for line in str(waiting).splitlines()[1:]:
                render.progress(f"waiting for {line}")
            if hint:
                render.progress(f"if it stays so: {hint}")
            naming = now + AGAIN_S
        time.sleep(PAUSE_S)
        if time.monotonic() - asked > REREAD_S:
            inventory = stack.refresh(outputs)
            asked = time.monotonic()


def _refuse_others(answers: Mapping[str, Sign | Exception]) -> None:
    """Raises what says that somebody else answers in a node's place: no waiting mends that."""
    for answer in answers.values():
        if isinstance(answer, HostKeyChanged):
            raise answer


def _is_settled(answer: Sign | Exception | None) -> bool:
    return isinstance(answer, Sign) and not answer.setting_up


def _are_off(wanted: int, inventory: Inventory, answers: Mapping[str, Sign | Exception]) -> bool:
    """Whether nothing is waited for but nodes that are switched off, which only a person switches on."""
    silent = [node for node in inventory.nodes if not _is_settled(answers[node.name])]
    return bool(silent) and len(answers) >= wanted and all(node.state in _OFF for node in silent)


def _everyone(
    wanted: int, inventory: Inventory, answers: Mapping[str, Sign | Exception]
) -> dict[str, object]:
    """By node its answer, or the error that says what is waited for."""
    everyone: dict[str, object] = {}
    for node in inventory.nodes:
        answer = answers[node.name]
        if isinstance(answer, Sign) and answer.setting_up:
            answer = RetryError("its cloud-init still runs")
        elif isinstance(answer, Exception) and node.state in DEAD:
            answer = NodeUnreachable(node.name, f"Azure says that it is {node.state}")
        everyone[node.name] = answer
    for number in range(len(answers), wanted):
        name = f"(node {number + 1} of {wanted})"
        everyone[name] = NodeUnreachable(name, "Azure has not made it yet")
    return everyone


def _replacing(inventory: Inventory, answers: Mapping[str, Sign | Exception]) -> str:
    """What to do about nodes that do not answer; empty when each does."""
    silent = [node for node in inventory.nodes if isinstance(answers[node.name], Exception)]
    if not silent:
        return ""
    hint = shlex.join(["fab", "replace", str(silent[0].instance_id), "--stack", inventory.stack])
    what = "such a node" if len(silent) > 1 else "it"
    return f"`{hint}` makes {what} anew (--reimage: on the same machine); the others go on working"
