"""Environments of jobs: the calls to a head that makes one and to the nodes that hold them."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from launch.client.rpc import check, rpc_argv
from launch.code.push import FANOUT, Address
from launch.code.push_key import make_credential
from launch.errors import GiveUpError, ManyNodesError, NodeUnreachable
from launch.host import Host
from launch.remote.base import timing
from launch.remote.base.payloads import EnvironmentRequest
from launch.remote.base.records import EnvironmentRecord
from launch.remote.environment.request import EnvironmentAnswer, EnvironmentCall
from launch.remote.store.tree_node import MARK

__all__ = ["Made", "make_environment"]


@dataclass(frozen=True, slots=True)
class Made:
    """An environment that all nodes of a job hold."""

    record: EnvironmentRecord
    built: bool
    """Whether the head made it now."""
    seconds: float


def make_environment(
    request: EnvironmentRequest,
    head: Host,
    nodes: Sequence[Address],
    remote: str,
    send: Callable[[Sequence[str]], object],
    show: Callable[[str, int, int], object],
    *,
    ssh: Sequence[str] = timing.PUSH_SSH,
    silence: float = timing.PUSH_SILENT_S,
) -> Made:
    """Have the head make the environment, unless it holds it, and spread it to ``nodes``, the head the first.

    ``send`` is called with snapshots that the head lacks and must get. ``show`` gets
    lines of progress: a text, bytes done, all bytes; 0 where they are unknown.

    Raise :class:`~launch.errors.NotPushed` when the head lacks the node code,
    :class:`~launch.errors.GiveUpError` with the tool's own last lines when the environment cannot be made,
    :class:`~launch.errors.ManyNodesError` naming the nodes that did not get it, and what ``head.stream``
    raises.
    """
    whole: EnvironmentCall = {
        **request,
        "nodes": [(node.name, node.private_ip) for node in nodes],
        "ssh": list(ssh),
        "fanout": FANOUT,
        "silence": silence,
        "credential": make_credential(),
    }
    answer = _call(whole, head, remote, show)
    if answer["t"] == "lacks":
        send(answer["snapshots"])
        answer = _call(whole, head, remote, show)
    if answer["t"] == "lacks":
        raise GiveUpError(f"{head.name}: {', '.join(answer['snapshots'])} did not arrive")
    if answer["t"] == "failed":
        lines = "".join(f"\n  {line}" for line in answer["lines"])
        raise GiveUpError(f"{head.name}: environment {request['title']}: {answer['reason']}{lines}")
    results = {name: _error(name, reason) for name, reason in answer["nodes"].items()}
    if any(results.values()):
        raise ManyNodesError("spreading the environment", results)
    return Made(answer["environment"], answer["built"], answer["seconds"])


def _error(name: str, reason: str | None) -> Exception | None:
    return None if reason is None else NodeUnreachable(name, reason)


def _call(
    request: EnvironmentCall, head: Host, remote: str, show: Callable[[str, int, int], object]
) -> EnvironmentAnswer:
    """Send the request; return the last line of the answer."""
    data = json.dumps(request).encode()
    last: list[EnvironmentAnswer] = []
    rest = b""

    def take(piece: bytes) -> None:
        nonlocal rest
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            if line.startswith(MARK):
                answer: EnvironmentAnswer = json.loads(line[len(MARK) :])
                if answer["t"] == "progress":
                    show(answer["text"], answer["done"], answer["total"])
                elif answer["t"] in ("lacks", "failed", "made"):
                    last.append(answer)

    stdin = io.BytesIO(b"%010d" % len(data) + data)
    done = head.stream(rpc_argv(remote, "environment"), take, stdin=stdin, timeout=timing.ENVIRONMENT_S)
    check(done, head)
    if not last:
        raise GiveUpError(f"{head.name}: it stopped before the environment was made")
    return last[-1]
