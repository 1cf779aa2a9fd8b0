"""What a user's arguments for mpirun say of ranks and nodes, held against the job's plan."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from launch.errors import InputError
from launch.numbers import counted
from launch.remote.mpi.registry import MPIS

__all__ = ["check_mpirun_args"]

_EACH_NODE = re.compile(r"(?:ppr:)?([0-9]+):node(?::.*)?", re.IGNORECASE)
_PROCESSES = "set process_count_per_instance or --nproc-per-node"


@dataclass(frozen=True, slots=True)
class _Table:
    """The options of an mpirun, as of :class:`~launch.remote.mpi.base.Mpi`."""

    settled: Mapping[str, str]
    values: Mapping[str, int]
    flags: frozenset[str]


def check_mpirun_args(key: str, args: Sequence[str], flavour: str | None, each: Sequence[int]) -> None:
    """Raise :class:`~launch.errors.InputError`, which names ``key``, for what contradicts the job's plan:
    ``each`` node's number of ranks, under one MPI, or under whichever the head has.

    An option that is not known may have any values: what follows it is not held against the plan.

    >>> check_mpirun_args("--mpirun-args", ["-x", "A=1", "--bind-to", "core", "-np", "4"], "openmpi", [2, 2])
    >>> check_mpirun_args("mpi_args", ["-np", "1"], None, [2, 2])
    Traceback (most recent call last):
    ...
    launch.errors.InputError: mpi_args = '-np 1': the job has 4 ranks; leave it out, or choose other nodes
    """
    table = _table(flavour)
    place = 0
    while place < len(args):
        word = args[place]
        place += 1
        option, equals, value = word.partition("=")
        name = option.lstrip("-")
        if not word.startswith("-"):
            raise _not_an_option(key, word)
        if name in table.settled:
            if not equals and name not in table.flags:
                value = " ".join(args[place : place + 1])
                word = f"{word} {value}".rstrip()
                place += 1
            _check(key, word, table.settled[name], value, each)
        elif name in table.values:
            place += table.values[name] - bool(equals)
            # hydra's -genv takes NAME=VALUE too
            place -= table.values[name] > 1 and not equals and "=" in "".join(args[place - 2 : place - 1])
        elif name not in table.flags:
            while place < len(args) and args[place] != ":" and not args[place].startswith("-"):
                place += 1


def _table(flavour: str | None) -> _Table:
    """Return the options of one MPI; where any may be on the head, an option has the most values it may."""
    chosen = [mpi for mpi in MPIS.values() if flavour in (None, mpi.flavour)]
    settled = {name: what for mpi in reversed(chosen) for name, what in mpi.settled.items()}
    values: dict[str, int] = {}
    for mpi in chosen:
        values |= {name: max(number, values.get(name, 0)) for name, number in mpi.values.items()}
    return _Table(settled, values, frozenset().union(*(mpi.flags for mpi in chosen)))


def _not_an_option(key: str, word: str) -> InputError:
    if word == ":":
        problem, remedy = "begins a second program; the job has one", "leave it and what follows out"
        return InputError(key, word, problem, remedy)
    problem = "is not an option: mpirun would start it as the program, in place of the job's"
    return InputError(key, word, problem, "give options alone, and the program as the job's command")


def _check(key: str, word: str, what: str, value: str, each: Sequence[int]) -> None:
    """Raise :class:`~launch.errors.InputError` for an option that says otherwise than the plan."""
    if what == "ranks" and value != str(sum(each)):
        problem = f"the job has {counted(sum(each), 'rank')}"
        raise InputError(key, word, problem, "leave it out, or choose other nodes")
    if what == "hosts":
        problem = "the job's own nodes are mpirun's hosts"
        raise InputError(key, word, problem, "leave it out, and choose nodes with --nodes")
    if what == "program":
        problem = "names programs; the job has its own"
        raise InputError(key, word, problem, "leave it out, and give the program as the job's command")
    on_node = value or "1"
    if what in ("map", "ppr"):
        found = _EACH_NODE.fullmatch(value if what == "ppr" or value.lower().startswith("ppr:") else "")
        if found is None:
            return
        on_node = found[1]
    if what in ("each", "map", "ppr") and {on_node} != {str(number) for number in each}:
        counts = sorted(set(each))
        has = counted(counts[0], "rank") if len(counts) == 1 else f"{counts[0]} to {counts[-1]} ranks"
        raise InputError(key, word, f"the job has {has} on each node", f"leave it out, and {_PROCESSES}")
