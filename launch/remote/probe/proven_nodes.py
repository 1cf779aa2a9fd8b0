"""Nodes between which a probe has proven InfiniBand, as the head remembers them."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress

from launch.remote.base.files import replace_file
from launch.remote.base.health_records import ProvenNodes
from launch.remote.base.records import Plan

__all__ = ["find", "read", "remember"]

_PATH = "~/.ranklift/probes.json"
_KEPT = 100


def read() -> list[ProvenNodes]:
    """Return what is remembered; nothing where that cannot be read, and the nodes are probed again."""
    try:
        with open(os.path.expanduser(_PATH), encoding="utf-8") as file:
            found: list[ProvenNodes] = json.load(file)
    except (OSError, ValueError):
        return []
    return found


def find(proven: list[ProvenNodes], plan: Plan, subject: str) -> ProvenNodes | None:
    """Return the newest entry of this subject that has all nodes of the job."""
    wanted = {node["name"] for node in plan["nodes"]}
    fits = (one for one in reversed(proven) if one["subject"] == subject and wanted <= set(one["nodes"]))
    return next(fits, None)


def remember(proven: list[ProvenNodes], plan: Plan, subject: str, transport: str) -> None:
    """Add the job's nodes to what is remembered."""
    names = [node["name"] for node in plan["nodes"]]
    entry: ProvenNodes = {
        "subject": subject,
        "nodes": names,
        "job": plan["id"],
        "transport": transport,
        "time": time.time(),
    }
    with suppress(OSError):  # a full disk: the nodes are probed again
        replace_file(os.path.expanduser(_PATH), json.dumps([*proven, entry][-_KEPT:]).encode())
