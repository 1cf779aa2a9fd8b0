"""Types of the request for an environment and of its answer, both JSON."""

from __future__ import annotations

from typing import Literal, TypedDict, Union

from launch.remote.base.records import EnvironmentRecord
from launch.remote.reading import ContentId, Count, JobId, NodeName, Seconds, UnixTime
from launch.remote.store.push_messages import PushResult

__all__ = [
    "FORMS",
    "EnvironmentAnswer",
    "EnvironmentCall",
    "EnvironmentListing",
    "EnvironmentRemoval",
    "EnvironmentRequest",
    "FailedEnvironment",
    "LackingEnvironment",
    "LackingSnapshots",
    "MadeEnvironment",
    "MakingProgress",
    "RemovalAnswer",
    "SendingCall",
    "SentEnvironment",
    "Spread",
    "StoredEnvironment",
]

FORMS = {"docker": "image.tar", "enroot": "image.sqsh", "charliecloud": "root"}
"""By runtime of containers, in the order of preference: what in the environment's folder it starts."""


class EnvironmentRequest(TypedDict):
    """Request of ``environment``: what a head makes; fields that do not apply to ``kind`` are empty."""

    kind: Literal["python", "image", "build"]
    requirements: str
    """Of an image: packages on top of it."""
    constraints: str
    python: str
    """The wanted version: ``3.10``, or a range like ``>=3.9,<3.12``."""
    conda: str
    """JSON with ``channels`` and ``dependencies``; ``folder:0`` is the first of ``channels``."""
    channels: list[str]
    """Snapshots of folders of conda's packages, which the head has got by a push."""
    find_links: list[str]
    """Snapshots of folders of wheels, which the head has got by a push."""
    reference: str
    """The image, as ``REGISTRY/NAME[:TAG][@DIGEST]``."""
    context: str
    """Id of the snapshot with a build's files."""
    dockerfile: str
    runtime: str
    """What is to start the ranks; empty for what the head has."""
    title: str
    nodes: list[tuple[str, str]]
    """Name and address of the nodes that need it."""
    registries: dict[str, dict[str, str]]
    """Secrets by registry: ``username`` and ``password``, or ``identitytoken``; in no record."""


class Spread(TypedDict):
    """What sending an environment to nodes takes."""

    ssh: list[str]
    fanout: int
    silence: float
    credential: str


class EnvironmentCall(EnvironmentRequest, Spread):
    """Request of ``environment``, with what its spread needs. It is on stdin alone: an index's password may
    be among the requirements."""

    may_make: bool
    """Whether the head makes what it does not hold; else it answers that it lacks it."""


class SendingCall(Spread):
    """Request of ``environment`` to a node that holds one: it sends it to others, and learns no secret."""

    sends: str
    """The environment's id."""
    nodes: list[tuple[str, str]]
    """Name and address of the node that holds it, and of those that need it."""


class MakingProgress(TypedDict):
    """A line of the answer of ``environment`` while the head works."""

    t: Literal["progress"]
    text: str
    done: Count
    """Bytes; 0 where they are not known, as ``total``."""
    total: Count


class LackingEnvironment(TypedDict):
    """Last line of the answer of ``environment``: the head has to make it."""

    t: Literal["absent"]
    wanted: ContentId
    """The beginning of the id of each environment that fits the request."""


class SentEnvironment(TypedDict):
    """Last line of the answer of ``environment`` to a :class:`SendingCall`."""

    t: Literal["sent"]
    nodes: dict[NodeName, str | None]
    """Why a node lacks it; None for one that holds it."""


class LackingSnapshots(TypedDict):
    """Last line of the answer of ``environment``: the head needs these snapshots before it can begin."""

    t: Literal["lacks"]
    snapshots: list[ContentId]


class MadeEnvironment(TypedDict):
    """Last line of the answer of ``environment``: the head has it."""

    t: Literal["made"]
    environment: EnvironmentRecord
    variables: dict[str, str]
    """What activating it sets for every rank."""
    seconds: Seconds
    built: bool
    nodes: dict[NodeName, str | None]
    """Why a node lacks it; None for one that holds it."""


class FailedEnvironment(TypedDict):
    """Last line of the answer of ``environment``: it cannot be made."""

    t: Literal["failed"]
    reason: str
    lines: list[str]


EnvironmentAnswer = Union[  # noqa: UP007  (evaluated)
    MakingProgress,
    PushResult,
    LackingEnvironment,
    SentEnvironment,
    LackingSnapshots,
    MadeEnvironment,
    FailedEnvironment,
]
"""A line of the answer of ``environment``."""


class _StoredEnvironment(TypedDict):
    id: ContentId
    title: str
    """Empty on nodes that did not make it."""
    bytes: Count
    used: UnixTime
    """Unix seconds of the last launch that used it, by this node's clock."""
    jobs: list[JobId]
    """Unfinished jobs of this head that use it."""
    is_held: bool
    """Whether a launch spreads it from or to this node, or ranks run in it here."""


class StoredEnvironment(_StoredEnvironment, total=False):
    """An environment that a node holds; code of a former push lacks ``is_damaged``."""

    is_damaged: bool
    """Whether a job has spoilt its manifest or the record of what it is made of."""


class EnvironmentListing(TypedDict):
    """Answer of ``environments``."""

    environments: list[StoredEnvironment]


class RemovalAnswer(TypedDict):
    """Answer to the removal of what a store holds."""

    kept: dict[ContentId, list[JobId]]
    """By entry that was not removed, the jobs of this head that use it."""


class EnvironmentRemoval(RemovalAnswer):
    """Answer of ``remove-environments``."""

    is_cache_kept: bool
    """Whether the downloads stay, because a build needs them."""
