"""Types of the messages of a push: what a call of the store begins with, and what comes up its tree of nodes.

They are JSON, each a line of its own.
"""

from __future__ import annotations

from typing import Any, List, Literal, TypedDict  # noqa: UP035  (nodes may run Python 3.8)

from launch.remote.reading import Count, NodeName

__all__ = ["CheckAnswer", "OfferAnswer", "PushHeader", "PushMessage", "PushResult", "Tree"]

Tree = List[Any]  # noqa: UP006  (evaluated)
"""``[name, address, [subtrees]]``: a part of a push's tree."""


class _PushCall(TypedDict):
    op: Literal["check", "offer", "put", "node"]


class PushHeader(_PushCall, total=False):
    """First line of a call of a push."""

    limit: int
    """Seconds that the call may take."""
    id: str
    store: str
    """The folder of ``~/.ranklift`` that the contents belong to."""
    manifest: int
    zlib: bool
    sent: list[int]
    """Numbers of the blobs that follow."""
    verify: bool
    sealed: bool
    """Whether folders become read-only, as the head's are: those of a Python environment."""
    ssh: list[str]
    fanout: int
    silence: float
    credential: str
    drop: list[str]
    kept: list[str]
    head: str
    nodes: list[tuple[str, str]]
    name: str
    address: str
    trees: list[Tree]


class CheckAnswer(TypedDict):
    """Answer of ``check``: whether the head holds the snapshot, and which other nodes it knows to hold it."""

    t: Literal["check"]
    present: bool
    confirmed: list[NodeName]


class OfferAnswer(TypedDict):
    """Answer of ``offer``: the numbers of the blobs that the head lacks."""

    t: Literal["lack"]
    blobs: list[Count]


class PushResult(TypedDict):
    """Line of the answer of ``put``: why a node does not hold the snapshot; None for one that does."""

    t: Literal["told"]
    node: NodeName
    error: str | None


class _PushType(TypedDict):
    t: Literal["beat", "check", "lack", "told", "gone"]


class PushMessage(_PushType, total=False):
    """Message up the tree of a push."""

    present: bool
    confirmed: list[str]
    blobs: list[list[int]]
    """First and last number of each run of blobs that a node or one below it lacks."""
    port: int
    node: str
    error: str | None
