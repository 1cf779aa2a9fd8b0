"""Since when no job ran on a cluster, by what the agents of its nodes answer; ``fab status`` uses it too."""

from __future__ import annotations

import json
import time

from launch.remote.agent.activity import Activity, regular

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FRESH_S", "answer", "idleness", "leads", "numbers"]

FRESH_S = 60.0
"""Seconds that a watch which leads is believed to after it said so; three looks where those are shorter."""
NEW_S = 600.0
"""Seconds for which a node without a job keeps the cluster after its boot, half of shorter spans."""
_LARGEST = 1e15


def idleness(
    answers: Mapping[str, Mapping[str, float]],
    silent: Mapping[str, float],
    now: float,
    span: float,
    used_s: float | None,
) -> tuple[float, float, list[str], str]:
    """Return the seconds until the next query, 0 when no job ran for ``span``; those since one ran, as far as
    is known; the silent nodes; and the obstacle beside jobs.

    ``answers`` are those of :func:`answer` by node, without ``idle_s`` where a node gave none; ``silent`` has
    since when those have not answered, which counts as being idle after as long. A node that hears less than
    half of the nodes may be the one that is cut off. ``used_s`` is known from earlier checks: with it, new
    nodes do not count. Without it, a node that has gone may have had the last job.
    """
    heard = {name: one for name, one in answers.items() if "idle_s" in one}
    idles = [one["idle_s"] for one in heard.values() if used_s is None or not one.get("new")]
    used = min([*idles, *([] if used_s is None else [used_s])], default=0.0)
    unheard = sorted(set(answers) - set(heard))
    if 2 * len(heard) < len(answers):
        few = f"{len(heard)} of {len(answers)} nodes answer: too few to stop the cluster"
        return span, used, unheard, few
    since = {**dict.fromkeys(unheard, now), **silent}
    waits = [span - used, *(span - now + since[name] for name in since if name in answers)]
    waits += [min(NEW_S, span / 2) - one["idle_s"] for one in heard.values() if one.get("new")]
    return max(0.0, *waits), used, unheard, f"no answer from {', '.join(unheard[:8])}" if unheard else ""


def numbers(text: bytes) -> dict[str, float]:
    """Return the numbers of an answer, the last line; none of anything else, which a job can put there.

    None is negative: the time of a job to come would hold off the cluster's stop until then.
    What the user's login prints comes before it (:mod:`launch.remote.login`, which no agent has)."""
    try:
        read = json.loads(text.rstrip().rpartition(b"\n")[2])
        found = {str(name): float(value) for name, value in read.items() if isinstance(value, (int, float))}
    except (ValueError, AttributeError, ArithmeticError, RecursionError):
        return {}
    return {name: number for name, number in found.items() if 0 <= number < _LARGEST}


def answer(folder: str) -> dict[str, float]:
    """Return the agent's answer to other nodes: seconds since this node had a job, whether it is new, whether
    its agent leads; and the seconds since the cluster had a job (``used_s``), if known."""
    activity = Activity(folder)
    idle = activity.look()
    found: dict[str, float] = {"idle_s": idle, "new": activity.is_new, "leads": leads(folder)}
    used, now = _written(folder, "used"), time.monotonic()
    return dict(found, used_s=now - used) if used is not None and 0 <= used <= now else found


def leads(folder: str) -> bool:
    """Return whether the agent of this ``~/.ranklift`` leads by its last report, since this boot."""
    until = _written(folder, "leads")
    return until is not None and 0 <= until - time.monotonic() <= FRESH_S + 1  # it is written rounded


def _written(folder: str, name: str) -> float | None:
    try:
        with open(f"{folder}/agent/{name}", encoding="ascii", opener=regular) as file:
            return float(file.read(100))
    except (OSError, ValueError):
        return None
