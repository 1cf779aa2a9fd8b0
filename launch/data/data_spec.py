"""Where data is and what a job does with it. No ``repr`` and no text of these shows a secret."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import quote

__all__ = [
    "STAGES",
    "Address",
    "AssetName",
    "BlobAddress",
    "DataInput",
    "DataKind",
    "DataSource",
    "DatastorePath",
    "LocalPath",
    "NodePath",
    "Stage",
    "WebAddress",
]

DataKind = Literal["file", "folder"]
Stage = Literal["disk", "nfs"]
STAGES: tuple[Stage, ...] = ("disk", "nfs")
"""Where a job's data are staged: on each node's own disk, or once in the folder that all nodes share."""


@dataclass(frozen=True, slots=True)
class LocalPath:
    """A file or folder of this machine."""

    path: Path
    real: Path | None = None
    """What it leads to, where a file named it and not the user."""


@dataclass(frozen=True, slots=True)
class NodePath:
    """A path that the nodes have already."""

    path: str


@dataclass(frozen=True, slots=True)
class DatastorePath:
    """A path in a datastore of Azure ML: ``azureml://datastores/NAME/paths/PATH``."""

    datastore: str
    path: str


@dataclass(frozen=True, slots=True)
class AssetName:
    """The name of a data asset: ``azureml:NAME:VERSION``."""

    name: str
    version: str
    """Empty for the latest."""


@dataclass(frozen=True, slots=True)
class BlobAddress:
    """A blob, or all blobs below a path."""

    account_url: str
    """``https://ACCOUNT.blob.core.windows.net``"""
    container: str
    path: str
    """Without a slash at either end; empty for the whole container."""
    sas: str = field(default="", repr=False)
    """Query that gives access; empty for the nodes' identity. In no record, log or command line."""

    @property
    def url(self) -> str:
        """The address without its SAS.

        >>> BlobAddress("https://a.blob.core.windows.net", "data", "my set/ä").url
        'https://a.blob.core.windows.net/data/my%20set/%C3%A4'
        """
        parts = [self.account_url, self.container, *([quote(self.path)] if self.path else [])]
        return "/".join(parts)


@dataclass(frozen=True, slots=True)
class WebAddress:
    """A file that a web server gives to everybody, or to whoever has the query."""

    url: str
    """Without the query."""
    query: str = field(default="", repr=False)
    """May hold a secret, so it is treated as one."""


Address = LocalPath | NodePath | DatastorePath | AssetName | BlobAddress | WebAddress


@dataclass(frozen=True, slots=True)
class DataInput:
    """An input of a job that is a file or a folder, as it is written."""

    kind: DataKind
    address: Address
    direct: bool = False
    """Whether the ranks get the address instead of a path."""
    where: str = ""
    """File, line and key, or the option, that has it."""
    stage: Stage = "disk"


@dataclass(frozen=True, slots=True)
class DataSource:
    """An input whose place in storage is known: what the nodes fetch."""

    name: str
    kind: DataKind
    address: BlobAddress | WebAddress
    stage: Stage = "disk"
