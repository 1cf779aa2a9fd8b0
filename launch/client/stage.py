"""Data of jobs: the call to a head that has all nodes of a job fetch it from storage and from one another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from launch.client.head_call import call_head
from launch.code.push import Address, node_results
from launch.code.push_key import make_credential
from launch.errors import GiveUpError, ManyNodesError
from launch.host import Host
from launch.remote.base import timing
from launch.remote.base.records import DataRecord
from launch.remote.data.stage_request import (
    FailedStaging,
    StageAnswer,
    StageCall,
    StagedAnswer,
    StageProgress,
    StageRequest,
)

__all__ = ["Progress", "Staged", "stage_data"]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a staging is."""

    text: str
    """What is done; empty while data moves."""
    bytes: int
    """That all nodes together hold, of ``total``; 0 where it is not known."""
    total: int
    nodes: Mapping[str, int]
    """By node, the bytes that it holds."""


@dataclass(frozen=True, slots=True)
class Staged:
    """Data that all nodes of a job hold."""

    data: tuple[DataRecord, ...]
    seconds: float
    from_storage: int
    """Bytes that left storage; 0 where the nodes held the data."""


def stage_data(
    request: StageRequest,
    head: Host,
    nodes: Sequence[Address],
    remote: str,
    show: Callable[[Progress], object],
    *,
    ssh: Sequence[str] = timing.PUSH_SSH,
    silence: float = timing.PUSH_SILENT_S,
) -> Staged:
    """Have ``nodes``, the head the first, fetch the data that they lack.

    Raise :class:`~launch.errors.NotPushed` when the head lacks the node code,
    :class:`~launch.errors.GiveUpError` naming the address and what storage answered,
    :class:`~launch.errors.ManyNodesError` naming the nodes that lack data, and what ``head.stream`` raises.
    """
    call: StageCall = {
        **request,
        "nodes": [(node.name, node.private_ip) for node in nodes],
        "ssh": list(ssh),
        "silence": silence,
        "credential": make_credential(),
    }

    def pass_on(answer: StageProgress) -> None:
        show(Progress(answer["text"], answer["bytes"], answer["total"], answer["held"]))

    answer: StagedAnswer | FailedStaging = call_head(
        StageAnswer,
        head,
        remote,
        "stage",
        call,
        pass_on,
        purpose="the data was there",
        limit_s=timing.STAGE_S,
    )
    if answer["t"] == "failed":
        lines = "".join(f"\n  {line}" for line in answer["lines"])
        raise GiveUpError(f"{head.name}: {answer['reason']}{lines}")
    holders = nodes[:1] if request["shared"] else nodes
    results = node_results((node.name for node in holders), answer["nodes"])
    if any(results.values()):
        raise ManyNodesError("staging data", results)
    urls = {source["name"]: source["url"] for source in request["sources"]}
    if {one["name"] for one in answer["data"]} != urls.keys():
        raise GiveUpError(f"{head.name}: it staged other data than {', '.join(urls)}")
    seconds = answer["seconds"] if answer["from_storage"] else 0.0
    return Staged(
        tuple(
            {
                "name": one["name"],
                "id": one["id"],
                "path": one["path"],
                "bytes": one["bytes"],
                "files": one["files"],
                "url": urls[one["name"]],
                "seconds": seconds,
            }
            for one in answer["data"]
        ),
        answer["seconds"],
        answer["from_storage"],
    )
