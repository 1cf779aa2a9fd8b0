"""What jobs brought to the nodes: ``environment``, ``environment.rm``, ``environment.prune``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from invoke.context import Context

from infra.inventory import Inventory
from launch.errors import InputError, ManyNodesError
from launch.nodeset import fold
from launch.numbers import counted
from launch.remote.base.messages import size
from playbooks.cli import output
from playbooks.cli.task import command, open_from, with_address_age
from playbooks.nodes.busy import STEP_S
from playbooks.project import Stack
from playbooks.selection import environment_note, note_environment
from playbooks.ssh.fanout import fan_out_hosts, raise_for_errors

if TYPE_CHECKING:
    from launch.client.environments import Held
    from launch.host import Host
    from launch.remote.reading import Malformed

__all__ = ["environment", "name_damaged", "on_all_nodes", "prune", "remove", "with_damage"]

_NOTED = 1000
"""Environments, the last used first, whose ids shells complete: each is a file here."""
_RANK = ("id", "made of", "used by", "size", "nodes", "last used")


@command("list", called="environment", example="fab environment --stack dev")
def environment(context: Context, stack: str | None = None, json: bool = False) -> None:
    """List the environments that jobs brought, with the nodes that hold them and the jobs that use them."""
    chosen = open_from(context, stack)
    found = _held(chosen, chosen.saved())
    if json:
        output.as_json(found)
        return
    if not found:
        output.progress("no job has brought an environment to these nodes")
        return
    for one in found[:_NOTED]:
        note_environment(chosen.folder, one.id, one.title)
    columns = ("id", "made of", "size", "last used", "nodes", "used by")
    output.table(columns, map(_row, found), rank=_RANK, folds="used by")


def _row(one: Held) -> tuple[str, ...]:
    used = output.age(one.used.timestamp())
    made_of = with_damage(one.title, one.damaged)
    return one.id, made_of, size(one.bytes), used, fold(one.nodes), " ".join(one.jobs)


@command(
    "rm",
    called="environment.rm",
    example="fab environment.rm 1e5f0409602567e6",
    help={"environment-id": "id of an environment, or a unique beginning of it"},
    positional=["environment_id"],
)
def remove(
    context: Context,
    environment_id: str,
    stack: str | None = None,
    json: bool = False,
    dry_run: bool = False,
) -> None:
    """Remove an environment from all nodes. One that a job uses is refused."""
    from launch.client.environments import in_use

    chosen = open_from(context, stack)
    inventory = chosen.saved()
    if dry_run:
        where = fold(node.name for node in inventory.nodes)
        step = f"remove the one environment whose id begins with {environment_id} from {where}"
        output.steps([f"{step}, unless a job uses it"], json=json)
        return
    found = [one for one in _held(chosen, inventory) if one.id.startswith(environment_id)]
    if len(found) != 1:
        problem = f"fits {len(found)} environments of stack {chosen.name}"
        raise InputError("environment", environment_id, problem, "see `fab environment`")
    if found[0].jobs or found[0].held:
        raise in_use(found[0].id, found[0].jobs, found[0].held)
    _remove(chosen, inventory, found, cache=False, json=json)


@command(
    "prune",
    called="environment.prune",
    example="fab environment.prune --dry-run",
    help={"dry-run": "list what would be removed, which the nodes are asked for"},
)
def prune(context: Context, stack: str | None = None, json: bool = False, dry_run: bool = False) -> None:
    """Remove environments that no job uses, except the last used, and the packages that heads downloaded."""
    from launch.client.environments import removable

    chosen = open_from(context, stack)
    inventory = chosen.saved()
    found = removable(_held(chosen, inventory))
    if dry_run and json:
        output.as_json(found)
    elif dry_run:
        for one in found:
            output.result(f"{one.id} {one.title}: {size(one.bytes)} on {fold(one.nodes)}")
    else:
        _remove(chosen, inventory, found, cache=True, json=json)


def _held(stack: Stack, inventory: Inventory) -> list[Held]:
    """Return what the nodes hold. Raise ManyNodesError where one does not answer: a job may use it there."""
    from launch.client.environments import held_on, query_environments

    answers = on_all_nodes(
        stack,
        inventory,
        lambda host, remote: query_environments(host, remote, name_damaged(host, "environment")),
        "listing its environments",
    )
    return held_on({name: answer for name, answer in answers.items() if answer is not None})


def _remove(stack: Stack, inventory: Inventory, found: Sequence[Held], *, cache: bool, json: bool) -> None:
    from launch.client.environments import remove_from

    names = [one.id for one in found]
    on_all_nodes(
        stack,
        inventory,
        lambda host, remote: remove_from(host, remote, names, cache=cache),
        "removing environments",
    )
    for one in found:
        with suppress(OSError):
            environment_note(stack.folder, one.id).unlink(missing_ok=True)
    if json:
        output.as_json(found)
        return
    for one in found:
        output.result(f"removed {one.id} {one.title}: {size(one.bytes)} on {counted(len(one.nodes), 'node')}")
    if not found:
        output.result("no environment to remove")


def with_damage(made_of: str, damaged: Sequence[str]) -> str:
    """Return what an entry of the nodes is made of, with the nodes where a job has spoilt its record."""
    return "; ".join([*filter(None, [made_of]), *([f"damaged on {fold(damaged)}"] if damaged else [])])


def name_damaged(host: Host, what: str) -> Callable[[object, Malformed], None]:
    """Return what names each entry of a node's list that cannot be used; the rest is listed."""

    def drop(record: object, error: Malformed) -> None:
        name = record.get("id") if isinstance(record, dict) else None
        output.progress(f"{host.name}: {what} {name!s:.80} is damaged and not listed: {error}")

    return drop


def on_all_nodes(
    stack: Stack, inventory: Inventory, work: Callable[[Host, str], Any], what: str
) -> dict[str, Any]:
    """Return each node's answer; None of one without the node code, where no job has been."""
    from launch.client.rpc import version_there
    from launch.code.node_code import remote_id
    from playbooks.ssh.connection import Cluster

    def step(host: Host) -> Any:
        remote = version_there(host, remote_id(), STEP_S)
        return None if remote is None else work(host, remote)

    with Cluster(inventory, stack.folder) as cluster:
        answers = fan_out_hosts(cluster.host, inventory.nodes, step, what=what, timeout=10 * STEP_S)
    refused = [answer for answer in answers.values() if isinstance(answer, InputError)]
    if refused:
        raise refused[0]
    try:
        raise_for_errors(what, answers)
    except ManyNodesError as error:
        raise with_address_age(inventory, error) from None
    return answers
