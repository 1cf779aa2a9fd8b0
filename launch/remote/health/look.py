"""The command ``look``: this node against what its VM size promises, as a :class:`Look`."""

from __future__ import annotations

import dataclasses
import os
import sys
import time

from launch.remote.base import frames
from launch.remote.health.facts import read_facts
from launch.remote.health.readings import keep_readings, kept_readings
from launch.remote.health.rules import findings
from launch.remote.health.sysfs import read_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from launch.remote.base.health_records import Look, Promise

__all__ = ["look", "main"]


def look(promise: Promise) -> Look:
    """Return what this node has, and what of it is not as promised."""
    facts = read_facts(promise)
    readings = kept_readings(read_line("/proc/sys/kernel/random/boot_id") or "")
    now = int(time.time())
    facts = dataclasses.replace(facts, growth={port.name: readings.growth(now, port) for port in facts.ports})
    if facts.ports and readings.add(now, facts.ports):
        keep_readings(readings)
    is_known = facts.driver is not None and not facts.driver.unread
    answering = [gpu for gpu in facts.driver.gpus if not gpu.error] if facts.driver and is_known else None
    return {
        "findings": list(findings(facts)),
        "gpus": -1 if answering is None else len(answering),
        "ports": [port.name for port in facts.ports if port.is_active],
    }


def main(promise: str) -> int:
    """Print the look as one bencoded value between two marks; ``promise`` is bencoded as well."""
    found = look(frames.unpack(os.fsencode(promise)))
    sys.stdout.buffer.write(frames.LOOK_MARK + frames.pack(found) + frames.LOOK_MARK)
    return 0
