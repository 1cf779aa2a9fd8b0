"""The replacement of one node: its jobs, its removal or reimage, the one in its place."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

from invoke.exceptions import Exit

from infra.inventory import INVENTORY_FILE, Inventory, Node, StackOutputs
from infra.scale_plan import Use, in_the_way
from launch.errors import GiveUpError, InputError, RankliftError, RetryError
from launch.nodeset import fold
from launch.numbers import counted
from playbooks.cli import output
from playbooks.cli.signals import report_half_done
from playbooks.cli.task import seconds_left
from playbooks.nodes.choose import choose_node
from playbooks.project import Stack
from playbooks.stack.limits import CHANGE, ready_limit

if TYPE_CHECKING:
    from playbooks.nodes.host_report import HostReport
    from playbooks.stack.losses import Losses

__all__ = ["Replaced", "Way", "refuse_jobs", "replace_node", "replace_one"]


@dataclasses.dataclass(frozen=True, slots=True)
class Way:
    """How nodes are replaced."""

    limit: float
    reimage: bool = False
    cancel_jobs: bool = False
    report: bool = False
    yes: bool = False
    agreed: Mapping[str, Losses] | None = None
    """What may be lost, by node; None where the user is still to be asked."""


@dataclasses.dataclass(frozen=True, slots=True)
class Replaced:
    """What came of one node."""

    node: str
    fresh: Sequence[str]
    """Names of the nodes in its place; none after a reimage."""
    report: HostReport | None = None
    host: str = ""
    """Whether Azure gave the host again, where it had a report."""

    def shown(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        shown = {"node": self.node, "replaced_by": self.fresh}
        return {**shown, "report": self.report, "host": self.host} if self.report else shown

    def __str__(self) -> str:
        line = f"{self.node} {'replaced by ' + fold(self.fresh) if self.fresh else 'reimaged'}"
        return f"{line}\n{self.host}\nreport: {self.report.id}" if self.report else line


def replace_node(stack: Stack, name: str) -> Sequence[str]:
    """Replace one node, which no job may have; return the names of the nodes in its place.

    Asks nobody: raises :class:`~launch.errors.RetryError` where something would be lost with it.
    """
    return replace_one(stack, name, Way(ready_limit(stack, None, CHANGE), agreed={})).fresh


def replace_one(stack: Stack, node: str, way: Way) -> Replaced:
    """Replace the node of this name or id, and wait until the one in its place answers.

    Ask first where something would be lost with it, unless the way has an answer. Raise
    :class:`~launch.errors.RetryError` naming the jobs on it, unless the way cancels them, and naming what
    would be lost beyond the consent.
    """
    from playbooks.nodes import vm_ops
    from playbooks.nodes.health import wait_for_nodes
    from playbooks.nodes.host_report import compare_hosts
    from playbooks.pulumi.pending import refuse_replacement
    from playbooks.pulumi.recover import recover
    from playbooks.stack.converge import build
    from playbooks.stack.losses import agree_to_delete_storage
    from playbooks.stack.preflight import check_image

    # A node that an earlier try has removed is only in the saved inventory.
    was = stack.saved().nodes if (stack.folder / INVENTORY_FILE).exists() else ()
    recover(stack)
    outputs = stack.outputs()
    inventory = vm_ops.refresh(stack, outputs)
    sick, is_there = _sick(stack, inventory, was, node)
    rest = _without(inventory, sick)
    if not (way.reimage and is_there):
        refuse_replacement(stack)
        if is_there:  # else only the update remains, which asks by itself
            agree_to_delete_storage(stack, yes=way.yes)
        check_image(stack)
    if way.agreed is None and is_there and sick.state != "deleting":
        way = dataclasses.replace(way, agreed=_consent(stack, inventory, sick, way))
    deadline = time.monotonic() + way.limit  # the user's time at the question does not count
    report = _report(stack, outputs, inventory, sick, yes=way.yes) if way.report and is_there else None
    if not is_there:
        output.progress(f"{sick.name} is removed already: creating the one in its place")
    elif way.reimage:
        _reimage(stack, outputs.scale_set_id, inventory, sick, way, deadline)
    else:
        rest = _remove(stack, inventory, sick, way, deadline)
    if not (way.reimage and is_there):
        with _lacking(stack, sick):
            build(stack, deadline, ["--skip-preview"], there=rest, yes=way.yes)
    with report_half_done(f"the node is not ready yet: `fab wait --stack {stack.name}` waits for it"):
        kept = {one.name for one in rest.nodes}
        after = wait_for_nodes(stack, seconds_left(deadline), kept=kept)
    fresh = [one.name for one in after.nodes if one.name not in {sick.name, *kept}]
    host = compare_hosts(stack, after, report.host, fresh) if report else ""
    return Replaced(sick.name, fresh, report, host)


def _consent(stack: Stack, inventory: Inventory, sick: Node, way: Way) -> Mapping[str, Losses]:
    """Ask for consent to what would be lost with the node, unless the way has it; return that.

    Raises :class:`~launch.errors.RetryError` for jobs in the way, about which nobody is asked.
    """
    from playbooks.nodes.busy import uses
    from playbooks.stack.losses import agree_on_nodes

    used = uses(stack, inventory)
    refuse_jobs(sick, used, cancel_jobs=way.cancel_jobs)
    return agree_on_nodes("replace", [sick], used, yes=way.yes, ending=way.cancel_jobs)


def _report(
    stack: Stack, outputs: StackOutputs, inventory: Inventory, node: Node, *, yes: bool
) -> HostReport | None:
    """Report the node's host to Azure; return None where the user agrees to replace the node without that."""
    from playbooks.nodes.host_report import NotReported, report_host
    from playbooks.nodes.sick import Sick, examine, read_checked

    try:
        verdicts = read_checked(stack, time.time())
    except InputError as error:
        output.progress(f"its verdicts do not count: {error}")
        verdicts = {}
    found, silent = examine(stack, inventory, [node], verdicts)
    for name, why in silent.items():
        output.progress(f"{name} is not looked at: {why}")
    try:
        report = report_host(stack, outputs, inventory, found[0] if found else Sick(node))
    except NotReported as failed:
        output.progress(f"not reported: {failed}")
        agreed = yes or output.ask(f"replace {node.name} without a report?")
        if agreed:
            return None
        way = "; --yes replaces it without a report" if agreed is None else ""
        raise GiveUpError(f"{node.name} is not replaced: its host is not reported{way}") from None
    output.progress(f"{node.name}: reported to Azure as {report.category}: {report.id}")
    return report


