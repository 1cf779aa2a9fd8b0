"""A job's environment, made and spread before the job is submitted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from infra.inventory import Inventory, Node
from launch.errors import ManyNodesError, RankliftError
from launch.numbers import counted
from playbooks.cli import output
from playbooks.cli.task import with_address_age
from playbooks.nodes.busy import STEP_S
from playbooks.nodes.push import key_numbers, push_to
from playbooks.project import Stack
from playbooks.selection import note_environment

if TYPE_CHECKING:
    from launch.client.environments import Show
    from launch.code.snapshot import Snapshot
    from launch.host import Host
    from launch.job.plan import JobPlan

__all__ = ["in_environment"]


def in_environment(
    stack: Stack,
    inventory: Inventory,
    nodes: Sequence[Node],
    planned: JobPlan,
    head: Host,
    registries: Mapping[str, dict[str, str]],
    allowed: Sequence[Path] = (),
) -> JobPlan:
    """Return the plan with the environment that its job asks for, which all nodes hold then.

    Links in its folders may lead into ``allowed``.

    Raises as :func:`launch.client.environments.make_environment`.
    """
    asked = planned.spec.environment
    if asked is None and not registries:
        return planned
    from launch.client.environments import make_environment
    from launch.code.snapshot import plan_data
    from launch.environment.environment_request import request_of
    from launch.environment.environment_spec import BuildEnvironment, ImageEnvironment, PythonEnvironment

    folders: dict[str, Snapshot] = {}

    def planned_ids(paths: Iterable[Path]) -> list[str]:
        """Return the ids of the folders' snapshots, which ``folders`` has then."""
        snapshots = [
            plan_data(path, stack.hashes_of(path), key_numbers(stack), allowed, expected=path)
            for path in paths
        ]
        folders.update({snapshot.id: snapshot for snapshot in snapshots})
        return [snapshot.id for snapshot in snapshots]

    packages = asked.python if isinstance(asked, ImageEnvironment) else asked
    context, wheels, channels = "", [], []
    if isinstance(asked, BuildEnvironment):
        (context,) = planned_ids([asked.context])
    elif isinstance(packages, PythonEnvironment):
        wheels, channels = planned_ids(packages.find_links), planned_ids(packages.channels)
    addresses = [(node.name, node.private_ip) for node in nodes]
    request = request_of(
        asked, addresses, context=context, wheels=wheels, channels=channels, registries=registries
    )
    if request is None:
        return planned

    def send(snapshots: Sequence[str]) -> None:
        for one in snapshots:
            push_to(stack, head, nodes[:1], folders[one])

    say = output.bounded_progress()
    with output.progress_bar("environment") as update:

        def show(text: str, done: int, total: int) -> None:
            if done:
                update(text, done, total or None)
            else:
                say(text)

        remote = PurePosixPath(planned.remote).name

        def fetch(wanted: str) -> None:
            _fetch(stack, inventory, nodes, remote, wanted, show)

        try:
            made = make_environment(request, head, nodes, remote, send, show, fetch=fetch)
        except ManyNodesError as error:
            raise with_address_age(inventory, error) from None
    if made.built:
        where = counted(len(nodes), "node")
        output.progress(f"environment {made.record['id']}: made for {where} in {made.seconds:.0f} s")
    note_environment(stack.folder, made.record["id"], made.record["title"])
    return planned.in_environment(made.record, made.variables)


def _fetch(
    stack: Stack, inventory: Inventory, nodes: Sequence[Node], remote: str, wanted: str, show: Show
) -> None:
    """Have a node of the cluster send the head an environment whose id begins with ``wanted``, if one has it.

    Nodes that do not answer are left out, as are those with other node code: the head can make one.
    """
    from launch.client.environments import fitting, query_environments, send_to
    from playbooks.nodes.environments import name_damaged
    from playbooks.ssh.connection import Cluster
    from playbooks.ssh.fanout import fan_out_hosts

    head, others = nodes[0], {node.name: node for node in inventory.nodes if node.name != nodes[0].name}

    with Cluster(inventory, stack.folder) as cluster:
        what = "asking for its environments"
        answers = fan_out_hosts(
            cluster.host,
            others.values(),
            lambda host: query_environments(host, remote, name_damaged(host, "environment")),
            what=what,
            timeout=STEP_S,
        )
        listings = {name: answer for name, answer in answers.items() if not isinstance(answer, Exception)}
        found = fitting(listings, wanted, [node.name for node in nodes])
        if found is None:
            return
        holder, environment = others[found[0]], found[1]
        output.progress(f"environment {environment}: {holder.name} holds it and sends it to {head.name}")
        try:
            with cluster.host(holder) as host:
                send_to(head, host, holder, remote, environment, show)
        except RankliftError as error:
            output.progress(f"environment {environment}: {head.name} makes one itself: {error}")
