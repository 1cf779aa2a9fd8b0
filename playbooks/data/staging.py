"""A job's data, brought to its nodes before the job is submitted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from infra.inventory import Inventory, Node
from launch.data.data_inputs import placeholder, planned_data
from launch.data.data_spec import DataSource
from launch.data.data_stores import Storage, stage_requests
from launch.errors import ManyNodesError
from launch.numbers import counted
from launch.remote.base.messages import size
from launch.remote.base.records import DataRecord
from playbooks.cli import output
from playbooks.cli.task import with_address_age

if TYPE_CHECKING:
    from launch.client.stage import Progress, Staged
    from launch.host import Host
    from launch.job.plan import JobPlan

__all__ = ["Staging", "bring_data", "progress_text", "pushed_path", "show_progress", "staged_text"]


@dataclass(frozen=True, slots=True)
class Staging:
    """A job whose command needs paths that are known once its nodes hold its data."""

    sources: Sequence[DataSource]
    storage: Storage = field(repr=False)
    plan: Callable[[Mapping[str, str]], JobPlan]
    """Makes the plan from the paths of the inputs in storage."""

    @property
    def placeholders(self) -> dict[str, str]:
        """What stands for the paths until then."""
        return {one.name: placeholder(one.name) for one in self.sources}

    def first_plan(self) -> JobPlan:
        """Return the plan as it is before: with names in place of paths."""
        return replace(self.plan(self.placeholders), data=planned_data(self.sources, self.storage.shared))


def bring_data(
    inventory: Inventory, nodes: Sequence[Node], planned: JobPlan, staging: Staging | None, head: Host
) -> JobPlan:
    """Return the plan with the paths of its data, which all nodes hold then.

    Raises as :func:`launch.client.stage.stage_data`.
    """
    if staging is None or not staging.sources:
        return planned
    from launch.client.stage import stage_data

    remote, home = PurePosixPath(planned.remote).name, planned.spec.home
    data: list[DataRecord] = []
    for request in stage_requests(staging.sources, staging.storage):
        with show_progress() as show:
            try:
                staged = stage_data(request, head, nodes, remote, show)
            except ManyNodesError as error:
                raise with_address_age(inventory, error) from None
        output.progress(staged_text(staged, request["shared"] or counted(len(nodes), "node")))
        data += staged.data
    paths = {one["name"]: _at_home(one["path"], home) for one in data}
    return replace(staging.plan(paths), data=tuple(data))


@contextmanager
def show_progress() -> Iterator[Callable[[Progress], None]]:
    """Show how far a staging is; yield the function that is called with it."""
    say = output.bounded_progress()
    with output.progress_bar("data") as update:

        def show(progress: Progress) -> None:
            if progress.total:
                update(progress_text(progress), progress.bytes, progress.total)
            elif progress.text:
                say(progress.text)

        yield show


def staged_text(staged: Staged, where: str) -> str:
    """Return what a staging has brought to some nodes, or to the folder that they share.

    >>> from launch.client.stage import Staged
    >>> staged_text(Staged((), 1.0, 0), "2 nodes")
    'data: 0 files, 0 B, which 2 nodes held already'
    """
    total = sum(one["bytes"] for one in staged.data)
    what = f"{counted(sum(one['files'] for one in staged.data), 'file')}, {size(total)}"
    if not staged.from_storage:
        return f"data: {what}, which {where} held already"
    return f"data: {what} on {where} in {staged.seconds:.1f} s; {size(staged.from_storage)} left storage"


def pushed_path(home: str, snapshot: str, path: Path) -> str:
    """Return the path on the nodes of a file or folder of this machine that was pushed as that snapshot."""
    folder = f"{home}/.ranklift/snapshots/{snapshot}"
    return f"{folder}/{path.name}" if path.is_file() else folder


def progress_text(progress: Progress) -> str:
    """Return what a progress bar says of a staging: how many nodes have all, and which is the last.

    >>> from launch.client.stage import Progress
    >>> progress_text(Progress("", 30, 40, {"node000000": 20, "node000001": 10}))
    'data: 1 of 2 nodes have all, node000001 has 50 %'
    """
    if not progress.nodes:
        return "data"
    whole = progress.total / len(progress.nodes)
    last = min(progress.nodes, key=lambda node: progress.nodes[node])
    done = sum(held >= whole for held in progress.nodes.values())
    share = 100 * progress.nodes[last] / whole
    return f"data: {done} of {counted(len(progress.nodes), 'node')} have all, {last} has {share:.0f} %"


def _at_home(path: str, home: str) -> str:
    return home + path[1:] if path.startswith("~/") else path
