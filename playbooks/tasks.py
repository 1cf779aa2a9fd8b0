"""Every task under its name, as ``fab --list`` shows them."""

from __future__ import annotations

from invoke.collection import Collection

from playbooks import rehearsal
from playbooks.cli.invoke_patches import improve_command_line
from playbooks.jobs import cancel, collect, launch_file, logs, show
from playbooks.jobs import launch as launching
from playbooks.nodes import tasks
from playbooks.stack import account, lifecycle, plan, replace, scale

__all__ = ["make_collection"]


def make_collection() -> Collection:
    """A new collection; a user's fabfile may configure it and add to it."""
    ns = Collection()
    for task in (plan.plan, account.account):
        ns.add_task(task)
    for task in (
        lifecycle.up,
        lifecycle.down,
        lifecycle.status,
        lifecycle.wait,
        scale.scale,
        replace.replace,
    ):
        ns.add_task(task)
    for task in (tasks.execute, tasks.ssh, tasks.push):
        ns.add_task(task)
    for task in (show.jobs, show.job, logs.logs, cancel.cancel, collect.collect):
        ns.add_task(task)
    launch = Collection("launch", launching.mpi, launching.torch, launching.tensorflow)
    launch.add_task(launch_file.launch_file, default=True)
    ns.add_collection(launch)
    ns.add_collection(Collection.from_module(rehearsal, name="rehearsal"))
    improve_command_line()
    return ns
