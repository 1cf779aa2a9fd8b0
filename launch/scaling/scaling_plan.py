"""What is measured: the same job at several numbers of nodes, each several times."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from launch.errors import InputError
from launch.numbers import bounded, counted
from launch.remote.lines.known_lines import KNOWN
from launch.scaling.metric_numbers import THROUGHPUT, Basis

__all__ = [
    "Mode",
    "Run",
    "ScalingPlan",
    "powers_of_two",
    "read_basis",
    "read_metric",
    "read_node_counts",
]

Mode = Literal["weak", "strong"]
"""``weak``: each rank's share of the work stays the same. ``strong``: all the work stays the same, so that
each rank's share shrinks with every node."""

_MOST_POINTS = 64
_NODES = "--nodes"


@dataclass(frozen=True, slots=True, order=True)
class Run:
    """One job of a measurement."""

    repeat: int
    """0 for the first at its number of nodes."""
    nodes: int

    @property
    def words(self) -> str:
        """The run in words.

        >>> Run(0, 4).words
        'repeat 1 on 4 nodes'
        """
        return f"repeat {self.repeat + 1} on {counted(self.nodes, 'node')}"


@dataclass(frozen=True, slots=True)
class ScalingPlan:
    """All runs of a measurement, and how their figures are read."""

    counts: tuple[int, ...]
    """Numbers of nodes, in rising order; all others are compared with the first."""
    repeats: int
    mode: Mode
    warm_up: int
    """How many of each rank's first figures do not count."""
    metric: str
    """Name or source of the pattern, for people."""
    pattern: str
    """Regular expression, whose group is the figure; empty for the throughput in common frameworks' lines."""
    basis: Basis | None
    """Whose figure a line prints; None where the lines show it."""

    def runs(self, done: Collection[Run] = ()) -> list[Run]:
        """Return the runs that are not ``done``, in their order: repeats of a number of nodes lie far apart.

        Every second repeat goes from the most nodes to the fewest, so that a drift of the machines with
        time raises no point against the others.

        >>> plan = ScalingPlan((1, 2), 2, "weak", 0, "m", "(x)", None)
        >>> [(run.nodes, run.repeat) for run in plan.runs([Run(0, 1)])]
        [(2, 0), (2, 1), (1, 1)]
        """
        ordered = [
            Run(repeat, nodes)
            for repeat in range(self.repeats)
            for nodes in (self.counts if repeat % 2 == 0 else reversed(self.counts))
        ]
        return [run for run in ordered if run not in done]


def powers_of_two(there: int) -> str:
    """Return the numbers of nodes that a stack of ``there`` is measured at, as ``--nodes`` takes them.

    >>> powers_of_two(6), powers_of_two(1)
    ('1,2,4,6', '1')
    """
    counts = [2**power for power in range(there.bit_length()) if 2**power < there]
    return ",".join(map(str, [*counts, there]))


def read_node_counts(text: str, there: int) -> tuple[int, ...]:
    """Return the numbers of nodes in ``--nodes``, of a stack that has ``there``.

    >>> read_node_counts("1,4,2", 4)
    (1, 2, 4)

    Raises :class:`~launch.errors.InputError` for anything but two or more different numbers of nodes that
    the stack has.
    """
    remedy = "write numbers of nodes, like 1,2,4,8"
    counts = [
        bounded(_NODES, one.strip(), 1, 10**6, problem="is not a number of nodes", remedy=remedy)
        for one in text.split(",")
    ]
    if len({*counts}) < len(counts):
        raise InputError(_NODES, text, "has a number twice", "give each once; --repeat repeats them")
    if len(counts) < 2:  # noqa: PLR2004
        raise InputError(_NODES, text, "is one number: there is nothing to compare", remedy)
    if len(counts) > _MOST_POINTS:
        raise InputError(_NODES, text, f"has more than {_MOST_POINTS} numbers", "give fewer")
    if max(counts) > there:
        problem = f"the stack has {counted(there, 'node')}"
        raise InputError(_NODES, text, problem, "ask for fewer, or set ranklift:nodeCount and run `fab up`")
    return tuple(sorted(counts))


def read_metric(text: str, own: Mapping[str, str]) -> str:
    """Return the pattern of ``--metric``: that of a name among the job's ``own``, "" for the throughput in
    common frameworks' lines, else ``text`` itself.

    >>> read_metric("speed", {"speed": "speed ([0-9]+)"}), read_metric("at ([0-9.]+) images", {})
    ('speed ([0-9]+)', 'at ([0-9.]+) images')
    >>> read_metric("samples_per_s", {})
    ''

    Raises :class:`~launch.errors.InputError` for what is neither a name nor a regular expression with one
    group.
    """
    if text in own:
        return own[text]
    remedy = f"give one of {', '.join(sorted({*own, THROUGHPUT}))}, or a pattern like 'speed: ([0-9.]+)'"
    if text == THROUGHPUT:
        return ""
    if text in KNOWN:
        raise InputError("--metric", text, "is not a throughput: a higher one is not faster", remedy)
    try:
        groups = re.compile(text).groups
    except re.error as error:
        problem = f"is not a regular expression: {error}"
        raise InputError("--metric", text, problem, "write \\. for a dot") from None
    if groups != 1:
        problem = "has no group for the figure" if not groups else f"has {groups} groups"
        raise InputError("--metric", text, problem, remedy)
    return text


def read_basis(text: str | None) -> Basis | None:
    """Return the value of ``--of``; None without it. Raise :class:`~launch.errors.InputError` for another."""
    bases: Sequence[Basis] = get_args(Basis)
    for one in bases:
        if text == one:
            return one
    if text is None:
        return None
    raise InputError("--of", text, "is not whose figure a line prints", "give rank or job")