def _reimage(
    stack: Stack, scale_set_id: str, inventory: Inventory, sick: Node, way: Way, deadline: float
) -> None:
    """Install the node from the image again. Pulumi remembers nothing that this changes: it needs no lock."""
    from playbooks.nodes import push, vm_ops

    again = f"`fab replace {sick.instance_id} --stack {stack.name} --reimage` starts again"
    with (
        _freed(stack, inventory, sick, way, deadline),
        report_half_done(f"{sick.name} may be half installed: {again}"),
    ):
        vm_ops.reimage(stack, scale_set_id, [sick], deadline - time.monotonic())
    push.invalidate_copies(stack, inventory, [sick])


def _remove(stack: Stack, inventory: Inventory, sick: Node, way: Way, deadline: float) -> Inventory:
    """Remove the node in an update that changes nothing else; return the inventory without it.

    It is a separate update because Pulumi compares Azure with what it remembers before the program runs: the
    update in which a node is removed does not see that it is missing, the next one does and creates another.
    Raises :class:`~playbooks.pulumi.locks.InUse`, before a job is ended or the node is removed, when another
    command has the stack.
    """
    from playbooks.nodes import vm_ops
    from playbooks.stack.converge import present, under_lock

    again = f"`fab replace {sick.instance_id} --stack {stack.name}`"
    removed, count = False, len(present(inventory))
    rest = _without(inventory, sick)

    def remove() -> None:
        nonlocal removed, rest
        outputs = stack.outputs()
        current = vm_ops.refresh(stack, outputs)
        node = next((one for one in current.nodes if one.name == sick.name), None)
        is_gone = node is None and sick.state != "deleting"
        if is_gone or len(present(current)) != count:  # the update would let Azure choose which nodes go
            changed = "removed it" if is_gone else "changed the number of nodes"
            raise RetryError(
                f"{sick.name} is not replaced: another command {changed} meanwhile; "
                "nothing was changed: repeat the command"
            )
        if node is not None:
            going = node.state == "deleting"
            with (
                nullcontext() if going else _freed(stack, current, node, way, deadline),
                report_half_done(
                    f"{sick.name} may be half removed, and no other is created yet: {again} continues"
                ),
            ):
                vm_ops.delete(stack, outputs.scale_set_id, [node], deadline - time.monotonic())
        removed, rest = True, _without(current, sick)

    try:
        under_lock(stack, max(1, count), deadline, remove)
    except (KeyboardInterrupt, RankliftError, Exit):
        if removed:
            output.progress(_lacking_words(stack, sick))
        raise
    return rest


