"""The look at a node before its ranks start: run as a process of its own, since NVML can hang."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from launch.remote.base import frames, timing
from launch.remote.node.prepare import Unfit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from launch.remote.base.health_records import Finding, Findings, Look
    from launch.remote.base.payloads import RunnerSpec

__all__ = ["NotLooked", "check", "finding_text", "read_look", "refusals", "without_infiniband"]

_MAIN = os.path.dirname(os.path.dirname(__file__)) + "/__main__.py"
_LONGEST = 1000
"""Characters of a failed look's last line."""
_UNLOOKED = "look"
_NOTHING_KNOWN = (_UNLOOKED, "gpu-unread")
"""Rules by which nothing is known of a node or of its GPUs: no rank starts there, and it is not sick."""
_ANYWAY = "`--health warn` starts the job anyway"


class NotLooked(Exception):
    """A look that ended without findings: nothing is known of the node."""


def check(
    spec: RunnerSpec,
    run: Callable[[list[str], float], tuple[int | None, bytes]],
    send: Callable[[bytes, Findings], None],
) -> None:
    """Look at this node and send what was found. Raise :class:`~launch.remote.node.prepare.Unfit` for errors,
    unless they are only to be shown."""
    promise = os.fsdecode(frames.pack(spec["health"]["promise"]))
    argv = [sys.executable or "python3", "-I", "-S", _MAIN, "look", promise]
    try:
        looked = read_look(*run(argv, timing.LOOK_S))["findings"]
    except NotLooked as error:
        looked = [_not_looked(str(error))]
    found = without_infiniband(looked, {**os.environ, **spec["user_env"]})
    if found:
        send(frames.HEALTH, {"findings": found})
    reasons = refusals(found)
    if reasons and spec["health"]["mode"] == "strict":
        raise Unfit(*reasons)


def read_look(status: int | None, output: bytes) -> Look:
    """Return what the command printed. Raise :class:`NotLooked` where those are no findings.

    ``status`` is None for a command that did not end in time.
    """
    if status == 0:
        with suppress(frames.ProtocolError, IndexError, KeyError, TypeError):
            found: Look = frames.unpack(output.split(frames.LOOK_MARK)[1])
            if all(_is_finding(one) for one in found["findings"]):
                return {"findings": found["findings"], "gpus": found["gpus"], "ports": found["ports"]}
    last = output.decode("utf-8", "replace").strip().split("\n")[-1][:_LONGEST]
    if status is None:
        raise NotLooked(f"late: no findings within {timing.LOOK_S:g} s, as on a node that is busy")
    words = f"no findings, and exit status {status}"
    raise NotLooked(
        f"{words}: {last}" if last else f"{words}; the node's python3 or a start-up file may fail"
    )


def _not_looked(why: str) -> Finding:
    return {
        "rule": _UNLOOKED,
        "level": "unknown",
        "subject": "look at the node",
        "measured": why,
        "expected": "findings within 2 s",
        "source": "measured on idle nodes",
        "remedy": "nothing is known of the node's devices; `fab check` looks again",
    }


def _is_finding(one: object) -> bool:
    """Return whether it has a finding's fields: a node may print anything."""
    fields = ("rule", "level", "subject", "measured", "expected", "source", "remedy")
    is_text = isinstance(one, dict) and all(isinstance(one.get(name), str) for name in fields)
    return is_text and isinstance(one, dict) and one["level"] in {"error", "warning", "unknown"}


def without_infiniband(found: list[Finding], env: Mapping[str, str]) -> list[Finding]:
    """Return the findings, those about InfiniBand as warnings for a job that does without it: its
    ``NCCL_IB_DISABLE=1`` says so."""
    if env.get("NCCL_IB_DISABLE") != "1":
        return found
    return [{**one, "level": "warning"} if one["rule"].startswith("ib-") else one for one in found]


def finding_text(one: Finding) -> str:
    """Return a finding in words, with its remedy."""
    return (
        f"{one['subject']}: {one['measured']}; expected: {one['expected']} ({one['source']}); {one['remedy']}"
    )


def refusals(found: list[Finding]) -> list[str]:
    """Return the reasons not to start ranks on this node: errors, and that nothing is known of it."""
    reasons = [finding_text(one) for one in found if one["level"] == "error" or one["rule"] in _NOTHING_KNOWN]
    return [*reasons, _ANYWAY] if reasons else []
