"""Every task under its name, as ``fab --list`` shows them."""

from __future__ import annotations

from typing import get_args

from invoke.collection import Collection

from launch.launchers.registry import LAUNCHERS
from launch.remote.environment.request import FORMS
from playbooks import images, new_project, rehearsal
from playbooks.check import check
from playbooks.check.on_unhealthy import OnUnhealthy
from playbooks.cli.invoke_patches import improve_command_line
from playbooks.data import listing_tasks, node_data, upload
from playbooks.data import put as transfers
from playbooks.jobs import cancel, collect, launch_file, logs, show
from playbooks.jobs.launch import launch_task
from playbooks.nodes import drain, environments, exec, push, ssh_task
from playbooks.observe import debug, job_report, metrics, scaling, top
from playbooks.pulumi import config_task
from playbooks.stack import account, down, plan, replace, scale, status, up, wait_nodes
from rehearsal.faults.fault_kinds import KINDS

__all__ = ["make_collection"]


def make_collection() -> Collection:
    """Return a new collection; a user's fabfile may configure it and add tasks."""
    ns = Collection()
    for task in (
        *(new_project.init, config_task.config),
        *(plan.plan, account.account, up.up, down.down, status.status, wait_nodes.wait),
        *(scale.scale, replace.replace, check.check, drain.drain, drain.undrain),
        *(exec.execute, ssh_task.ssh, push.push),
        *(show.jobs, show.job, logs.logs, cancel.cancel, collect.collect, upload.upload),
        *(top.top, debug.debug, job_report.report, metrics.metrics, scaling.scaling),
    ):
        ns.add_task(task)
    launch = Collection("launch", *map(launch_task, LAUNCHERS.values()))
    launch.add_task(launch_file.launch_file, default=True)
    ns.add_collection(launch)
    held = Collection("environment")
    held.add_task(environments.environment, default=True)
    held.add_task(environments.remove)
    held.add_task(environments.prune)
    ns.add_collection(held)
    ns.add_collection(Collection("image", images.build))

    data = Collection("data")
    data.add_task(node_data.list_node_data, default=True)
    for task in (
        *(transfers.put, transfers.get),
        *(listing_tasks.list_data, listing_tasks.remove, listing_tasks.register),
        *(node_data.stage, node_data.prune),
    ):
        data.add_task(task)
    ns.add_collection(data)
    ns.add_collection(Collection.from_module(rehearsal, name="rehearsal"))
    options = [option for launcher in LAUNCHERS.values() for option in launcher.options]
    improve_command_line(
        {
            **{one.name: one.choices for one in options if one.choices},
            "kind": (*KINDS, "clear"),
            "words": ("get", "rm", "set"),
            "on_unhealthy": get_args(OnUnhealthy),
            "runtime": tuple(FORMS),
        }
    )
    return ns
