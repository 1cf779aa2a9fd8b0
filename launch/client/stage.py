"""Data of jobs: the call to a head that has all nodes of a job fetch it from storage and from one another."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from launch.client.rpc import check, rpc_argv
from launch.code.push import Address
from launch.code.push_key import make_credential
from launch.errors import GiveUpError, ManyNodesError, NodeUnreachable
from launch.host import Host
from launch.remote.base import timing
from launch.remote.base.records import DataRecord
from launch.remote.data.stage_request import StageAnswer, StageCall, StageRequest
from launch.remote.store.tree_node import MARK

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
    answer = _last_answer(call, head, remote, show)
    if answer["t"] == "failed":
        lines = "".join(f"\n  {line}" for line in answer.get("lines", ()))
        raise GiveUpError(f"{head.name}: {answer['reason']}{lines}")
    results = {
        name: None if reason is None else NodeUnreachable(name, reason)
        for name, reason in answer["nodes"].items()
    }
    if any(results.values()):
        raise ManyNodesError("staging data", results)
    urls = {source["name"]: source["url"] for source in request["sources"]}
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


def _last_answer(call: StageCall, head: Host, remote: str, show: Callable[[Progress], object]) -> StageAnswer:
    """Send the request, pass on its progress; return the last line of the answer."""
    data = json.dumps(call).encode()
    last: list[StageAnswer] = []
    rest = b""

    def take(piece: bytes) -> None:
        nonlocal rest
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            if line.startswith(MARK):
                answer: StageAnswer = json.loads(line[len(MARK) :])
                if answer["t"] == "progress":
                    show(
                        Progress(
                            answer.get("text", ""),
                            answer.get("bytes", 0),
                            answer.get("total", 0),
                            answer.get("held", {}),
                        )
                    )
                elif answer["t"] != "beat":
                    last.append(answer)

    stdin = io.BytesIO(b"%010d" % len(data) + data)
    done = head.stream(rpc_argv(remote, "stage"), take, stdin=stdin, timeout=timing.STAGE_S)
    check(done, head)
    if not last:
        raise GiveUpError(f"{head.name}: it stopped before the data was there")
    return last[-1]
