"""A job's outputs in storage: ``upload``."""

from __future__ import annotations

from invoke.context import Context

from launch.errors import GiveUpError
from launch.numbers import counted
from launch.remote.base.messages import size
from playbooks.cli import output
from playbooks.cli.task import command, open_from
from playbooks.data.stack_storage import storage_of

__all__ = ["upload"]

_SHOWN = 20
"""Problems printed one by one; ``--json`` has those of each node."""


@command("upload", example="fab upload train-20260301-090507-0f3a", positional=["job"])
def upload(
    context: Context, job: str, stack: str | None = None, json: bool = False, dry_run: bool = False
) -> None:
    """Send a job's outputs from its nodes to storage: to where its job file says, else to results/<job>/.

    Repeat it to continue after an interruption: what storage has is not sent again.
    """
    from launch.client.upload_job import upload_job
    from launch.data.output_places import usual_places
    from playbooks.jobs.handle import choose_job, meant_job
    from playbooks.jobs.location import find_job
    from playbooks.ssh.connection import Cluster

    chosen = open_from(context, stack)
    inventory = chosen.saved()
    if dry_run:
        storage = storage_of(chosen, inventory)
        usual = [place["url"] for place in usual_places("<job>", storage)] or [
            "nowhere: the stack has no storage"
        ]
        step = f"send the outputs of {meant_job(chosen, job)} from its nodes to where its job file says"
        output.steps([f"{step}, else to {usual[0]}"], json=json)
        return
    name = choose_job(chosen, inventory, job)
    place = find_job(chosen, inventory, name)
    wanted = usual_places(name, storage_of(chosen, inventory))
    with Cluster(inventory, chosen.folder) as cluster, output.progress_bar("uploading") as update:

        def show(_files: int, sent: int) -> None:
            update("uploading", sent, None)

        event = upload_job(name, cluster.host(place.head), wanted, show, remote=place.remote)
    if json:
        output.as_json(event)
    else:
        kept = f", {event['kept']} there already" if event["kept"] else ""
        took = f"{counted(event['files'], 'file')}, {size(event['bytes'])} in {event['seconds']:.1f} s{kept}"
        output.result("\n".join(f"{url}: {took}" for url in event["urls"].values()))
    if event["errors"]:
        lines = [f"{node}: {why}" for node, found in event["errors"].items() for why in found]
        more = [f"and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
        raise GiveUpError("\n".join(["not everything is in storage", *lines[:_SHOWN], *more]))