def _lacking(stack: Stack, sick: Node) -> AbstractContextManager[None]:
    """Report the missing node when the update that makes another fails or is interrupted."""
    return report_half_done(_lacking_words(stack, sick), (KeyboardInterrupt, RankliftError, Exit))


def _lacking_words(stack: Stack, sick: Node) -> str:
    lacking = f"{sick.name} is removed, and the one in its place may not be created yet"
    return f"{lacking}: `fab up --stack {stack.name}` creates it"


def _without(inventory: Inventory, sick: Node) -> Inventory:
    """Return the inventory less the node of that name."""
    return dataclasses.replace(
        inventory, nodes=tuple(one for one in inventory.nodes if one.name != sick.name)
    )


def _sick(stack: Stack, inventory: Inventory, was: Sequence[Node], text: str) -> tuple[Node, bool]:
    """Return the node meant, and whether it still exists: one that ``was`` may be removed and not replaced.

    Raises :class:`~launch.errors.InputError` when neither is so.
    """
    from playbooks.stack.converge import present, wanted_of

    there, wanted = len(present(inventory)), wanted_of(stack)
    try:
        return choose_node(inventory, text, "node"), True
    except InputError as error:
        if wanted is None or there >= wanted:
            raise
        with suppress(InputError):
            return choose_node(dataclasses.replace(inventory, nodes=tuple(was)), text, "node"), False
        making = f"`fab up --stack {stack.name}` creates what is missing, also in place of a removed node"
        lacking = f"{error.remedy}: {there} of {counted(wanted, 'node')}; {making}"
        raise InputError(error.key, text, error.problem, lacking) from None


@contextmanager
def _freed(stack: Stack, inventory: Inventory, sick: Node, way: Way, deadline: float) -> Iterator[None]:
    """End jobs on the node if that is wanted, and let no other start there while the block runs.

    A node whose slots cannot be held does not answer: no job can start there either. Raises RetryError naming
    the jobs on the node, or what would be lost beyond what was agreed to.
    """
    from playbooks.stack.removal import holder_name, kept_free

    holder, limit = holder_name(f"fab replace {sick.instance_id}"), seconds_left(deadline)
    given_up: set[str] = set()
    with kept_free(stack, inventory, [sick], holder, limit):
        if not _free(stack, inventory, sick, way, holder, left=given_up):
            yield
            return
        with kept_free(stack, inventory, [sick], holder, limit):  # the slots that those jobs had
            ended = dataclasses.replace(way, cancel_jobs=False)
            _free(stack, inventory, sick, ended, holder, left=given_up)
            yield


def _free(stack: Stack, inventory: Inventory, sick: Node, way: Way, holder: str, *, left: set[str]) -> bool:
    """Cancel jobs on the node if wanted; return whether there were any. Raises RetryError naming them.

    A holder of slots that no head knows cancels nothing: the node alone says that it is a job. It is added to
    ``left``, and is in the way no more.
    """
    from playbooks.nodes.busy import uses
    from playbooks.stack.losses import refuse_more

    used = uses(stack, inventory, holder)
    use = used[sick.name]
    refuse_jobs(sick, used, cancel_jobs=way.cancel_jobs, left=left)
    refuse_more("replace", [sick], used, way.agreed or {}, yes=way.yes, ending=way.cancel_jobs)
    if use.dead or not (use.jobs and way.cancel_jobs):
        return False
    from playbooks.jobs.cancel import cancel_job, format_cancelled

    for job in use.jobs:
        if job in use.held:
            output.progress(f"{sick.name}: {job} holds slots, and no head has it there: it is not cancelled")
            left.add(job)
        else:
            output.progress(format_cancelled(cancel_job(stack, inventory, job, None)))
    return True


def refuse_jobs(
    sick: Node, used: Mapping[str, Use], *, cancel_jobs: bool, left: Collection[str] = ()
) -> None:
    """Raise RetryError naming the jobs on the node that keep it, unless it does not run.

    With ``cancel_jobs`` they do not, nor do holders of its slots that are ``left`` there.
    """
    use = used[sick.name]
    if use.dead:
        return
    if use.removal:
        raise RetryError(f"{sick.name} is not replaced: {use}")
    # One silent node among others that answer is faulty; where all are silent it is rather the network.
    silent_alone = bool(use.unknown) and any(not other.unknown for other in used.values())
    jobs = tuple(one for one in use.jobs if not (one in left and one in use.held))
    if not cancel_jobs and (jobs or (use.unknown and not silent_alone)):
        why = Use(jobs, unknown=use.unknown, held=use.held)
        raise RetryError(
            f"{sick.name} is not replaced\n{in_the_way({sick.name: why})}\nor give --cancel-jobs"
        )
