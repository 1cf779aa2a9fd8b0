"""Nodes between which a probe has proven InfiniBand, as the head remembers them."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress

from launch.remote.base.files import replace_file
from launch.remote.base.health_records import ProvenNodes
from launch.remote.base.records import Plan

__all__ = ["find", "forget", "read", "remember"]

_PATH = "~/.ranklift/probes.json"
_KEPT = 100
_KEYS = {"subject", "nodes", "slots", "job", "transport", "networks", "time"}


def read() -> list[ProvenNodes]:
    """Return what is remembered; nothing where that cannot be read, and the nodes are probed again."""
    try:
        with open(os.path.expanduser(_PATH), encoding="utf-8") as file:
            found: list[ProvenNodes] = json.load(file)
        return [one for one in found if set(one) >= _KEYS and len(one["nodes"]) == len(one["slots"])]
    except (OSError, ValueError, TypeError):
        return []


def find(proven: list[ProvenNodes], plan: Plan, subject: str) -> ProvenNodes | None:
    """Return the newest entry of this subject that has all nodes of the job, each with as many slots: more
    GPUs use more devices."""
    for one in reversed(proven):
        slots = dict(zip(one["nodes"], one["slots"]))  # noqa: B905  (strict= is Python 3.10's)
        if one["subject"] == subject and all(
            node["reserve"] <= slots.get(node["name"], 0) for node in plan["nodes"]
        ):
            return one
    return None


def remember(
    proven: list[ProvenNodes], plan: Plan, subject: str, transport: str, networks: dict[str, str]
) -> None:
    """Add the job's nodes, with the marks of their ``networks``, to what is remembered."""
    names = [node["name"] for node in plan["nodes"]]
    entry: ProvenNodes = {
        "subject": subject,
        "nodes": names,
        "slots": [node["reserve"] for node in plan["nodes"]],
        "job": plan["id"],
        "transport": transport,
        "networks": networks,
        "time": time.time(),
    }
    _write([*proven, entry][-_KEPT:])


def forget(plan: Plan) -> None:
    """Remove what is remembered of the job's nodes."""
    names = {node["name"] for node in plan["nodes"]}
    _write([one for one in read() if not names.intersection(one["nodes"])])


def _write(proven: list[ProvenNodes]) -> None:
    with suppress(OSError):  # a full disk: a job finds that a proof does not hold, or probes
        replace_file(os.path.expanduser(_PATH), json.dumps(proven).encode())
