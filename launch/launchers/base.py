"""What a launcher contributes: options, checks, ranks and what each sees."""
# ruff: noqa: ARG002  (a launcher may need what the default of a method does not)
# ruff: noqa: D102  (names that are explained where the data is defined)

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Protocol

from launch.errors import InputError
from launch.job.rank_env import rank_environment
from launch.launchers.detect import starts_own_processes
from launch.numbers import counted
from launch.remote.mpi.base import CommandLine
from launch.remote.mpi.registry import process_prefixes

__all__ = [
    "COUNT",
    "Count",
    "JobNode",
    "Launcher",
    "Line",
    "LineStart",
    "Option",
    "RankPlan",
    "Spec",
    "Start",
    "either",
    "wrong",
]

Count = int | Literal["auto"] | None
"""Processes wanted on each node: a number, one for each slot, or not given."""


@dataclass(frozen=True, slots=True)
class JobNode:
    """One node a job runs on."""

    name: str
    private_ip: str
    slots: int
    """Processes it can take."""


@dataclass(frozen=True, slots=True)
class RankPlan:
    """One process the system starts; with a launcher per node, that launcher."""

    rank: int
    local_rank: int
    env: dict[str, str]
    """What this rank sees that its neighbours do not."""
    task: str = ""
    """The type of its task, where a job has tasks: it gets a port."""
    takes_slot: bool = True


class Spec(Protocol):
    """The part of a :class:`~launch.job.spec.JobSpec` that launchers read."""

    @property
    def command(self) -> tuple[str, ...]: ...
    @property
    def shell(self) -> bool: ...
    @property
    def python(self) -> str: ...
    @property
    def per_node(self) -> bool: ...
    @property
    def processes_per_node(self) -> int | None: ...
    @property
    def workers(self) -> int | None: ...
    @property
    def parameter_servers(self) -> int: ...
    @property
    def chief(self) -> bool: ...
    @property
    def mpi(self) -> str | None: ...
    @property
    def mpi_args(self) -> tuple[str, ...]: ...
    @property
    def min_nodes(self) -> int | None: ...


def _as_written(_flag: str, text: str) -> str:
    return text


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a launcher's own; one whose ``default`` is False is a flag."""

    name: str
    """As a parameter: ``--nproc-per-node`` is ``nproc_per_node``."""
    help: str
    default: str | bool | None = None
    read: Callable[[str, str], Any] = _as_written
    """Makes a value of the option's name and its text, or raises :class:`~launch.errors.InputError`."""
    choices: tuple[str, ...] = ()
    """All values, where there are few."""


COUNT = Option("nproc_per_node", "processes on each node, or `auto` for one per slot (default: 1)")


@dataclass(frozen=True, slots=True)
class Start:
    """Which processes are started on each node."""

    per_node: bool
    """The command starts a node's processes itself."""
    processes: int | None
    """On each node; None for one per slot."""
    notices: tuple[str, ...] = ()
    """What was chosen for the user."""


@dataclass(frozen=True, slots=True)
class Line:
    """A command line of a user's, with the values of the launcher's options."""

    text: str
    words: tuple[str, ...]
    source: str | None
    """The text of the script that it runs, where that is known."""
    python: str
    max_restarts: int
    slots: Sequence[int]
    """Of each node."""
    count: int | None
    """Processes wanted on each node, ``auto`` counted out; None when not given."""
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class LineStart:
    """What becomes of a :class:`Line`."""

    start: Start
    command: tuple[str, ...]
    shell: bool = False
    fields: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """Further fields of the job."""


