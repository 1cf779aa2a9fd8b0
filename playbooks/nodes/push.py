"""Code on nodes: ``push``, and what a job's push shares with it."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from invoke.context import Context

from infra.inventory import KEY_FILE, Inventory, Node
from launch.access import is_work_tree
from launch.errors import ManyNodesError, NodeUnreachable, RankliftError
from launch.nodeset import fold
from launch.numbers import counted
from launch.remote.base.messages import size
from playbooks.cli import output
from playbooks.cli.access import ALLOW_HELP, access_flags
from playbooks.cli.task import command, open_from
from playbooks.nodes.choose import choose_nodes
from playbooks.project import Stack
from playbooks.ssh.fanout import fan_out_hosts

if TYPE_CHECKING:
    from launch.code.push import PushReport
    from launch.code.snapshot import Snapshot
    from launch.host import Host

__all__ = [
    "invalidate_copies",
    "key_numbers",
    "push",
    "push_notices",
    "push_snapshot",
    "push_to",
    "record_push",
    "source_folder",
]

_STEP_S = 20.0
_CLEAR_HOLDERS = 'for f in .ranklift/*s/*.nodes; do if [ -e "$f" ]; then echo "{}" > "$f"; fi; done'


@command(
    "push",
    example="fab push --source ~/code/train --nodes 0-3",
    help={
        "source": "folder to push (default: the repository around the current folder, else that folder)",
        "allow-path": ALLOW_HELP,
        "verify": "have every node read its copy again, and repair it",
    },
    iterable=["allow_path"],
)
def push(
    context: Context,
    source: str | None = None,
    nodes: str | None = None,
    stack: str | None = None,
    verify: bool = False,
    allow_path: list[str] | None = None,
    json: bool = False,
    dry_run: bool = False,
) -> None:
    """Copy code to the nodes; a second push of the same code sends nothing.

    Leaves out what .gitignore and .ranklift-ignore name, results that were collected, virtual environments,
    node_modules and tools' caches; a line like !.venv in .ranklift-ignore has one pushed. Always leaves out
    .git and .ranklift.
    """
    from launch.code.snapshot import plan_snapshot

    chosen = open_from(context, stack)
    inventory = chosen.saved()
    wanted = choose_nodes(inventory, nodes)
    access, folder = access_flags(None, allow_path), source_folder(source)
    _, real = access.typed("source", folder)
    snapshot = plan_snapshot(folder, chosen.hashes_of(folder), key_numbers(chosen), real)
    for notice in filter(None, (*access.notes, snapshot.notice, *push_notices(chosen, [snapshot]))):
        output.progress(notice)
    if dry_run:
        if json:
            output.as_json({"snapshot": snapshot, "nodes": [node.name for node in wanted]})
        else:
            where = fold(node.name for node in wanted)
            output.result(
                f"snapshot {snapshot.id}: {counted(len(snapshot.entries), 'file')}, {size(snapshot.size)}, "
                f"from {snapshot.root} to {where}"
            )
        return
    report = push_snapshot(chosen, inventory, wanted, snapshot, verify=verify)
    if json:
        # Left out of the report's short form, as one line a node.
        output.as_json({**output.plain(report), "results": report.results})
    else:
        output.result(
            f"snapshot {report.snapshot}: {counted(report.files, 'file')} on {fold(report.results)}; "
            f"{size(report.bytes_sent)} sent in {report.seconds:.1f} s"
        )


def push_snapshot(
    stack: Stack, inventory: Inventory, nodes: Sequence[Node], snapshot: Snapshot, *, verify: bool = False
) -> PushReport:
    """Push through the first of ``nodes`` that answers, which spreads the snapshot to the others.

    Raises :class:`~launch.errors.ManyNodesError` naming every node that did not get it.
    """
    from playbooks.ssh.connection import Cluster

    failed: dict[str, Exception] = {}
    with Cluster(inventory, stack.folder) as cluster:
        for position, head in enumerate(nodes):
            try:
                report = push_to(stack, cluster.host(head), nodes[position:], snapshot, verify=verify)
            except NodeUnreachable as error:
                failed[head.name] = error
                continue
            except ManyNodesError as error:
                raise ManyNodesError(error.what, {**failed, **error.results}) from None
            results = {**failed, **report.results}
            if failed:
                raise ManyNodesError("push", results)
            return dataclasses.replace(report, results=results)
    if not failed:
        raise RankliftError("the stack has no node to push to")
    raise ManyNodesError("push", failed)


def push_to(
    stack: Stack, head: Host, nodes: Sequence[Node], snapshot: Snapshot, *, verify: bool = False
) -> PushReport:
    """Push through ``head``, with a progress bar, and record the push."""
    from launch.code.push import push as send

    what = f"pushing to {counted(len(nodes), 'node')}"
    with output.progress_bar(what) as update:
        report = send(snapshot, head, nodes, verify=verify, show=partial(update, what))
    record_push(stack, snapshot)
    return report


def push_notices(stack: Stack, snapshots: Iterable[Snapshot]) -> list[str]:
    """Return what to print before these are pushed: what is left out for the first time, and what grew."""
    from launch.code.last_push import LastPush, growth_notice
    from launch.code.left_out import left_out_notice

    notices = []
    for snapshot in (one for one in snapshots if one.entries):
        last = LastPush.read(stack.last_push_of(snapshot.source))
        new = [one for one in snapshot.left_out if one.group not in last.left_out]
        notices += [left_out_notice(snapshot.root, new), growth_notice(last, snapshot)]
    return [notice for notice in notices if notice]


def record_push(stack: Stack, snapshot: Snapshot, *, is_pushed: bool = True) -> None:
    """Record for :func:`push_notices` what was reported as left out and, where ``is_pushed``, its sizes."""
    from launch.code.last_push import LastPush, bytes_by_folder

    if snapshot.entries:
        file = stack.last_push_of(snapshot.source)
        folders = bytes_by_folder(snapshot.entries) if is_pushed else LastPush.read(file).folders
        LastPush(folders, frozenset(one.group for one in snapshot.left_out)).write(file)


def source_folder(given: str | None) -> Path:
    """Return the folder to push: ``--source``, else the repository around the current folder, else that."""
    if given is not None:
        return Path(os.path.expanduser(given))  # noqa: PTH111  (an unknown user stays in the name)
    here = Path.cwd()
    return next((folder for folder in (here, *here.parents) if is_work_tree(folder)), here)


def key_numbers(stack: Stack) -> frozenset[bytes]:
    """Return the numbers of the private key of every stack of the project, by which a copy is recognised."""
    from launch.code import private_keys

    keys = [key for key in stack.folder.parent.glob(f"*/{KEY_FILE}") if key.is_file()]
    return frozenset().union(*(private_keys.key_numbers(key.read_bytes()) for key in keys))


def invalidate_copies(stack: Stack, inventory: Inventory, reimaged: Sequence[Node]) -> None:
    """Clear the other nodes' records of who holds code and environments: ``reimaged`` nodes have lost theirs.

    The next push asks every node again. A node that does not answer is named.
    """
    from playbooks.ssh.connection import Cluster

    names = {node.name for node in reimaged}
    others = [node for node in inventory.nodes if node.name not in names]
    with Cluster(inventory, stack.folder) as cluster:
        answers = fan_out_hosts(
            cluster.host,
            others,
            lambda host: host.run(["sh", "-c", _CLEAR_HOLDERS], timeout=_STEP_S),
            what="clearing records of pushed code",
            timeout=_STEP_S + 1,
        )
    silent = [name for name, answer in answers.items() if isinstance(answer, Exception)]
    if silent:
        output.progress(
            f"{fold(silent)} could not be informed that {fold(names)} lost the pushed code: "
            "use `fab push --verify`"
        )
