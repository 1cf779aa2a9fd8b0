"""Types of the request for data and of its answer, both JSON."""

from __future__ import annotations

from typing import Literal, TypedDict

__all__ = ["NodeBytes", "StageAnswer", "StageCall", "StageRequest", "StageSource", "StagedData"]


class StageSource(TypedDict):
    """Data to be brought to the nodes: one file, or all files below a folder."""

    name: str
    """Name of the job's input."""
    kind: Literal["file", "folder"]
    service: Literal["blob", "web"]
    url: str
    """``https://HOST/CONTAINER/PATH``, percent-encoded, without a query."""
    auth: Literal["identity", "sas", "none"]
    """How nodes get access: by their identity, or by the query among the request's secrets."""


class StageRequest(TypedDict):
    """Request of ``stage``: data that the nodes of a job need."""

    sources: list[StageSource]
    nodes: list[tuple[str, str]]
    """Name and address of the nodes, the head first."""
    queries: dict[str, str]
    """By source, the query of its address, such as a SAS: secrets, in no record."""
    bound: int | None
    """Most bytes that all data may take on each node; None for the default."""
    downloaders: int | None
    """Most nodes that read from storage at a time; None for the default."""


class StageCall(StageRequest):
    """Request of ``stage``, with what its spread needs. It is on stdin alone: it has secrets."""

    ssh: list[str]
    silence: float
    credential: str


class StagedData(TypedDict):
    """Data that the nodes hold."""

    name: str
    id: str
    path: str
    """The file itself, or the folder."""
    bytes: int
    files: int


class NodeBytes(TypedDict):
    """How far a node is."""

    done: int
    """Bytes that it holds."""
    rate: float
    """Bytes per second."""


class _StageAnswer(TypedDict):
    t: Literal["beat", "progress", "staged", "failed"]


class StageAnswer(_StageAnswer, total=False):
    """A line of the answer of ``stage``; the last is ``staged`` or ``failed``."""

    text: str
    done: int
    """Bytes that all nodes together hold; 0 where they are not known, as ``total``."""
    total: int
    progress: dict[str, NodeBytes]
    """By node; missing where nothing is known of it yet."""
    data: list[StagedData]
    seconds: float
    from_storage: int
    """Bytes that left storage."""
    moved: bool
    """Whether any node got something now."""
    nodes: dict[str, str | None]
    """By node, why it lacks the data; None where it has all."""
    reason: str
    lines: list[str]