class Launcher:
    """One way to start a job's ranks; the defaults serve processes that need no more than their numbers."""

    name: str
    """The job's kind, and its type of distribution in job files."""
    task: str
    """The task that takes a command line: ``fab launch.<task>``."""
    example: str
    summary: str
    """The task's help."""
    options: tuple[Option, ...] = (COUNT,)
    shared_help: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Help for options of all launchers that mean something else here."""
    file_keys: tuple[str, ...] = ("process_count_per_instance",)
    """Keys of the distribution in job files."""
    no_count_notice: str = ""
    """Notice for the user of a job file that leaves the number of processes out."""
    fields: frozenset[str] = frozenset()
    """Fields of the job that only some launchers take, and this one does."""
    variables: tuple[str, ...] = ()
    """Variables that it sets, beside those of every launcher."""

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Raise :class:`~launch.errors.InputError` for options that contradict each other."""

    def start(self, count: Count, command: str | Sequence[str], source: str | None, /) -> Start:
        """Return which processes a command starts; ``source`` is the text of its script, if known."""
        return Start(per_node=False, processes=None if count == "auto" else count or 1)

    def start_line(self, line: Line) -> LineStart:
        """Return what a command line starts, its options considered."""
        launcher = starts_own_processes(line.words)
        if launcher is not None and (line.count or 1) > 1:
            problem = f"cannot be combined with this command: {launcher}"
            raise InputError("--nproc-per-node", line.count, problem, "leave one of them out")
        start = self.start(line.count, line.words, line.source)
        if line.options.get(COUNT.name) == "auto" and not start.per_node:
            start = Start(per_node=False, processes=None)  # each node's own number
        return LineStart(start, line.words)

    def fewest_nodes(self, command: str | Sequence[str]) -> int | None:
        """Return with how few nodes a command goes on when others are lost; None when it needs them all."""
        return None

    def check(self, spec: Spec) -> None:
        """Raise :class:`~launch.errors.InputError` for a job that this launcher cannot start."""

    def place(self, spec: Spec, nodes: Sequence[JobNode]) -> list[list[RankPlan]]:
        """Return each node's ranks: here numbered node by node.

        Raise :class:`~launch.errors.InputError` for more processes than slots.
        """
        placed: list[list[RankPlan]] = []
        first = 0
        for node in nodes:
            count = _processes_on(spec, node)
            ranks = [(first + local, local) for local in range(count)]
            # A launcher's own processes get these from it; were they set, scripts would take it for a rank.
            envs = [{} if spec.per_node else rank_environment(*numbers, count) for numbers in ranks]
            placed.append([RankPlan(*numbers, env) for numbers, env in zip(ranks, envs, strict=True)])
            first += count
        return placed

    def services(self, spec: Spec) -> tuple[str, ...]:
        """Return the types of tasks that serve until they are stopped: the job ends when all others have."""
        return ()

    def defaults(self, spec: Spec) -> dict[str, str]:
        """Return variables for every rank, giving way to the user's."""
        return {}

    def hidden(self) -> tuple[str, ...]:
        """Return beginnings of variables that ranks must not see.

        Lightning takes a rank with an MPI's variables for one of that MPI.
        """
        return process_prefixes()

    def mpirun(
        self, spec: Spec, nodes: Sequence[JobNode], ranks: int, remote: str, infiniband: bool
    ) -> dict[str, CommandLine]:
        """Return mpirun's command line by MPI; empty where a runner on each node starts the ranks.

        ``remote`` is the folder of the node code under the home folder; ``infiniband``: the nodes have it.
        """
        return {}


def wrong(spec: object, key: str, problem: str, remedy: str) -> InputError:
    """Return the error for a field of the job."""
    return InputError(key, getattr(spec, key), problem, remedy)


def either(words: Iterable[str]) -> str:
    """Return the words as a choice.

    >>> either(["mpi", "pytorch", "tensorflow"])
    'mpi, pytorch or tensorflow'
    """
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last


def _processes_on(spec: Spec, node: JobNode) -> int:
    if spec.per_node:
        return 1
    count = spec.processes_per_node
    if count is None:
        return node.slots
    if count > node.slots:
        problem, remedy = f"{node.name} has {counted(node.slots, 'slot')}", f"ask for at most {node.slots}"
        raise wrong(spec, "processes_per_node", problem, remedy)
    return count
