"""What words beside a number say of it: the metric that they name, or that it is another number."""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = [
    "PLURAL",
    "WEAK",
    "Name",
    "first_unit",
    "is_devices",
    "is_rate_on",
    "is_unit",
    "name_after",
    "name_before",
]

WEAK, PLURAL = 7, 8
"""Orders of names that count with a condition: ``dice loss`` if the line has no other loss, ``steps`` if it
has one."""


class Name(NamedTuple):
    """What words say of a number beside them."""

    metric: str = ""
    """``batch`` is a step if it has a fraction."""
    order: int = 0
    """Of several names of a metric in a line, the lowest counts."""
    is_known: bool = False
    """Whether numbers have this name usually, or it is a unit."""
    is_speed: bool = False
    """Whether a throughput may have this name."""
    is_unit: bool = False
    of: str = ""
    """Whose throughput it is: ``rank``, ``job``, or empty."""


_DEVICE = r"(?:gpu|cpu|rank|worker|device|replica|process|chip|core)s?"
_PER_DEVICE = rf"(?:\s?/\s?|\s+per[ -]|[_-]per[_-]){_DEVICE}(?!\w)"
_RATE = (
    r"(?:(?:train|training|curr|current|running_?avg|avg|average|mean|global|total|overall|local)[ _-]?){0,2}"
    r"(?:sample|image|img|example|sequence|seq|record)s?"
    r"(?:\s?/\s?|\s+per\s+|[_-]?per[_-]?|_p_)"
    rf"(?:s|secs?|seconds?)(?:{_PER_DEVICE}|(?!\w))"
)
_RATE_FIRST = re.compile(rf"{_RATE}(?![\w/])")
_RATE_LAST = re.compile(rf"(?:^|[\s/.]){_RATE}(?:\s+(?:total|avg|average|mean|overall|global|current))?$")
_RATE_ON = re.compile(rf"(?:^|[\s/.]){_RATE}\s+on$")
_DEVICES = re.compile(rf"{_DEVICE}(?:\s+s)?$")
_OF_RANK = re.compile(rf"{_PER_DEVICE}|(?:^|[\s_-])per[_-]{_DEVICE}|/{_DEVICE}/")
_OF_JOB = re.compile(r"(?<![a-z])(?:total|global|overall|aggregate)(?![a-z])")
_UNIT = re.compile(
    r"(?:[mnuµ]?s|secs?|seconds?|mins?|minutes?|hrs?|hours?|hz|[kmgt]i?b|%|\w+/(?:s|secs?|seconds?|steps?|it|"
    r"iter|batch|epoch)|(?:tok(?:en)?|step|iteration|batche)s?[ _]per[ _]s(?:ec(?:ond)?)?)(?![\w/])"
)

_EVALUATED = re.compile(r"(?<![a-z])(?:val|valid|validation|eval|evaluation|test|dev)(?![a-z])")
_LOSS = re.compile(
    r"(?:^|\s)((?:(?:reduced_train|train|training|total|lm|mlm|current|curr|cur|avg|average|mean|running|batch|"
    r"step|final|smoothed)[ _/.-]){0,2}loss(?:[ _/](?:train|training|step|total|value)){0,2})$"
)
_STEP = re.compile(
    r"(?:^|[\s/.])((?:(?:global|train|training|current|optimizer)[ _/-]?){0,2}(?:step|iter|iteration)"
    r"(?: train)?|num_updates)$"
)
_STEPS = re.compile(r"(?:(?:global|train|training)[ _])?(?:steps|iters|iterations)")
_EPOCH = re.compile(r"(?:^|[\s/.])((?:(?:train|training|current|global)[ _/-]?)?epoch(?: train)?)$")
_BATCH = re.compile(r"(?:^|\s)batch$")
_NO_COUNT = re.compile(
    r"(?<![a-z])(?:per|total|max|maximum|min|num|number|warmup|warm-up|accumulation|save|log|logging|"
    r"inference|optimization|for|skipped|nan|each|every|last|best|time|next|until)$"
    r"|(?<!train)(?<!trainer)(?<!training)(?<!global)/$"
)
"""What stands before ``step`` or ``epoch`` where the number is not that of the current one."""
_SPEED = re.compile(r"(?:^|[\s/._])(?:throughput|speed|rate|perf|performance|ips|fps)$")
_OTHER = re.compile(
    r"(?:^|[\s/._-])(?:loss|steps?|iters?|iterations?|epochs?|lr|acc\w*|(?:top|prec|acc)@?\d?|norm|grad\w*|"
    r"time|mfu|tps|wps|ppl|perplexity|batch|batchsize|size|rank|gpu|node|worker|mem|memory|eta|scale|tokens?|"
    r"momentum|mom|seed|reward|bleu|f1|data|[mnuµ]?s|secs?|seconds?)$"
)
"""Usual names of numbers that are no throughput."""
_OTHER_FIRST = re.compile(
    r"(?:loss|steps?|iters?|iterations?|epochs?|lr|acc\w*|norm|grad\w*|time|mfu|tps|wps|ppl|perplexity)(?![\w/])"
)
_LOSS_FIRST = re.compile(r"(?:(?:train|training)[ _])?loss(?![\w/])")
_COUNT_FIRST = re.compile(r"(step|iter|iteration|epoch)s?(?![\w/])")


