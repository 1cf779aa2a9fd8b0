"""Types of the request for an environment and of its answer, both JSON."""

from __future__ import annotations

from typing import Literal, TypedDict

from launch.remote.base.payloads import EnvironmentRequest
from launch.remote.base.records import EnvironmentRecord

__all__ = [
    "FORMS",
    "EnvironmentAnswer",
    "EnvironmentCall",
    "EnvironmentListing",
    "EnvironmentRemoval",
    "RemovalAnswer",
    "StoredEnvironment",
]

FORMS = {"docker": "image.tar", "enroot": "image.sqsh", "charliecloud": "root"}
"""By runtime of containers, in the order of preference: what in the environment's folder it starts."""


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
    variables: dict[str, str]
    """What activating it sets for every rank."""
    seconds: float
    bytes: int
    built: bool
    nodes: dict[str, str | None]
    node: str
    error: str | None
    reason: str
    lines: list[str]


class StoredEnvironment(TypedDict):
    """An environment that a node holds."""

    id: str
    title: str
    """Empty on nodes that did not make it."""
    bytes: int
    used: float
    """Unix seconds of the last launch that used it, by this node's clock."""
    jobs: list[str]
    """Unfinished jobs of this head that use it."""
    is_held: bool
    """Whether a launch spreads it from or to this node, or ranks run in it here."""


class EnvironmentListing(TypedDict):
    """Answer of ``environments``."""

    environments: list[StoredEnvironment]


class RemovalAnswer(TypedDict):
    """Answer to the removal of what a store holds."""

    kept: dict[str, list[str]]
    """By entry that was not removed, the jobs of this head that use it."""


class EnvironmentRemoval(RemovalAnswer):
    """Answer of ``remove-environments``."""

    is_cache_kept: bool
    """Whether the downloads stay, because a build needs them."""
