"""Where a stack keeps data: its own account, and the datastores that a setting names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from launch.data.data_address import CONTAINER, read_address
from launch.data.data_spec import (
    STAGES,
    Address,
    BlobAddress,
    DataSource,
    DatastorePath,
    Stage,
    WebAddress,
)
from launch.errors import InputError
from launch.remote.data.stage_request import StageRequest, StageSource

__all__ = [
    "DEFAULT_DATASTORE",
    "RESULTS",
    "Limits",
    "Storage",
    "choose_stage",
    "read_sas_urls",
    "refuse_sas",
    "stage_request",
    "stage_requests",
    "with_sas",
]

DEFAULT_DATASTORE = "workspaceblobstore"
"""Azure ML's name of a workspace's own container."""
RESULTS = "results"
"""Container, and datastore, of what jobs leave as a whole."""
_DATA = "data"
_SAS = "--sas-file"


@dataclass(frozen=True, slots=True)
class Limits:
    """What stagings may take; None for the nodes' own limits."""

    disk: int | None = None
    """Bytes of staged data on each node's disk."""
    downloads: int | None = None
    """Requests to storage at a time, of all nodes together."""
    rate: int | None = None
    """Bytes a second from storage, to all nodes together."""


@dataclass(frozen=True, slots=True)
class Storage:
    """What a stack's job may read and write by name, and where it is staged."""

    account_url: str | None
    """``https://ACCOUNT.blob.core.windows.net``; None where the stack has no storage."""
    datastores: Mapping[str, BlobAddress] = field(default_factory=dict)
    """Containers of other accounts by name: the setting ``ranklift:datastores``."""
    shared: str | None = None
    """The folder that all nodes share; None where the stack has none."""
    limits: Limits = Limits()

    def locate(self, found: DatastorePath, where: str) -> BlobAddress:
        """Return where a datastore's path is; ``where`` is what errors name.

        >>> own = Storage("https://acme.blob.core.windows.net")
        >>> own.locate(DatastorePath("workspaceblobstore", "iris"), "path").url
        'https://acme.blob.core.windows.net/data/iris'

        Raise :class:`~launch.errors.InputError` for an unknown datastore, and without storage.
        """
        given = self.datastores.get(found.datastore)
        if given is not None:
            return replace(given, path="/".join(filter(None, (given.path, found.path))))
        if self.account_url is None:
            raise InputError(
                where,
                found.datastore,
                "the stack has no storage",
                "set ranklift:storage to serviceEndpoint and run `fab up`, or name the datastore in "
                "ranklift:datastores; if it has storage, `fab status` notes its address",
            )
        container = _DATA if found.datastore == DEFAULT_DATASTORE else found.datastore
        if not CONTAINER.fullmatch(container):
            known = ", ".join(sorted((DEFAULT_DATASTORE, _DATA, RESULTS, *self.datastores)))
            raise InputError(
                where,
                found.datastore,
                "is not a datastore here: no container can have this name",
                f"use {known}, or `fab config set --path datastores.{container} "
                "https://ACCOUNT.blob.core.windows.net/CONTAINER`",
            )
        return BlobAddress(self.account_url, container, found.path)

    def is_own(self, address: BlobAddress) -> bool:
        """Return whether the nodes' identity is what opens the address."""
        accounts = [self.account_url, *(one.account_url for one in self.datastores.values())]
        return address.account_url in accounts


def refuse_sas(key: str, address: Address) -> None:
    """Raise :class:`~launch.errors.InputError` for an address with a SAS: it would be in files and lists."""
    if isinstance(address, BlobAddress) and address.sas:
        remedy = f"leave the query out, and give {_SAS} FILE with the address of the container and its SAS"
        raise InputError(key, f"{address.url}?…", "holds a SAS, which others could read here", remedy)


def read_sas_urls(lines: Iterable[str]) -> tuple[BlobAddress, ...]:
    """Return the addresses with a SAS, one a line, that a file holds.

    Raise :class:`~launch.errors.InputError` by line, which shows nothing of the file.
    """
    found = []
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        key = f"{_SAS}, line {number}"
        address = read_address(key, text) if text.startswith("https://") else None
        if not isinstance(address, BlobAddress) or not address.sas:
            remedy = "write https://ACCOUNT.blob.core.windows.net/CONTAINER?SAS on each line"
            raise InputError(key, None, "is not the address of a container or blob with a SAS", remedy)
        found.append(address)
    return tuple(found)


def with_sas(address: BlobAddress, signed: Iterable[BlobAddress]) -> BlobAddress:
    """Return the address with the SAS of the closest of ``signed`` that contains it, if any does."""
    holds = [one for one in signed if _contains(one, address)]
    return replace(address, sas=max(holds, key=lambda one: len(one.path)).sas) if holds else address


def _contains(outer: BlobAddress, inner: BlobAddress) -> bool:
    same = (outer.account_url, outer.container) == (inner.account_url, inner.container)
    return same and (not outer.path or f"{inner.path}/".startswith(f"{outer.path}/"))


def choose_stage(key: str, wanted: Stage, storage: Storage) -> Stage:
    """Return where ``key`` wants data staged. Raise :class:`~launch.errors.InputError` for the shared folder
    of a stack that has none."""
    if wanted == "nfs" and storage.shared is None:
        raise InputError(
            key,
            wanted,
            "the stack has no shared folder",
            "set ranklift:nfs and run `fab up`, or use disk; if it has one, `fab status` notes it",
        )
    return wanted


def stage_requests(sources: Sequence[DataSource], storage: Storage) -> Iterator[StageRequest]:
    """Yield a request for each place where the sources are to be staged."""
    for stage in STAGES:
        if here := [source for source in sources if source.stage == stage]:
            yield stage_request(here, storage, (storage.shared or "") if stage == "nfs" else "")


def stage_request(sources: Iterable[DataSource], storage: Storage, shared: str = "") -> StageRequest:
    """Return the request that brings these sources to nodes, which the caller adds, or to ``shared``.

    >>> acme = "https://acme.blob.core.windows.net"
    >>> source = DataSource("iris", "folder", BlobAddress(acme, "data", "iris"))
    >>> stage_request([source], Storage(acme))["sources"][0]["auth"]
    'identity'
    """
    listed: list[StageSource] = []
    queries: dict[str, str] = {}
    for source in sources:
        address = source.address
        query = address.sas if isinstance(address, BlobAddress) else address.query
        if query:
            queries[source.name] = query
        listed.append(
            {
                "name": source.name,
                "kind": source.kind,
                "service": "blob" if isinstance(address, BlobAddress) else "web",
                "url": address.url,
                "auth": "sas" if query else _auth(address, storage),
            }
        )
    limits = storage.limits
    return {
        "sources": listed,
        "nodes": [],
        "sas": queries,
        "bound": limits.disk,
        "downloaders": limits.downloads,
        "rate": limits.rate,
        "shared": shared,
    }


def _auth(address: BlobAddress | WebAddress, storage: Storage) -> Literal["identity", "none", "either"]:
    if isinstance(address, WebAddress):
        return "none"
    return "identity" if storage.is_own(address) else "either"
