"""A sick node made anew: ``replace``."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

from invoke.context import Context
from invoke.exceptions import Exit

from infra.inventory import INVENTORY_FILE, Inventory, Node
from launch.errors import InputError, RankliftError, RetryError
from launch.nodeset import fold
from playbooks.cli import output
from playbooks.cli.task import command, open_from, seconds
from playbooks.project import Stack

__all__ = ["replace"]

_LIMIT = "30m"


@command(
    "replace",
    example="fab replace 3 --reimage",
    help={
        "node": "the node, by instance id or name",
        "reimage": "keep the machine, its name and its address, and install it anew from the image",
        "cancel-jobs": "end the jobs on it first",
        "timeout": f"give up after this long (default: {_LIMIT}); 90s, 10m and 2h are understood too",
    },
    positional=["node"],
)
def replace(
    context: Context,
    node: str,
    stack: str | None = None,
    reimage: bool = False,
    cancel_jobs: bool = False,
    timeout: str = _LIMIT,
    dry_run: bool = False,
) -> None:
    """Makes a sick node anew and waits until it answers; the others notice nothing.

    It is removed and a new one, with another name, takes its place; with --reimage it stays and is installed
    anew, which needs no free capacity in Azure. Either way everything on it is lost; pushed code goes there
    again with the next push. Refused while a job has ranks there, unless the node is dead, and while another
    command changes the stack.
    """
    limit = seconds("--timeout", timeout)
    chosen = open_from(context, stack)
    if dry_run:
        sick = _named(chosen.saved(), node)
        what = "reimage it" if reimage else f"remove it, pulumi up --yes --refresh --stack {chosen.name}"
        output.result(f"{sick.name}: {what}, wait until it answers")
        return
    from playbooks.nodes.health import wait_for_nodes
    from playbooks.pulumi.recover import mend
    from playbooks.pulumi.run import pulumi
    from playbooks.stack.converge import build

    deadline = time.monotonic() + limit
    # A node that an earlier try has removed is known from then alone.
    was = chosen.saved().nodes if (chosen.folder / INVENTORY_FILE).exists() else ()
    mend(chosen, lambda words: pulumi(chosen, words))
    outputs = chosen.outputs()
    inventory = chosen.refresh(outputs)
    sick, is_there = _sick(chosen, inventory, was, node)
    rest = _without(inventory, sick)
    if not is_there:
        output.progress(f"{sick.name} is removed already: making the one in its place")
    elif reimage:
        _reimage(chosen, outputs.scale_set_id, inventory, sick, cancel_jobs, deadline)
    else:
        rest = _remove(chosen, inventory, sick, cancel_jobs, deadline)
    if not (reimage and is_there):
        with _lacking(chosen, sick):
            build(chosen, deadline, ["--skip-preview"], there=rest)
    with _half_done(f"the node is not fit for use yet: `fab wait --stack {chosen.name}` waits for it"):
        after = wait_for_nodes(chosen, max(1.0, deadline - time.monotonic()))
    names = {one.name for one in rest.nodes}
    fresh = [one.name for one in after.nodes if one.name not in names]
    output.result(f"{sick.name} {'reimaged' if reimage else 'replaced by ' + fold(fresh)}")


def _reimage(
    stack: Stack, scale_set_id: str, inventory: Inventory, sick: Node, cancel_jobs: bool, deadline: float
) -> None:
    """Install the node from the image again. Pulumi remembers nothing that this changes: it needs no lock."""
    from playbooks.nodes import vm_ops

    again = f"`fab replace {sick.instance_id} --stack {stack.name} --reimage` begins anew"
    with (
        _freed(stack, inventory, sick, cancel_jobs, deadline),
        _half_done(f"{sick.name} may be half installed: {again}"),
    ):
        vm_ops.reimage(stack, scale_set_id, [sick], deadline - time.monotonic())
    vm_ops.distrust_copies(stack, inventory, [sick])


def _remove(stack: Stack, inventory: Inventory, sick: Node, cancel_jobs: bool, deadline: float) -> Inventory:
    """Remove the node in an update that changes nothing else; return the inventory without it.

    It is a separate update because Pulumi compares Azure with what it remembers before the program runs: the
    update in which a node is removed does not see that it is missing, the next one does and makes another.
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
        current = stack.refresh(outputs)
        if len(present(current)) != count:  # the update would let Azure choose which nodes go
            raise RetryError(
                f"{sick.name} is not replaced: another command changed the number of nodes meanwhile; "
                "nothing was changed: repeat the command"
            )
        node = next((one for one in current.nodes if one.name == sick.name), None)
        if node is not None:
            going = node.state == "deleting"
            with (
                nullcontext() if going else _freed(stack, current, node, cancel_jobs, deadline),
                _half_done(f"{sick.name} may be going, and no other is made yet: {again} goes on"),
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
    return _half_done(_lacking_words(stack, sick), (KeyboardInterrupt, RankliftError, Exit))


def _lacking_words(stack: Stack, sick: Node) -> str:
    lacking = f"{sick.name} is removed, and the one in its place may not be made yet"
    return f"{lacking}: `fab up --stack {stack.name}` makes it"


def _without(inventory: Inventory, sick: Node) -> Inventory:
    """Return the inventory less the node of that name."""
    return dataclasses.replace(
        inventory, nodes=tuple(one for one in inventory.nodes if one.name != sick.name)
    )


@contextmanager
def _half_done(words: str, kinds: tuple[type[BaseException], ...] = (KeyboardInterrupt,)) -> Iterator[None]:
    """Says how far it has come when it is interrupted, or ends in another of these ways."""
    try:
        yield
    except kinds:
        output.progress(words)
        raise


def _sick(stack: Stack, inventory: Inventory, was: Sequence[Node], text: str) -> tuple[Node, bool]:
    """The node meant, and whether it is still there: one that ``was`` may be removed and not yet made again.

    Raises :class:`~launch.errors.InputError` when there is none, and was none whose place is empty.
    """
    from playbooks.stack.converge import present, wanted_of

    there, wanted = len(present(inventory)), wanted_of(stack)
    try:
        return _named(inventory, text), True
    except InputError as error:
        if wanted is None or there >= wanted:
            raise
        for node in was:
            if text in (node.name, str(node.instance_id)):
                return node, False
        making = f"`fab up --stack {stack.name}` makes what is missing, also for one that was being replaced"
        lacking = f"{error.remedy}: {there} of the {wanted} that are wanted; {making}"
        raise InputError(error.key, text, error.problem, lacking) from None


def _named(inventory: Inventory, text: str) -> Node:
    for node in inventory.nodes:
        if text in (node.name, str(node.instance_id)):
            return node
    known = ", ".join(f"{node.instance_id} ({node.name})" for node in inventory.nodes)
    raise InputError("node", text, f"stack {inventory.stack} has none of that id or name", f"it has {known}")


@contextmanager
def _freed(
    stack: Stack, inventory: Inventory, sick: Node, cancel_jobs: bool, deadline: float
) -> Iterator[None]:
    """Ends jobs on the node if that is wanted, and gives it no other while the block runs.

    A node whose slots cannot be held does not answer: no job gets there either. Raises RetryError naming the
    jobs that are there.
    """
    from playbooks.stack.removal import holder_name, kept_free

    holder, limit = holder_name(f"fab replace {sick.instance_id}"), max(1.0, deadline - time.monotonic())
    with kept_free(stack, inventory, [sick], holder, limit):
        if not _free(stack, inventory, sick, cancel_jobs, holder):
            yield
            return
        with kept_free(stack, inventory, [sick], holder, limit):  # the slots that those jobs had
            _free(stack, inventory, sick, False, holder)
            yield


def _free(stack: Stack, inventory: Inventory, sick: Node, cancel_jobs: bool, holder: str) -> bool:
    """Sees to it that no job is on the node; whether jobs were ended. Raises RetryError naming jobs there."""
    from infra.scale_plan import Use, in_the_way
    from playbooks.nodes.busy import uses

    doing = uses(stack, inventory, holder)
    use = doing[sick.name]
    if use.dead:
        return False
    if use.removal:
        raise RetryError(f"{sick.name} is not replaced: {use}")
    if use.jobs and cancel_jobs:
        from playbooks.jobs.cancel import ended, told

        for job in use.jobs:
            output.progress(told(ended(stack, inventory, job, None)))
        return True
    # One silent node among others that answer is sick; where all are silent it is rather the way there.
    silent_alone = bool(use.unknown) and any(not other.unknown for other in doing.values())
    if use.jobs or (use.unknown and not (silent_alone or cancel_jobs)):
        raise RetryError(
            f"{sick.name} is not replaced\n{in_the_way({sick.name: Use(use.jobs, unknown=use.unknown)})}\n"
            "or give --cancel-jobs"
        )
    return False
