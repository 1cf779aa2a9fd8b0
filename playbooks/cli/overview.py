"""What ``fab`` alone and ``fab --list`` print: the first steps, and every task by group."""

from __future__ import annotations

import textwrap
from typing import Any

__all__ = ["first_steps", "task_list"]

_STEPS = (
    ("fab plan", "the cluster's price, and whether Azure will grant it; creates nothing"),
    ("fab up", "builds the cluster, and waits until every node answers"),
    ('fab launch.torch "train.py --lr 0.1"', "runs a script of this folder on every node"),
    ("fab jobs", "what waits, runs and has ended; fab logs -f JOB prints its output"),
    ("fab down", "removes the cluster, and lists what is left"),
)
_GROUPS = {
    "playbooks.stack": "The cluster",
    "playbooks.nodes": "Nodes",
    "playbooks.jobs": "Jobs",
    "playbooks.rehearsal": "The rehearsal: Azure on this machine",
    "": "Of this repository",
}
"""Titles by the room of a task's function."""
_WIDTH = 110


def first_steps() -> str:
    """Return the commands that a newcomer runs first, in their order."""
    width = max(len(command) for command, _ in _STEPS)
    lines = [f"  {command.ljust(width)}  {text}" for command, text in _STEPS]
    return "\n".join(
        ["First steps:", *lines, "Without Azure: fab rehearsal.start, then the same with --stack rehearsal"]
    )


def task_list(collection: Any) -> str:
    """Return every task of a collection with the first line of its help, by group."""
    groups: dict[str, list[tuple[str, str]]] = {room: [] for room in _GROUPS}
    for name, aliases in collection.task_names.items():
        task = collection[name]
        module = getattr(task.body, "__module__", "")
        room = next(room for room in _GROUPS if module == room or module.startswith(f"{room}.") or not room)
        groups[room].append((min((name, *aliases), key=len), (task.__doc__ or "").strip().partition("\n")[0]))
    width = max((len(name) for tasks in groups.values() for name, _ in tasks), default=0)
    lines = []
    for room, tasks in groups.items():
        if tasks:
            lines += ["", f"{_GROUPS[room]}:"]
            lines += [
                f"  {name.ljust(width)}  {textwrap.shorten(text, _WIDTH - width - 4, placeholder=' …')}"
                for name, text in tasks
            ]
    return "\n".join([*lines[1:], "", "fab --help TASK shows a task's options and an example."])
