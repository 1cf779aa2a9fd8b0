"""Staged data: the calls to the nodes that hold them."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from launch.client.rpc import Drop, ask, check, version_there
from launch.code.node_code import modules, remote_id
from launch.host import Host
from launch.remote.base import timing
from launch.remote.data.stage_request import DataListing, DataRemoval, StoredData
from launch.remote.store.tree_node import UNPACK

__all__ = ["HeldData", "ensure_code", "merge_listings", "query_data", "removable", "remove_data_from"]


@dataclass(frozen=True, slots=True)
class HeldData:
    """Data that nodes of a cluster hold."""

    id: str
    url: str
    """Empty where no node holds all of them."""
    files: int
    bytes: int
    used: datetime
    """The last staging."""
    jobs: tuple[str, ...]
    """Jobs that run or wait and use them."""
    nodes: tuple[str, ...]
    """Those that hold all."""
    partial: tuple[str, ...]
    """Those where a staging was cut off."""
    shared: bool = False
    """Whether it is one copy, in the folder that these nodes share."""
    damaged: tuple[str, ...] = ()
    """Those where a job has spoilt the manifest."""


def ensure_code(head: Host) -> str:
    """Bring the node code to a node unless a push has; return its version."""
    if version_there(head, remote_id()) == remote_id():
        return remote_id()
    source = zlib.compress(modules(), 6)
    call = b"%s %d\n%s" % (remote_id().encode(), len(source), source)
    check(head.run(["python3", "-c", UNPACK], stdin=call, timeout=timing.STEP_S), head)
    return remote_id()


def query_data(host: Host, remote: str, shared: str = "", drop: Drop | None = None) -> DataListing:
    """Return the data of a node and of its ``shared`` folder, as :func:`merge_listings` takes them; those
    that cannot be used go to ``drop``."""
    return ask(DataListing, host, remote, "staged-data", *filter(None, [shared]), drop=drop)


def merge_listings(answers: Mapping[str, DataListing]) -> list[HeldData]:
    """Return the data of the nodes that answered, the last used first."""
    found: dict[tuple[str, bool], list[tuple[str, StoredData]]] = {}
    for node, answer in answers.items():
        for one in answer["data"]:
            found.setdefault((one["id"], one["shared"]), []).append((node, one))
    held = [
        HeldData(
            id=name,
            url=next((one["url"] for _, one in there if one["url"]), ""),
            files=max(one["files"] for _, one in there),
            bytes=max(one["bytes"] for _, one in there),
            used=datetime.fromtimestamp(max(one["used"] for _, one in there), UTC),
            jobs=tuple(dict.fromkeys(job for _, one in there for job in one["jobs"])),
            nodes=tuple(node for node, one in there if one["is_whole"]),
            partial=tuple(node for node, one in there if not one["is_whole"]),
            shared=shared,
            damaged=tuple(node for node, one in there if one.get("is_damaged")),
        )
        for (name, shared), there in found.items()
    ]
    return sorted(held, key=lambda one: one.used, reverse=True)


def removable(held: Sequence[HeldData]) -> list[HeldData]:
    """Return the data that no job uses."""
    return [one for one in held if not one.jobs]


def remove_data_from(host: Host, remote: str, names: Sequence[str], shared: str) -> list[str]:
    """Remove data from a node, or from its ``shared`` folder where one is given; return those that stay,
    because they are read or staged there."""
    return list(ask(DataRemoval, host, remote, "remove-staged-data", shared, *names)["kept"])
