"""Which nodes are sick: by the last ``fab check``, whose verdicts are kept here, and by a look now."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from infra.inventory import KNOWN_HOSTS_FILE, Inventory, Node
from infra.json_records import read_list, read_record
from launch.errors import InputError
from launch.remote.base.files import replace_file
from playbooks.project import Stack

if TYPE_CHECKING:
    from launch.remote.base.health_records import Finding, Look

__all__ = [
    "Sick",
    "Verdict",
    "examine",
    "find_sick",
    "keep_measured",
    "read_checked",
    "sick_nodes",
    "write_checked",
]

LONGEST_S = 24 * 3600.0
"""Age from which on a check says nothing of the nodes of now."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a check found of one node."""

    instance_id: int
    verdict: Literal["sick", "suspect", "healthy", "unknown"]
    reasons: tuple[str, ...] = ()
    """Why it is not healthy, like ``41 % of its peers' bandwidth in 6 of 6 pairs``."""
    findings: tuple[Finding, ...] = ()
    slow: Literal["", "suspect", "sick"] = ""
    """What its bandwidth alone makes it; the last of the reasons is that, then."""
    measured_at: float = 0.0
    """When that was measured, in Unix time."""


@dataclass(frozen=True, slots=True)
class Sick:
    """A node that is to be replaced, and why."""

    node: Node
    reasons: tuple[str, ...] = ()
    """What a check measured."""
    findings: tuple[Finding, ...] = ()
    """Of level error."""

    def __str__(self) -> str:
        found = (f"{one['subject']}: {one['measured']}, expected {one['expected']}" for one in self.findings)
        return "; ".join((*self.reasons, *found))


def write_checked(stack: Stack, verdicts: Mapping[str, Verdict], **more: Any) -> None:
    """Keep the verdicts on all nodes of a check, by name, and whatever ``more`` its report has."""
    record = {
        **more,
        "at": time.time(),
        "stack": stack.name,
        "cluster": _cluster_of(stack.folder),
        "nodes": {name: asdict(verdict) for name, verdict in verdicts.items()},
    }
    replace_file(str(stack.last_check), (json.dumps(record, indent=1) + "\n").encode())


