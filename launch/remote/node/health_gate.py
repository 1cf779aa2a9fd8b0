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

    from launch.remote.base.health_records import Finding, Findings
    from launch.remote.base.payloads import RunnerSpec

__all__ = ["check", "read_findings", "refusals", "without_infiniband"]

_MAIN = os.path.dirname(os.path.dirname(__file__)) + "/__main__.py"
_ANYWAY = "`--health warn` starts the job anyway"


def check(
    spec: RunnerSpec,
    run: Callable[[list[str], float], tuple[int | None, bytes]],
    send: Callable[[bytes, Findings], None],
) -> None:
    """Look at this node and send what was found. Raise :class:`~launch.remote.node.prepare.Unfit` for errors,
    unless they are only to be shown."""
    promise = os.fsdecode(frames.pack(spec["health"]["promise"]))
    argv = [sys.executable or "python3", "-I", "-S", _MAIN, "look", promise]
    found = read_findings(*run(argv, timing.LOOK_S), timing.LOOK_S)
    found = without_infiniband(found, {**os.environ, **spec["user_env"]})
    if found:
        send(frames.HEALTH, {"findings": found})
    reasons = refusals(found)
    if reasons and spec["health"]["mode"] == "strict":
        raise Unfit(*reasons)


def read_findings(status: int | None, output: bytes, limit_s: float) -> list[Finding]:
    """Return the findings that the command printed; one about the command itself, where it printed none.

    ``status`` is None for a command that did not end within ``limit_s`` seconds.
    """
    if status == 0:
        with suppress(frames.ProtocolError, KeyError, TypeError):
            found: list[Finding] = frames.unpack(output)["findings"]
            return found
    last = output.decode("utf-8", "replace").strip().split("\n")[-1]
    measured = f"no answer within {limit_s:g} s" if status is None else last or f"exit status {status}"
    return [
        {
            "rule": "look",
            "level": "error",
            "subject": "look at the node",
            "measured": measured,
            "expected": "findings within 2 s",
            "source": "NVML, which hangs with some faults of GPUs",
            "remedy": "reboot the node; if it comes back, `fab replace` it",
        }
    ]


def without_infiniband(found: list[Finding], env: Mapping[str, str]) -> list[Finding]:
    """Return the findings, those about InfiniBand as warnings for a job that does without it: its
    ``NCCL_IB_DISABLE=1`` says so."""
    if env.get("NCCL_IB_DISABLE") != "1":
        return found
    return [{**one, "level": "warning"} if one["rule"].startswith("ib-") else one for one in found]


def refusals(found: list[Finding]) -> list[str]:
    """Return the reasons not to start ranks on this node; none without errors."""
    reasons = [
        f"{one['subject']}: {one['measured']}; expected: {one['expected']} ({one['source']}); {one['remedy']}"
        for one in found
        if one["level"] == "error"
    ]
    return [*reasons, _ANYWAY] if reasons else []
