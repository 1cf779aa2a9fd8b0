"""What ``fab`` alone and ``fab --list`` print: the first steps, and every task by group."""

from __future__ import annotations

from typing import Any

from playbooks.cli.table_layout import described, refilled

__all__ = ["first_steps", "task_list"]

_STEPS = (
    ("fab plan", "the cluster's price, and whether Azure will grant it; creates nothing"),
    ("fab up", "builds the cluster, and waits until every node answers"),
    ('fab launch.torch "train.py --lr 0.1"', "runs a script of this folder on every node"),
    ("fab jobs", "what waits, runs and has ended; fab logs -f JOB prints its output"),
    ("fab down", "removes the cluster, and lists what is left"),
)
_GROUPS = {
    "playbooks.new_project": "The cluster",
    "playbooks.pulumi": "The cluster",
    "playbooks.stack": "The cluster",
    "playbooks.nodes": "Nodes",
    "playbooks.check": "Nodes",
    "playbooks.jobs": "Jobs",
    "playbooks.observe": "Jobs",
    "playbooks.data": "Data in the stack's storage",
    "playbooks.images": "Images of nodes",
    "playbooks.rehearsal": "The rehearsal: Azure on this machine",
    "": "Of this repository",
}
"""Titles by the package of a task's function."""


def first_steps(room: int) -> str:
    """Return the commands that a newcomer runs first, in their order, in lines of ``room`` characters."""
    without = "Without Azure: fab rehearsal.start, then the same with --stack rehearsal"
    return "\n".join(["First steps:", *described(_STEPS, room), refilled(without, room)])


def task_list(collection: Any, room: int) -> str:
    """Return every task of a collection with the first line of its help, by group."""
    groups: dict[str, list[tuple[str, str]]] = {title: [] for title in _GROUPS.values()}
    for name, aliases in collection.task_names.items():
        task = collection[name]
        module = getattr(task.body, "__module__", "")
        title = next(_GROUPS[one] for one in _GROUPS if f"{module}.".startswith(f"{one}.") or not one)
        text = (task.__doc__ or "").strip().partition("\n")[0]
        groups[title].append((min((name, *aliases), key=len), text))
    width = max((len(name) for tasks in groups.values() for name, _ in tasks), default=0)
    lines = []
    for title, tasks in groups.items():
        if tasks:
            lines += ["", f"{title}:", *described(tasks, room, width)]
    return "\n".join([*lines[1:], "", "fab --help TASK shows a task's options and an example."])
