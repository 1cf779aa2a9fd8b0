"""Environments of jobs: the calls to a head that makes one and to the nodes that hold them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from launch.client.head_call import call_head
from launch.client.rpc import Drop, ask
from launch.code.push import FANOUT, Address, node_results
from launch.code.push_key import make_credential
from launch.errors import GiveUpError, InputError, ManyNodesError
from launch.host import Host
from launch.nodeset import fold
from launch.remote.base import timing
from launch.remote.base.records import EnvironmentRecord
from launch.remote.environment.request import (
    EnvironmentAnswer,
    EnvironmentCall,
    EnvironmentListing,
    EnvironmentRemoval,
    EnvironmentRequest,
    FailedEnvironment,
    LackingEnvironment,
    LackingSnapshots,
    MadeEnvironment,
    SendingCall,
    SentEnvironment,
    Spread,
    StoredEnvironment,
)

__all__ = [
    "Held",
    "Made",
    "fitting",
    "held_on",
    "in_use",
    "make_environment",
    "query_environments",
    "removable",
    "remove_from",
    "send_to",
]

Show = Callable[[str, int, int], object]
"""Gets lines of progress: a text, bytes done, all bytes; 0 where they are unknown."""
_Answer = LackingEnvironment | SentEnvironment | LackingSnapshots | MadeEnvironment | FailedEnvironment


@dataclass(frozen=True, slots=True)
class Made:
    """An environment that all nodes of a job hold."""

    record: EnvironmentRecord
    variables: Mapping[str, str]
    """What activating it sets for every rank."""
    built: bool
    """Whether the head made it now."""
    seconds: float


@dataclass(frozen=True, slots=True)
class Held:
    """An environment that nodes of a cluster hold."""

    id: str
    title: str
    bytes: int
    used: datetime
    """The last launch that used it."""
    jobs: tuple[str, ...]
    """Jobs that run or wait and use it."""
    held: tuple[str, ...]
    """Nodes where a launch makes or sends it, or ranks run in it."""
    nodes: tuple[str, ...]
    damaged: tuple[str, ...] = ()
    """Nodes where a job has spoilt its manifest or the record of what it is made of."""


def query_environments(host: Host, remote: str, drop: Drop | None = None) -> EnvironmentListing:
    """Return the environments of a node, as :func:`held_on` takes them; those that cannot be used go to
    ``drop``."""
    return ask(EnvironmentListing, host, remote, "environments", drop=drop)


def held_on(answers: Mapping[str, EnvironmentListing]) -> list[Held]:
    """Return the environments of the nodes that answered, the last used first."""
    found: dict[str, list[tuple[str, StoredEnvironment]]] = {}
    for node, answer in answers.items():
        for one in answer["environments"]:
            found.setdefault(one["id"], []).append((node, one))
    held = [
        Held(
            id=name,
            title=next((one["title"] for _, one in there if one["title"]), ""),
            bytes=max(one["bytes"] for _, one in there),
            used=datetime.fromtimestamp(max(one["used"] for _, one in there), UTC),
            jobs=tuple(dict.fromkeys(job for _, one in there for job in one["jobs"])),
            held=tuple(node for node, one in there if one["is_held"]),
            nodes=tuple(node for node, _ in there),
            damaged=tuple(node for node, one in there if one.get("is_damaged")),
        )
        for name, there in found.items()
    ]
    return sorted(held, key=lambda one: one.used, reverse=True)


def removable(held: Sequence[Held]) -> list[Held]:
    """Return the environments that nothing uses, without the one that was used last."""
    return [one for one in held[1:] if not one.jobs and not one.held]


def remove_from(host: Host, remote: str, names: Sequence[str], *, cache: bool) -> None:
    """Remove environments from a node; with ``cache`` also the packages that it has downloaded.

    Raise :class:`~launch.errors.InputError` naming what is in use by now.
    """
    words = ["cache" if cache else "", *names]
    answer = ask(EnvironmentRemoval, host, remote, "remove-environments", *words)
    if answer["kept"]:
        name, jobs = next(iter(answer["kept"].items()))
        raise in_use(name, jobs, [host.name])
    if answer["is_cache_kept"]:
        problem = f"stay on {host.name}: a launch makes an environment of them"
        raise InputError("downloads", None, problem, "run `fab environment.prune` again once it is made")


def in_use(name: str, jobs: Sequence[str], nodes: Sequence[str]) -> InputError:
    """Return the refusal to remove an environment that jobs use, or processes on ``nodes``."""
    if not jobs:
        problem = f"is in use on {fold(nodes)}: a launch makes or sends it, or ranks run in it"
        return InputError("environment", name, problem, "try again once they have ended; see `fab jobs`")
    remedy = f"wait for the end of the job, or `fab cancel {jobs[0]}`"
    return InputError("environment", name, f"is in use by {', '.join(jobs)}", remedy)


def make_environment(
    request: EnvironmentRequest,
    head: Host,
    nodes: Sequence[Address],
    remote: str,
    send: Callable[[Sequence[str]], object],
    show: Show,
    *,
    fetch: Callable[[str], object] | None = None,
    ssh: Sequence[str] = timing.PUSH_SSH,
) -> Made:
    """Have the head make the environment, unless it holds it, and spread it to ``nodes``, the head the first.

    ``send`` is called with snapshots that the head lacks and must get. ``fetch`` is called, before the head
    makes one, with how the ids of fitting environments begin: it may have another node :func:`send_to` the
    head. ``show`` gets lines of progress.

    Raise :class:`~launch.errors.NotPushed` when the head lacks the node code,
    :class:`~launch.errors.GiveUpError` with the tool's own last lines when the environment cannot be made,
    :class:`~launch.errors.ManyNodesError` naming the nodes that did not get it, and what ``head.stream``
    raises.
    """
    whole: EnvironmentCall = {
        **request,
        **_spread_by(ssh),
        "nodes": _addresses(nodes),
        "may_make": fetch is None,
    }
    answer = _call(whole, head, remote, show)
    if answer["t"] == "absent" and fetch is not None:
        fetch(answer["wanted"])
        whole["may_make"] = True
        answer = _call(whole, head, remote, show)
    if answer["t"] == "lacks":
        named = {*request["find_links"], *request["channels"], request["context"]}
        if unknown := set(answer["snapshots"]) - named:
            raise GiveUpError(f"{head.name}: it wants {', '.join(unknown)}, which the request does not name")
        send(answer["snapshots"])
        answer = _call(whole, head, remote, show)
    if answer["t"] == "lacks":
        raise GiveUpError(f"{head.name}: {', '.join(answer['snapshots'])} did not arrive")
    if answer["t"] == "absent" or answer["t"] == "sent":
        raise GiveUpError(f"{head.name}: it neither made environment {request['title']} nor said why")
    if answer["t"] == "failed":
        lines = "".join(f"\n  {line}" for line in answer["lines"])
        raise GiveUpError(f"{head.name}: environment {request['title']}: {answer['reason']}{lines}")
    results = node_results((node.name for node in nodes), answer["nodes"])
    if any(results.values()):
        raise ManyNodesError("spreading the environment", results)
    return Made(answer["environment"], answer["variables"], answer["built"], answer["seconds"])


def fitting(
    answers: Mapping[str, EnvironmentListing], wanted: str, preferred: Sequence[str]
) -> tuple[str, str] | None:
    """Return a node that holds an environment whose id begins with ``wanted``, and that id; None without one.

    Of several, the one that most of the ``preferred`` nodes hold is taken, then the last used; from a node
    of them, if one holds it.
    """
    near = set(preferred)
    sound = {
        one: [node for node in one.nodes if node not in one.damaged]
        for one in held_on(answers)
        if one.id.startswith(wanted)
    }
    best = max((one for one in sound if sound[one]), key=lambda one: len(near & {*one.nodes}), default=None)
    return None if best is None else (min(sound[best], key=lambda node: node not in near), best.id)


def send_to(
    head: Address,
    holder: Host,
    its: Address,
    remote: str,
    environment: str,
    show: Show,
    *,
    ssh: Sequence[str] = timing.PUSH_SSH,
) -> None:
    """Have ``holder``, which is node ``its``, send an environment that it holds to a head.

    Raise :class:`~launch.errors.RankliftError` with the reason where it cannot, and as
    :func:`make_environment`.
    """
    call: SendingCall = {
        **_spread_by(ssh),
        "nodes": _addresses((its, head)),
        "sends": environment,
    }
    answer = _call(call, holder, remote, show)
    if answer["t"] == "failed":
        raise GiveUpError(f"{holder.name}: {answer['reason']}")
    if answer["t"] != "sent":
        raise GiveUpError(f"{holder.name}: it did not say whether it sent environment {environment}")
    if any(results := node_results((its.name, head.name), answer["nodes"]).values()):
        raise GiveUpError(f"{holder.name}: {next(filter(None, results))}")


def _addresses(nodes: Sequence[Address]) -> list[tuple[str, str]]:
    return [(node.name, node.private_ip) for node in nodes]


def _spread_by(ssh: Sequence[str]) -> Spread:
    return {
        "ssh": list(ssh),
        "fanout": FANOUT,
        "silence": timing.PUSH_SILENT_S,
        "credential": make_credential(),
    }


def _call(request: EnvironmentCall | SendingCall, head: Host, remote: str, show: Show) -> _Answer:
    answer: _Answer = call_head(
        EnvironmentAnswer,
        head,
        remote,
        "environment",
        request,
        lambda answer: show(answer["text"], answer["done"], answer["total"]),
        purpose="the environment was made",
        limit_s=timing.ENVIRONMENT_S,
    )
    return answer