def name_before(words: str) -> Name:
    """Return what the words before a number say of it; their end counts.

    >>> name_before("at step"), name_before("num epoch").metric, name_before("train throughput").is_speed
    (Name(metric='step', order=0, is_known=True, is_speed=False, is_unit=False, of=''), '', True)
    >>> name_before("total img/sec").of, name_before("samples/s per GPU").of, name_before("val_loss").metric
    ('job', 'rank', '')
    """
    low = words.lower()
    loss, step, epoch = _LOSS.search(low), _STEP.search(low), _EPOCH.search(low)
    count = step or epoch
    name = Name(is_known=_OTHER.search(low) is not None, is_speed=_SPEED.search(low) is not None)
    if _EVALUATED.search(low):
        name = Name(is_known=True)
    elif _RATE_LAST.search(low):
        name = _rate(low)
    elif loss or low.endswith("loss/train/total"):
        name = Name("loss", WEAK if loss and loss.start(1) else 0, is_known=True)
    elif count and not _NO_COUNT.search(low[: count.start(1)].rstrip()):
        name = Name("step" if step else "epoch", 0 if epoch or "step" in count[1] else 1, is_known=True)
    elif _STEPS.fullmatch(low):
        name = Name("step", PLURAL, is_known=True)
    elif _BATCH.search(low):
        name = Name("batch", 2, is_known=True)
    return name


def name_after(words: str) -> Name:
    """Return what the words behind a number say of it; their beginning counts.

    >>> name_after("img/sec per GPU").of, name_after("ms").is_unit, name_after("loss").metric
    ('rank', True, 'loss')
    """
    low = words.lower()
    count = _COUNT_FIRST.match(low)
    is_unit = _UNIT.match(low) is not None
    name = Name(is_known=is_unit or _OTHER_FIRST.match(low) is not None, is_unit=is_unit)
    if _EVALUATED.search(low):
        name = Name(is_known=True)
    elif _RATE_FIRST.match(low):
        name = _rate(low)
    elif _LOSS_FIRST.match(low):
        name = Name("loss", is_known=True)
    elif count:
        name = Name("epoch" if count[1] == "epoch" else "step", 1, is_known=True)
    return name


def _rate(words: str) -> Name:
    of = "rank" if _OF_RANK.search(words) else "job" if _OF_JOB.search(words) else ""
    return Name("samples_per_s", 1 if "avg" in words else 0, is_known=True, of=of)


def first_unit(words: str) -> str:
    """Return the unit that begins the words.

    >>> first_unit("samples/s loss"), first_unit("s"), first_unit("step")
    ('samples/s', 's', '')
    """
    unit = _RATE_FIRST.match(words.lower()) or _UNIT.match(words.lower())
    return words[: unit.end()] if unit else ""


def is_unit(words: str) -> bool:
    """Return whether the words are a unit, other than that of a throughput.

    >>> is_unit("ms"), is_unit("samples/s"), is_unit("time ms")
    (True, False, False)
    """
    return _UNIT.fullmatch(words.lower()) is not None and not _RATE_FIRST.match(words.lower())


def is_rate_on(words: str) -> bool:
    """Return whether a number of GPUs comes after these words, and then the throughput of all of them.

    >>> is_rate_on("Total img/sec on"), is_devices("GPU s")
    (True, True)
    """
    return _RATE_ON.search(words.lower()) is not None


def is_devices(words: str) -> bool:
    """Return whether the words end with a kind of devices."""
    return _DEVICES.search(words.lower()) is not None
