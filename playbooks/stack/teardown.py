"""Before all nodes of a cluster are removed: consent to what is lost with them, and no further job there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from infra.inventory import Inventory
from launch.errors import InputError, RankliftError, RetryError
from playbooks.project import Stack
from playbooks.pulumi.partial import nodes_before
from playbooks.stack.losses import (
    Losses,
    agree_to_lose,
    agree_to_replace,
    consent_steps,
    find_losses,
    storage_that_goes,
)
from playbooks.stack.removal import holder_name, kept_free

__all__ = ["prepared_replacement", "prepared_teardown", "teardown_steps"]


def teardown_steps(stack: Stack, *, yes: bool) -> list[str]:
    """Return what a dry run shows of :func:`prepared_teardown`: what would be lost, by the nodes as they were
    last read from Azure."""
    try:
        losses = find_losses(stack, stack.saved())
    except InputError:  # no nodes were ever read
        losses = Losses()
    unknown = []
    try:
        losses = replace(losses, storage=storage_that_goes(stack))
    except RankliftError as error:
        unknown = [f"whether its own storage holds data is unknown: {str(error).splitlines()[0]}"]
    return [*unknown, *consent_steps(losses, yes=yes)]


@contextmanager
def prepared_teardown(stack: Stack, limit_s: float, *, yes: bool) -> Iterator[None]:
    """Ask for consent to all that would be lost unless ``yes``; keep jobs off the nodes while the block runs.

    Raises :class:`~launch.errors.RankliftError` without consent, or when a job has come since. Nodes that do
    not answer count as lost, but do not prevent removal with consent: a cluster costs money while it exists.
    """
    nodes: Inventory | None = None
    try:
        nodes = nodes_before(stack)
        losses = Losses() if nodes is None else find_losses(stack, nodes)
    except RankliftError as error:
        losses = Losses(unknown={"the nodes": str(error)})
    losses = replace(losses, storage=storage_that_goes(stack))
    agree_to_lose(stack, losses, yes=yes)
    if nodes is None or not nodes.nodes:
        yield
        return
    with _no_new_job(stack, nodes, losses, "fab down", limit_s, yes=yes):
        yield


@contextmanager
def prepared_replacement(
    stack: Stack, nodes: Inventory, cause: object, limit_s: float, *, yes: bool
) -> Iterator[None]:
    """Do as :func:`prepared_teardown` before an update replaces all ``nodes`` because of ``cause``."""
    losses = find_losses(stack, nodes)
    agree_to_replace(stack, nodes.nodes, cause, losses, yes=yes)
    with _no_new_job(stack, nodes, losses, "fab up", limit_s, yes=yes):
        yield


@contextmanager
def _no_new_job(
    stack: Stack, nodes: Inventory, agreed: Losses, command: str, limit_s: float, *, yes: bool
) -> Iterator[None]:
    """Keep jobs off the nodes while the block runs; refuse one that has come since the consent to losses."""
    with kept_free(stack, nodes, nodes.nodes, holder_name(command), limit_s):
        if not yes:
            named = {*(job.job for job in agreed.unended), *agreed.uncollected}
            now = find_losses(stack, nodes)
            jobs = (*(job.job for job in now.unended), *now.uncollected)
            came = [job for job in jobs if job not in named]
            if came:
                raise RetryError(f"not removed: {', '.join(came)} started meanwhile; repeat the command")
        yield
