"""Asking nodes that refused a job which of their slots others hold by now."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from launch.remote.head.runners import ssh_start

if TYPE_CHECKING:
    from collections.abc import Collection

    from launch.remote.base.records import Plan, Taken


__all__ = ["Inquiry"]

_LIMIT_S = 12.0
"""Seconds for all nodes together: an ssh client gives up on a silent one after 10."""


class Inquiry:
    """One question to the nodes of these names, all at once, while the supervisor goes on."""

    def __init__(self, plan: Plan, names: Collection[str]) -> None:
        self._asked = {
            node["name"]: ssh_start.taken_slots(plan, index)
            for index, node in enumerate(plan["nodes"])
            if node["name"] in names
        }
        self._until = time.monotonic() + _LIMIT_S

    @property
    def is_over(self) -> bool:
        """Whether all have answered, or had their time to."""
        return time.monotonic() > self._until or all(
            process.poll() is not None for process in self._asked.values()
        )

    def answer(self) -> Taken:
        """What they said. Nothing of one that did not answer: the next try to start there will tell why."""
        taken: Taken = {}
        for name, process in self._asked.items():
            if process.poll() is None:
                process.kill()
            said, _ = process.communicate()
            try:
                found = json.loads(said)
            except ValueError:
                continue
            if found:
                taken[name] = found
        return taken
