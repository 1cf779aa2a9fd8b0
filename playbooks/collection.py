"""Every task under its name, as ``fab --list`` shows them."""

from __future__ import annotations

from invoke.collection import Collection

from playbooks import nodes, rehearsal
from playbooks.jobs import collecting, ending, jobfiles, launching, logs, overview
from playbooks.parsing import improve_command_line
from playbooks.stack import accounts, lifecycle, planning, replacing, scaling

__all__ = ["make_collection"]


def make_collection() -> Collection:
    """A new collection; a user's fabfile may configure it and add to it."""
    ns = Collection()
    for task in (planning.plan, accounts.account):
        ns.add_task(task)
    for task in (
        lifecycle.up,
        lifecycle.down,
        lifecycle.status,
        lifecycle.wait,
        scaling.scale,
        replacing.replace,
    ):
        ns.add_task(task)
    for task in (nodes.execute, nodes.ssh, nodes.push):
        ns.add_task(task)
    for task in (overview.jobs, overview.job, logs.logs, ending.cancel, collecting.collect):
        ns.add_task(task)
    launch = Collection("launch", launching.mpi, launching.torch, launching.tensorflow)
    launch.add_task(jobfiles.launch_file, default=True)
    ns.add_collection(launch)
    ns.add_collection(Collection.from_module(rehearsal, name="rehearsal"))
    improve_command_line()
    return ns
