"""Before a cluster is removed: what is lost with it is agreed to, and no job starts there any more."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from infra.inventory import Inventory
from launch.errors import RankliftError, RetryError
from playbooks.project import Stack
from playbooks.pulumi.partial import nodes_before
from playbooks.stack.losses import Losses, agree_to_lose, find_losses
from playbooks.stack.removal import holder_name, kept_free

__all__ = ["given_up"]


@contextmanager
def given_up(stack: Stack, limit_s: float, *, yes: bool) -> Iterator[None]:
    """Asks for all that would be lost unless ``yes``, and keeps jobs off the nodes while the block runs.

    Raises :class:`~launch.errors.RankliftError` when that is not agreed to, or a job has come since. What
    cannot be asked counts as lost, and hinders nobody who agrees: a cluster costs money while it stands.
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
            _refuse_newcomers(losses, find_losses(stack, nodes))
        yield


def _refuse_newcomers(before: Losses, now: Losses) -> None:
    agreed = {job.job for job in before.unended}
    came = [job.job for job in now.unended if job.job not in agreed]
    if came:
        raise RetryError(f"not removed: {', '.join(came)} came meanwhile; repeat the command")