def read_checked(stack: Stack, now: float) -> Mapping[str, Verdict]:
    """Return the verdicts of the last check, by name; none where nobody has checked this cluster.

    Raises :class:`~launch.errors.InputError` for a check that is older than a day, and for one of an earlier
    cluster of that name, whose nodes had the same names.
    """
    path = stack.last_check
    remedy = f"run `fab check --stack {stack.name}` again"
    try:
        found = json.loads(path.read_text())
        age, cluster = now - float(found["at"]), found["cluster"]
        verdicts = {name: _verdict(one) for name, one in found["nodes"].items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise InputError("the last check", str(path), f"cannot be read ({error})", remedy) from None
    if cluster != _cluster_of(stack.folder):
        raise InputError("the last check", str(path), f"is of an earlier cluster {stack.name}", remedy)
    if age > LONGEST_S:
        raise InputError("the last check", str(path), f"is {age / 3600:.0f} hours old", remedy)
    return verdicts


_EARLIER = ", by an earlier check"
_ORDER = ("sick", "suspect", "unknown", "healthy")


def keep_measured(
    verdicts: Mapping[str, Verdict], earlier: Mapping[str, Verdict], measured: Collection[str], now: float
) -> dict[str, Verdict]:
    """Return the verdicts of a check, and of what was measured before it what it did not measure again.

    A look sees no bandwidth: without this, a node that was found slow would pass for healthy by the next look
    at it, or at another.

    >>> slow = Verdict(1, "sick", ("41 %",), slow="sick", measured_at=10.0)
    >>> keep_measured({"a": Verdict(1, "healthy")}, {"a": slow}, (), 20.0)["a"].reasons
    ('41 %, by an earlier check',)
    >>> keep_measured({"a": Verdict(1, "healthy")}, {"a": slow}, ("a",), 20.0)["a"].verdict
    'healthy'
    """
    kept = {
        name: replace(one, measured_at=one.measured_at or now) if one.slow else one
        for name, one in verdicts.items()
    }
    for name, before in earlier.items():
        if not before.slow or name in measured or now - before.measured_at > LONGEST_S:
            continue
        reason = before.reasons[-1].removesuffix(_EARLIER) + _EARLIER
        found = kept.get(name, replace(before, verdict="healthy", reasons=(), findings=()))
        if found.instance_id == before.instance_id:
            worst = min(found.verdict, before.slow, key=_ORDER.index)
            kept[name] = replace(
                found,
                verdict=worst,
                reasons=(*found.reasons, reason),
                slow=before.slow,
                measured_at=before.measured_at,
            )
    return kept


def examine(
    stack: Stack,
    inventory: Inventory,
    nodes: Sequence[Node],
    verdicts: Mapping[str, Verdict],
    env: Mapping[str, str] | None = None,
) -> tuple[list[Sick], Mapping[str, Exception]]:
    """Look at the nodes; return those that are sick, by that or by a check's verdicts, and the errors of
    nodes at which nobody could look. ``env`` has the variables of the job that is to run there."""
    from launch.remote.node.health_gate import without_infiniband
    from playbooks.nodes.look import look

    looks = look(stack, inventory, nodes)
    for answer in looks.values():
        if not isinstance(answer, Exception):
            answer["findings"] = without_infiniband(answer["findings"], env or {})
    sick = sick_nodes(replace(inventory, nodes=tuple(nodes)), verdicts, looks)
    return sick, {name: answer for name, answer in looks.items() if isinstance(answer, Exception)}


def sick_nodes(
    inventory: Inventory, verdicts: Mapping[str, Verdict], looks: Mapping[str, Look | Exception]
) -> list[Sick]:
    """Return the nodes that a check calls sick, and those at which a look finds an error, by id.

    A node that has been replaced since the check is not among them: Azure uses no instance id again.
    """
    found = []
    for node in inventory.nodes:
        verdict, look = verdicts.get(node.name), looks.get(node.name)
        sick = Sick(node)
        if verdict is not None and verdict.verdict == "sick" and verdict.instance_id == node.instance_id:
            measured = verdict.reasons[-1:] if verdict.slow else ()  # the others are those of its findings
            sick = replace(sick, reasons=measured, findings=_errors(verdict.findings))
        if look is not None and not isinstance(look, Exception) and _errors(look["findings"]):
            sick = replace(sick, findings=_errors(look["findings"]))  # these are the newer ones
        if sick.reasons or sick.findings:
            found.append(sick)
    return found


def find_sick(stack: Stack) -> tuple[Inventory, list[Node], list[str]]:
    """Return the nodes that exist, the sick ones of them, and the names of those that nobody could look at;
    print what is wrong with each. Raises as :func:`read_checked`."""
    from playbooks.cli import output
    from playbooks.cli.merged_output import grouped
    from playbooks.nodes import vm_ops

    verdicts = read_checked(stack, time.time())
    inventory = vm_ops.refresh(stack, stack.outputs())
    sick, silent = examine(stack, inventory, inventory.nodes, verdicts)
    for name, error in silent.items():
        output.progress(f"nothing is known of {name}, which is not replaced: {error}")
    if not sick:
        checked = "the last check names no node" if verdicts else "no check was made"
        where = " at the nodes that answer" if silent else ""
        output.progress(f"nothing is replaced: {checked}, and a look finds no error{where}")
    for line in grouped({one.node.name: str(one) for one in sick}):
        output.progress(line)
    return inventory, [one.node for one in sick], list(silent)


def _errors(findings: list[Finding] | tuple[Finding, ...]) -> tuple[Finding, ...]:
    return tuple(one for one in findings if one["level"] == "error")


def _verdict(found: object) -> Verdict:
    record = read_record(found, Verdict)
    for name in ("reasons", "findings"):
        record[name] = tuple(read_list(record.get(name, []), name))
    return Verdict(**record)


def _cluster_of(folder: Path) -> str:
    """Return the host key that all nodes of the cluster have; another cluster of that name has another."""
    try:
        first = (folder / KNOWN_HOSTS_FILE).read_text().partition("\n")[0]
    except OSError:
        return ""
    return first.rpartition(" ")[2]
