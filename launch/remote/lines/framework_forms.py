"""Numbers that frameworks print without their name beside them."""

from __future__ import annotations

import re
from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Reading", "add_forms"]


class Reading(NamedTuple):
    """A number of a line."""

    text: str
    """As it is printed, without thousands separators."""
    of: str
    """Whose figure it is: ``rank``, ``job``, or empty where the line does not say."""


_BARS = (
    re.compile(
        r"(?<!\d)(\d{1,32})/\d{1,32} \[[\d:]+<[\d:?]+, +[\d.?]+(?:(?:it|batch|batches|step|steps)/s|s/it)"
    ),
    re.compile(r"^\s*(\d{1,32})/\d{1,32} (?:\[[=>.]|\u2501)"),
)
"""Progress bars of tqdm and Keras."""
_TIMM = re.compile(r"\bTrain: (\d{1,32}) \[\s{0,32}(\d{1,32})/\d{1,32} \(")
_TIME_RATE = re.compile(r"(?:Time: +[\d.]+s|Batch \(t\): +[\d.]+), +([\d.]{1,32})/s(?![\w/])")
"""``Time: 0.400s, 640.00/s``: timm and open_clip print the samples of all ranks so."""
_CHECKPOINTS = (
    re.compile(
        r"(?<!\w)checkpoint_s['\"]?\s{0,32}[:= ]\s{0,32}([\d.]{1,32}(?:e[-+]?\d{1,3})?)(?!\w)", re.IGNORECASE
    ),
    re.compile(r"\bcheckpoint\b.{0,200} (?:in|took) ([\d.,]{1,32}) ?s(?:ec(?:onds)?)?\b", re.IGNORECASE),
)


def add_forms(line: str, found: dict[str, Reading]) -> None:
    """Add the numbers of a line to those that have a name there."""
    if "step" not in found and "/" in line:
        _add("step", _BARS, line, found)
    timm = _TIMM.search(line) if "Train: " in line else None
    if timm:
        found["epoch"], found["step"] = Reading(timm[1], ""), Reading(timm[2], "")
    if "samples_per_s" not in found and "/s" in line:
        _add("samples_per_s", (_TIME_RATE,), line, found)
    if "checkpoint" in line.lower():
        _add("checkpoint_s", _CHECKPOINTS, line, found)


def _add(metric: str, forms: Iterable[re.Pattern[str]], line: str, found: dict[str, Reading]) -> None:
    for form in forms:
        match = form.search(line)
        if match:
            found[metric] = Reading(match[1].replace(",", ""), "job" if form is _TIME_RATE else "")
            return
