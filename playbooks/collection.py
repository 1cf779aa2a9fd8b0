"""Every task under its name, as ``fab --list`` shows them."""

from __future__ import annotations

from invoke.collection import Collection

from playbooks import (
    accounts,
    cluster,
    collecting,
    ending,
    jobfiles,
    jobs,
    launching,
    nodes,
    overview,
    planning,
    rehearsal,
    scaling,
)
from playbooks.parsing import improve_command_line

__all__ = ["make_collection"]


def make_collection() -> Collection:
    """A new collection; a user's fabfile may configure it and add to it."""
    ns = Collection()
    for task in (planning.plan, accounts.account):
        ns.add_task(task)
    for task in (cluster.up, cluster.down, cluster.status, cluster.wait, scaling.scale, scaling.replace):
        ns.add_task(task)
    for task in (nodes.execute, nodes.ssh, nodes.push):
        ns.add_task(task)
    for task in (overview.jobs, overview.job, jobs.logs, ending.cancel, collecting.collect):
        ns.add_task(task)
    launch = Collection("launch", launching.mpi, launching.torch, launching.tensorflow)
    launch.add_task(jobfiles.launch_file, default=True)
    ns.add_collection(launch)
    ns.add_collection(Collection.from_module(rehearsal, name="rehearsal"))
    improve_command_line()
    return ns
