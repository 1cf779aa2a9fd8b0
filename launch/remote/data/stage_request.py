"""Types of the request to stage data, of its answer, and of the messages between its head and the nodes."""

from __future__ import annotations

from typing import Literal, TypedDict, Union

from launch.remote.reading import ContentId, Count, JobId, NodeName, Seconds, UnixTime

__all__ = [
    "DataListing",
    "DataManifest",
    "DataRemoval",
    "DatasetHeader",
    "FailedStaging",
    "Fetch",
    "NodeHeader",
    "NodeMessage",
    "StageAnswer",
    "StageCall",
    "StageProgress",
    "StageRequest",
    "StageSource",
    "StagedAnswer",
    "StagedData",
    "StoredData",
]


class StageSource(TypedDict):
    """Data in storage, as an input of a job names it."""

    name: str
    kind: Literal["file", "folder"]
    service: Literal["blob", "web"]
    url: str
    """``https://HOST/CONTAINER/PATH``, or any address of a web server; percent-encoded, without query."""
    auth: Literal["identity", "sas", "none", "either"]
    """``either``: without sign-in, and where that is refused by the nodes' identity."""


class StageRequest(TypedDict):
    """Request of ``stage``: sources, and the nodes that need them, the head first."""

    sources: list[StageSource]
    nodes: list[tuple[str, str]]
    """Name and address."""
    bound: int | None
    """Bytes of a node's disk that its staged data may take; by default nine tenths of the disk in all."""
    downloaders: int | None
    """Largest number of requests to storage at a time, from all nodes together."""
    rate: int | None
    """Bytes a second that may leave storage, for all nodes together."""
    shared: str
    """Folder that all nodes share, which gets one copy for all; empty for each node's own disk."""
    sas: dict[str, str]
    """Secret: by source, the query that grants access. It is on stdin alone, in no record, log or error."""


class StageCall(StageRequest):
    """Request of ``stage``, with what the connections between nodes need."""

    ssh: list[str]
    silence: float
    credential: str


class StagedData(TypedDict):
    """A source that the nodes hold."""

    name: str
    id: ContentId
    path: str
    """The file or the folder, the same on every node: ``~/.ranklift/data/ID[/FILE]``, or that in the shared
    folder."""
    bytes: Count
    files: Count
    etag: str
    """Of a file; empty for a folder."""


class StageProgress(TypedDict):
    """A line of the answer of ``stage`` while data moves, or is waited for."""

    t: Literal["progress"]
    text: str
    bytes: Count
    """Bytes on all nodes, of ``total``; 0 where it is not known."""
    total: Count
    held: dict[NodeName, Count]
    """By node the bytes that it holds."""


class StagedAnswer(TypedDict):
    """Last line of the answer of ``stage``."""

    t: Literal["staged"]
    data: list[StagedData]
    seconds: Seconds
    from_storage: Count
    """Bytes that left storage."""
    nodes: dict[NodeName, str | None]
    """Why a node does not hold all; None where it does."""


class FailedStaging(TypedDict):
    """Last line of the answer of ``stage`` where nothing could be staged."""

    t: Literal["failed"]
    reason: str
    lines: list[str]


StageAnswer = Union[StageProgress, StagedAnswer, FailedStaging]  # noqa: UP007  (evaluated)
"""A line of the answer of ``stage``."""


class DataManifest(TypedDict):
    """``ID.manifest`` beside data that are whole."""

    url: str
    files: Count
    bytes: Count
    digests: list[str]
    """SHA-256 of each part."""


class _StoredData(TypedDict):
    id: ContentId
    url: str
    bytes: Count
    files: Count
    used: UnixTime
    """Unix seconds of the last staging, by this node's clock."""
    is_whole: bool
    jobs: list[JobId]
    """Unfinished jobs of this head that use it."""
    shared: bool
    """Whether it is in the shared folder, where all nodes see the same."""


class StoredData(_StoredData, total=False):
    """Data that a node holds; code of a former push lacks ``is_damaged``."""

    is_damaged: bool
    """Whether a job has spoilt the manifest: the data count as not whole."""


class DataListing(TypedDict):
    """Answer of ``staged-data``."""

    data: list[StoredData]


class DataRemoval(TypedDict):
    """Answer of ``remove-staged-data``."""

    kept: dict[ContentId, list[JobId]]
    """By id of what was not removed, the jobs that use it."""


# -- between the head and a node ------------------------------------------------------------------


class DatasetHeader(TypedDict):
    """A dataset, whose files are in the text that follows the header."""

    id: str
    source: StageSource
    query: str
    is_cut: bool
    """Whether the storage serves ranges of its files."""


class NodeHeader(TypedDict):
    """First line to a node; ``files`` bytes follow, the compressed JSON of each dataset's files."""

    files: int
    limit: int
    name: str
    address: str
    head: str
    kept: list[str]
    """Data that unfinished jobs of the head use."""
    bound: int | None
    shared: str
    credential: str
    datasets: list[DatasetHeader]


class Fetch(TypedDict):
    """Line to a node: fetch a part from storage, or from the node at ``host`` and ``port``."""

    part: int
    host: str
    port: int
    digest: str


class _NodeMessage(TypedDict):
    t: Literal["beat", "waits", "ready", "took", "missed", "whole", "unfit", "gone"]


class NodeMessage(_NodeMessage, total=False):
    """Line from a node. ``gone``, which the head adds, is the last."""

    port: int
    have: list[tuple[int, str]]
    """Number and digest of the parts that the node holds."""
    removed: list[str]
    """Data that had to go."""
    part: int
    digest: str
    fault: str
    """Of ``missed``: one of :mod:`launch.remote.data.faults`."""
    reason: str
    wait: float
