"""The answers to what nobody can know without a subscription, as a report: pure functions over findings.

docs/rehearsal-limits.md names the questions, each with what answers it by hand.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

__all__ = ["QUESTIONS", "Findings", "NodeAnswer", "Question", "ScaleSetFacts", "masked", "report"]

_REHEARSAL = "RankliftRehearsal"
"""``azEnvironment`` of a rehearsed node."""
_GUID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.IGNORECASE)


class _Imds(TypedDict):
    cloud: str
    image: str
    tags: dict[str, str]


class NodeAnswer(TypedDict, total=False):
    """What :mod:`playbooks.nodes.first_day_probe` returned on a node, or ``error``. A text in the place of
    anything else says why it is unknown."""

    cloud_init_errors: list[str] | str
    seconds_from_boot_to_ready: float | str
    system_disk: dict[str, float] | str
    rdma_ports: list[str] | str
    ucx_devices: list[str] | str
    gpus: list[str] | str
    components: dict[str, str] | str
    imds: _Imds | str
    error: str


@dataclass(frozen=True, slots=True)
class ScaleSetFacts:
    """What Azure's API says of the scale set."""

    tags: Mapping[str, str]
    upgrade_mode: str
    capacity: int
    states: Sequence[str]
    """Provisioning state of each instance."""
    older_model: int
    """Instances without the latest model."""


@dataclass(frozen=True, slots=True)
class Findings:
    """What the check has seen."""

    stack: str
    size: str
    wanted: int
    """Nodes of the configuration."""
    scale_set: ScaleSetFacts
    nodes: Mapping[str, NodeAnswer]


@dataclass(frozen=True, slots=True)
class Question:
    """One thing that a rehearsal cannot answer."""

    name: str
    text: str
    by_hand: str
    """The command that answers it, or what has to happen before the check can."""
    answer: Callable[[Findings], Any]


def _tags(found: Findings) -> dict[str, Any]:
    """Return names alone: values may be anybody's."""
    told = {}
    for name, node in found.nodes.items():
        imds = _imds(node)
        if imds is None:
            told[name] = f"{node.get('imds') or node.get('error')}"
            continue
        differs = [key for key, value in found.scale_set.tags.items() if imds["tags"].get(key) != value]
        more = [key for key in imds["tags"] if key not in found.scale_set.tags]
        told[name] = f"differ: {', '.join(sorted([*differs, *more])) or 'none'}"
    return {
        "upgrade_policy": found.scale_set.upgrade_mode,
        "instances_without_latest_model": found.scale_set.older_model,
        "tags_of_nodes_and_scale_set": told,
    }


def _imds(said: NodeAnswer) -> _Imds | None:
    imds = said.get("imds")
    return None if isinstance(imds, str) else imds


def _allocation(found: Findings) -> dict[str, Any]:
    return {
        "nodes_wanted": found.wanted,
        "capacity": found.scale_set.capacity,
        "instances_by_provisioning_state": dict(Counter(found.scale_set.states)),
    }


def _of_nodes(*names: str) -> Callable[[Findings], dict[str, Any]]:
    def answer(found: Findings) -> dict[str, Any]:
        return {
            node: {name: value for name, value in said.items() if name in names} or said.get("error")
            for node, said in found.nodes.items()
        }

    return answer


def _images(found: Findings) -> dict[str, Any]:
    answers = _of_nodes("cloud_init_errors", "system_disk", "components", "gpus")(found)
    images = {node: imds["image"] for node, said in found.nodes.items() if (imds := _imds(said)) is not None}
    for node, image in images.items():  # which may be all that the node answered
        others = answers[node] if isinstance(answers[node], dict) else {}
        answers[node] = {**others, "image": image}
    return answers


QUESTIONS = (
    Question(
        "imds-tags",
        "Do nodes that run see new tags of their scale set, under a manual upgrade policy?",
        "change ranklift:ttlHours, `fab up`, wait 10 minutes, and repeat this check",
        _tags,
    ),
    Question(
        "partial-allocation",
        "What does an allocation leave of which only a part came?",
        "with ranklift:partial=keep, when `fab scale` has ended with AllocationFailed, repeat this check",
        _allocation,
    ),
    Question(
        "image",
        "Does the pinned image boot without errors of cloud-init, and how much of its disk is free?",
        'fab exec "cat /run/cloud-init/result.json; df -h /"',
        _images,
    ),
    Question(
        "devices",
        "Which devices do NCCL and UCX take, and how fast are they?",
        'fab launch.mpi "/opt/nccl-tests/build/all_reduce_perf -b 8M -e 8G -f 2 -g 1" --nproc-per-node auto '
        "--env NCCL_DEBUG=INFO    # its log names NET/IB with the devices, its table has busbw",
        _of_nodes("rdma_ports", "ucx_devices"),
    ),
    Question(
        "times",
        "How long does it take?",
        "time fab up; time fab scale …; time fab down",
        _of_nodes("seconds_from_boot_to_ready"),
    ),
)


def masked(value: Any) -> Any:
    """Return a copy without ids, such as a subscription's.

    >>> masked({"a": ["/subscriptions/00000000-0000-4000-8000-00000000cafe/x"]})
    {'a': ['/subscriptions/<id>/x']}
    """
    if isinstance(value, str):
        return _GUID.sub("<id>", value)
    if isinstance(value, Mapping):
        return {masked(key): masked(one) for key, one in value.items()}
    return [masked(one) for one in value] if isinstance(value, list | tuple) else value


def report(found: Findings, made: str) -> dict[str, Any]:
    """Return the report; ``made`` is the time."""
    clouds = {imds["cloud"] for said in found.nodes.values() if (imds := _imds(said)) is not None}
    where = "rehearsal" if _REHEARSAL in clouds else " and ".join(sorted(clouds)) or "unknown"
    answers = {
        one.name: {"question": one.text, "answer": one.answer(found), "by_hand": one.by_hand}
        for one in QUESTIONS
    }
    head = {"where": where, "made": made, "stack": found.stack, "size": found.size, "nodes": len(found.nodes)}
    report: dict[str, Any] = masked({**head, "answers": answers})
    return report
