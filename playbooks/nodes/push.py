"""Code on nodes: ``push``, and what a job's push shares with it."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from invoke.context import Context

from infra.inventory import KEY_FILE, Inventory, Node
from launch.errors import ManyNodesError, NodeUnreachable, RankliftError
from launch.nodeset import fold
from launch.numbers import counted
from launch.remote.base.messages import size
from playbooks.cli import output
from playbooks.cli.task import choose_nodes, command, open_from
from playbooks.project import Stack
from playbooks.ssh.fanout import fan_out_hosts

if TYPE_CHECKING:
    from launch.code.push import PushReport
    from launch.code.snapshot import Snapshot

__all__ = ["invalidate_copies", "key_numbers", "push", "push_snapshot", "source_folder"]

_STEP_S = 20.0
_CLEAR_HOLDERS = 'for f in .ranklift/snapshots/*.nodes; do if [ -e "$f" ]; then echo "{}" > "$f"; fi; done'


@command(
    "push",
    example="fab push --source ~/code/train --nodes 0-3",
    help={
        "source": "folder to push (default: the repository around the current folder, else that folder)",
        "verify": "have every node read its copy again, and repair it",
    },
)
def push(
    context: Context,
    source: str | None = None,
    nodes: str | None = None,
    stack: str | None = None,
    verify: bool = False,
    json: bool = False,
    dry_run: bool = False,
) -> None:
    """Copy code to the nodes; a second push of the same code sends nothing.

    Leaves out what .gitignore and .ranklift-ignore name, and always .git and .ranklift.
    """
    from launch.code.snapshot import plan_snapshot

    chosen = open_from(context, stack)
    inventory = chosen.saved()
    wanted = choose_nodes(inventory, nodes)
    snapshot = plan_snapshot(source_folder(source), chosen.hashes, key_numbers(chosen))
    if snapshot.notice:
        output.progress(snapshot.notice)
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
    from launch.code.push import push as send
    from playbooks.ssh.connection import Cluster

    failed: dict[str, Exception] = {}
    with Cluster(inventory, stack.folder) as cluster:
        for position, head in enumerate(nodes):
            try:
                report = send(snapshot, cluster.host(head), nodes[position:], verify=verify)
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


def source_folder(given: str | None) -> Path:
    """Return the folder to push: ``--source``, else the repository around the current folder, else that.

    Does not run git: it may be missing, and it refuses a repository of another user.
    """
    if given is not None:
        return Path(os.path.expanduser(given))  # noqa: PTH111  (an unknown user stays in the name)
    here = Path.cwd()
    return next((folder for folder in (here, *here.parents) if _is_repository(folder)), here)


def _is_repository(folder: Path) -> bool:
    mark = folder / ".git"
    try:
        return (mark / "HEAD").is_file() or mark.is_file()  # a work tree and a submodule have a file
    except PermissionError:
        return os.path.isdir(mark)  # noqa: PTH112  (False where even that may not be read)


def key_numbers(stack: Stack) -> frozenset[bytes]:
    """Return the numbers of the private key of every stack of the project, by which a copy is recognised."""
    from launch.code import private_keys

    keys = [key for key in stack.folder.parent.glob(f"*/{KEY_FILE}") if key.is_file()]
    return frozenset().union(*(private_keys.key_numbers(key.read_bytes()) for key in keys))


def invalidate_copies(stack: Stack, inventory: Inventory, reimaged: Sequence[Node]) -> None:
    """Clear the other nodes' records of who holds pushed code: ``reimaged`` nodes have lost theirs.

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
