"""Types of the request for an environment and of its answer, both JSON."""

from __future__ import annotations

from typing import Literal, TypedDict

from launch.remote.base.payloads import EnvironmentRequest
from launch.remote.base.records import EnvironmentRecord

__all__ = ["EnvironmentAnswer", "EnvironmentCall"]


class EnvironmentCall(EnvironmentRequest):
    """Request of ``environment``, with what its spread needs. It is on stdin alone: an index's password may
    be among the requirements."""

    ssh: list[str]
    fanout: int
    silence: float
    credential: str


class _EnvironmentAnswer(TypedDict):
    t: Literal["beat", "progress", "lacks", "made", "failed", "told"]


class EnvironmentAnswer(_EnvironmentAnswer, total=False):
    """A line of the answer of ``environment``; the last is ``lacks``, ``made`` or ``failed``."""

    text: str
    done: int
    """Bytes; 0 where they are not known, as ``total``."""
    total: int
    snapshots: list[str]
    environment: EnvironmentRecord
    seconds: float
    bytes: int
    built: bool
    nodes: dict[str, str | None]
    node: str
    error: str | None
    reason: str
    lines: list[str]
