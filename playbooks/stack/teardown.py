"""Before a cluster is removed: consent to what is lost with it, and no further job there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from infra.inventory import Inventory
from launch.errors import RankliftError, RetryError
from playbooks.project import Stack
from playbooks.pulumi.partial import nodes_before
from playbooks.stack.losses import Losses, agree_to_lose, find_losses
from playbooks.stack.removal import holder_name, kept_free

__all__ = ["prepared_teardown"]


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
    agree_to_lose(stack, losses, yes=yes)
    if nodes is None or not nodes.nodes:
        yield
        return
    with kept_free(stack, nodes, nodes.nodes, holder_name("fab down"), limit_s):
        if not yes:
            _refuse_new_jobs(losses, find_losses(stack, nodes))
        yield


def _refuse_new_jobs(before: Losses, now: Losses) -> None:
    agreed = {job.job for job in before.unended}
    came = [job.job for job in now.unended if job.job not in agreed]
    if came:
        raise RetryError(f"not removed: {', '.join(came)} started meanwhile; repeat the command")
