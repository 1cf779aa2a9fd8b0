"""What nodes hold of the data in storage: ``fab data``, ``fab data.stage`` and ``fab data.prune``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from invoke.context import Context

from infra.inventory import Inventory
from launch.access import Access
from launch.errors import InputError, ManyNodesError
from launch.nodeset import fold
from launch.numbers import counted
from launch.remote.base.messages import size
from playbooks.cli import output
from playbooks.cli.task import command, open_from, with_address_age
from playbooks.data.input_flags import read_inputs
from playbooks.data.stack_storage import PATH_HELP, SAS_HELP, STAGE_HELP, sas_flag
from playbooks.data.staging import show_progress, staged_text
from playbooks.nodes.choose import choose_nodes
from playbooks.nodes.environments import name_damaged, on_all_nodes, with_damage
from playbooks.project import Stack

if TYPE_CHECKING:
    from launch.client.staged_data import HeldData
    from launch.host import Host

__all__ = ["list_node_data", "prune", "stage"]

_NAME = "data"
_RANK = ("id", "address", "used by", "size", "nodes", "last used", "files")


@command("data", called="data", example="fab data --stack dev")
def list_node_data(context: Context, stack: str | None = None, json: bool = False) -> None:
    """List the data that nodes hold on their disks, with the jobs that use them."""
    chosen = open_from(context, stack)
    inventory = chosen.saved()
    found = _held(chosen, inventory)
    if json:
        output.as_json(found)
        return
    columns = ("id", "address", "files", "size", "last used", "nodes", "used by")
    rows = [
        (
            one.id,
            with_damage(one.url, one.damaged) or "not whole",
            str(one.files),
            size(one.bytes),
            output.age(one.used.timestamp()),
            _place(one, inventory),
            " ".join(one.jobs),
        )
        for one in found
    ]
    output.table(columns, rows, rank=_RANK, folds="used by")


@command(
    "stage",
    called="data.stage",
    example="fab data.stage imagenet --nodes any:4",
    help={
        "path": f"{PATH_HELP}, azureml:NAME, or any https: address",
        "file": "the address is one file, not a folder",
        "sas-file": SAS_HELP,
        "stage": STAGE_HELP,
    },
    positional=["path"],
)
def stage(  # noqa: PLR0913, PLR0917  (each is an option)
    context: Context,
    path: str,
    nodes: str | None = None,
    file: bool = False,
    sas_file: str | None = None,
    stage: str | None = None,
    stack: str | None = None,
    json: bool = False,
    dry_run: bool = False,
) -> None:
    """Bring data from storage to nodes before a job needs them; jobs that name them move nothing then."""
    from launch.client.stage import stage_data
    from launch.client.staged_data import ensure_code
    from launch.data.data_address import is_address
    from launch.data.data_stores import stage_requests
    from playbooks.ssh.connection import Cluster

    chosen = open_from(context, stack)
    inventory = chosen.saved()
    wanted = choose_nodes(inventory, nodes)
    address = path if is_address(path) else f"azureml://datastores/workspaceblobstore/paths/{path}"
    is_asset = address.startswith("azureml:") and not address.startswith("azureml://")
    if not (file or is_asset):
        address = address.rstrip("/") + "/"
    signed = sas_flag(sas_file)
    found = read_inputs(chosen, inventory, [f"{_NAME}={address}"], signed, Path.cwd(), stage, Access())
    if not found.sources:
        raise InputError("path", path, "is not in storage", "give an address that `fab data.ls` shows")
    (request,) = stage_requests(found.sources, found.storage)
    if dry_run:
        where = request["shared"] or fold(node.name for node in wanted)
        output.steps([f"bring {found.sources[0].address.url} to {where}, unless it is there"], json=json)
        return
    with Cluster(inventory, chosen.folder) as cluster, show_progress() as show:
        head = cluster.host(wanted[0])
        try:
            staged = stage_data(request, head, wanted, ensure_code(head), show)
        except ManyNodesError as error:
            raise with_address_age(inventory, error) from None
    if json:
        output.as_json(staged.data)
        return
    output.progress(staged_text(staged, request["shared"] or counted(len(wanted), "node")))
    output.result("\n".join(one["path"] for one in staged.data))


@command(
    "prune",
    called="data.prune",
    example="fab data.prune --dry-run",
    help={"dry-run": "list what would be removed, which the nodes are asked for"},
)
def prune(context: Context, stack: str | None = None, json: bool = False, dry_run: bool = False) -> None:
    """Remove data that no job uses from the nodes' disks and shared folder; storage keeps them."""
    from launch.client.staged_data import removable

    chosen = open_from(context, stack)
    inventory = chosen.saved()
    found = removable(_held(chosen, inventory))
    if dry_run and not json:
        for one in found:
            output.result(f"{one.id} {one.url}: {size(one.bytes)} on {_place(one, inventory)}")
    if dry_run or not found:
        if json:
            output.as_json(found)
        elif not found:
            output.result("no data to remove")
        return
    kept = on_all_nodes(
        chosen, inventory, partial(_remove, found, inventory.shared_folder or ""), "removing data"
    )
    if json:
        output.as_json(found)
        return
    for one in found:
        still = [node for node, left in kept.items() if left and (one.id, one.shared) in left]
        count = counted(len({*one.nodes, *one.partial} - {*still}), "node")
        if one.shared:
            count = "no node" if still else f"{inventory.shared_folder}"
        there = f"; {fold(still)} still uses it" if still else ""
        output.result(f"removed {one.id} {one.url}: {size(one.bytes)} on {count}{there}")


def _remove(found: Sequence[HeldData], shared: str, host: Host, remote: str) -> set[tuple[str, bool]]:
    """Remove data from a node, and what is shared if it is the first that sees it; return what stays."""
    from launch.client.staged_data import remove_data_from

    kept: set[tuple[str, bool]] = set()
    own = [one.id for one in found if not one.shared]
    common = [one.id for one in found if one.shared and host.name == (*one.nodes, *one.partial)[0]]
    for names, folder in ((own, ""), (common, shared)):
        if names:
            kept |= {(name, bool(folder)) for name in remove_data_from(host, remote, names, folder)}
    return kept


def _place(one: HeldData, inventory: Inventory) -> str:
    return inventory.shared_folder or "" if one.shared else fold(one.nodes or one.partial)


def _held(stack: Stack, inventory: Inventory) -> list[HeldData]:
    """Return what the nodes hold. Raise ManyNodesError where one does not answer: a job may use it there."""
    from launch.client.staged_data import merge_listings, query_data

    shared = inventory.shared_folder or ""
    answers = on_all_nodes(
        stack,
        inventory,
        lambda host, remote: query_data(host, remote, shared, name_damaged(host, "data")),
        "listing its data",
    )
    return merge_listings({name: answer for name, answer in answers.items() if answer is not None})
