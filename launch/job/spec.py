"""What a user asks for when launching: the job, and the nodes it may run on."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, get_args

from launch.durations import LONGEST_S
from launch.environment.environment_spec import Environment, PythonEnvironment
from launch.errors import InputError, InputErrors
from launch.job.metrics import check_metrics
from launch.job.rank_env import EXPANDED
from launch.launchers.base import JobNode, either, wrong
from launch.launchers.registry import LAUNCHERS, launcher_of
from launch.numbers import MOST
from launch.remote.base.health_records import HealthMode
from launch.remote.base.records import UploadRecord
from launch.remote.base.timing import GRACE_S

__all__ = [
    "GRACE_S",
    "HEALTH",
    "HOME",
    "LONGEST",
    "MASTER_PORT",
    "JobNode",
    "JobSpec",
    "Kind",
    "OutputType",
]

Kind = str
"""A name in :data:`launch.launchers.registry.LAUNCHERS`."""
OutputType = Literal["uri_folder", "uri_file", "mltable", "mlflow_model", "custom_model", "triton_model"]

HEALTH: HealthMode = "strict"
"""What findings at a node do to a job that does not say."""
MASTER_PORT = 6105
"""Azure ML's port for process groups (guide G5)."""

HOME = "/home/azureuser"
"""Home folder of the nodes' user, wherever a path in it must be written out."""

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OUTPUT_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,99}")
_SOME_LAUNCHERS = {
    "per_node": "for one process a node use processes_per_node 1",
    **dict.fromkeys(("workers", "parameter_servers", "chief", "mpi", "mpi_args"), "leave it out"),
}
"""Fields that only some launchers take, and the remedy where another is given them."""
_HIGHEST_PORT = 65535
LONGEST = 128 * 1024 - 4096
"""Bytes of one argument or value: execve takes 128 KiB with the name and its end (``MAX_ARG_STRLEN``), and
``$NAME`` in it may grow."""
_LONGEST_TOGETHER = 2 * 1024**2 - 256 * 1024
"""Bytes of all of them: execve takes a quarter of the stack's 8 MiB (``ARG_MAX``), and the node's own
environment and what the launcher sets are in it as well."""
_POINTER = 8
_NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class JobSpec:
    """One launch, checked when made: every mistake raises :class:`~launch.errors.InputError`.

    >>> JobSpec(name="digits", kind="pytorch", command=("train.py",), processes_per_node=0)
    Traceback (most recent call last):
    ...
    launch.errors.InputError: processes_per_node = 0: must be at least 1; ask for one or more
    """

    name: str
    """For people; part of the job's id."""
    kind: Kind
    command: tuple[str, ...]
    """The user's program and its arguments. A first word ending in .py runs under ``python``, one
    ending in .sh under bash. ``$NAME`` of a launcher's variable is filled in for each process (guide G7)."""
    shell: bool = False
    """The command is one word: a line for ``bash -c``, exactly as it is."""
    per_node: bool = False
    """The command starts the node's processes itself and runs once on every node (guide G8, G9 a)."""
    processes_per_node: int | None = 1
    """Ranks on each node; None for one per slot. Not used with ``per_node`` and by tensorflow jobs."""
    workers: int | None = None
    """A tensorflow job's workers (guide G11); None for one task on each node."""
    parameter_servers: int = 0
    """A tensorflow job's parameter servers; they share the nodes' processors and take no slot."""
    chief: bool = False
    """Whether a tensorflow job has a chief: beside its workers where ``workers`` counts them, else as the
    first node's task."""
    mpi: str | None = None
    """Which MPI starts the ranks, by its flavour; None for whatever the head has."""
    mpi_args: tuple[str, ...] = ()
    """Further arguments for mpirun, before the program."""
    env: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    """Set for every rank, over everything else."""
    snapshot: str = ""
    """Id of the pushed code; its folder is the ranks' working directory. Empty: a folder of the job's own."""
    setup: str = ""
    """A line for bash, run once on every node before its ranks, in their working directory."""
    python: str = "python3"
    """A command, or the path on the nodes of an environment's folder, whose ``bin`` then comes first on
    PATH. A path whose last part begins with ``python`` or ``pypy`` is a command."""
    environment: Environment | None = None
    """What the ranks run in, which the head makes once; None for the nodes with what they have."""
    requires: tuple[str, ...] = ()
    """Modules that this Python must have on every node before any rank starts."""
    shm_bytes: int | None = None
    """What /dev/shm of every node must hold at least."""
    outputs: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    """Type of each output by name (:data:`OutputType`); all but files get a folder on every node."""
    uploads: tuple[UploadRecord, ...] = ()
    """Where outputs go when the job has ended."""
    upload_every_s: float | None = None
    """Seconds between two uploads while the job runs; None for one at its end."""
    health: HealthMode = HEALTH
    """What findings at a node do to the job before its ranks start."""
    probe: bool | None = None
    """Whether the way between nodes is proven to be InfiniBand before ranks start; None for when the head
    uses the nodes for the first time."""
    port: int = MASTER_PORT
    """MASTER_PORT; the next free one when it is taken on the head."""
    timeout_s: float | None = None
    """Seconds the job may take from the moment its turn came."""
    grace_s: float = GRACE_S
    """Seconds between SIGTERM and SIGKILL when the job is ended."""
    metrics: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    """By name, a pattern with one group for a number in the ranks' lines."""
    max_restarts: int = 0
    """How often the job is launched again on the same nodes after a failure."""
    hang_after_s: float | None = None
    """Seconds without output of any rank after which the job is looked at and, unless it moves, ended."""
    flight_recorder: bool = True
    """Whether PyTorch's flight recorder of NCCL's ranks can be asked what they do."""
    identity: bool = False
    """Whether ranks reach the nodes' metadata service, and so may act as the nodes' identity."""
    min_nodes: int | None = None
    """With how few nodes the command goes on by itself when others are lost (torchrun's ``--nnodes``
    range); None when it needs them all."""
    display_name: str = ""
    experiment: str = ""
    description: str = ""
    tags: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    home: str = HOME

    def __post_init__(self) -> None:
        if not self.command or not self.command[0].strip():
            raise InputError("command", None, "is empty", "give the script to run, e.g. train.py --epochs 3")
        launcher_of(self.kind)
        if self.shell and len(self.command) != 1:
            raise wrong(
                self, "command", "is not a single line for a shell", "give one line, or shell = False"
            )
        self._check_processes()
        self._check_launcher()
        self._check_node()
        if not 1 <= self.port <= _HIGHEST_PORT:
            raise wrong(self, "port", "is not a TCP port", f"use the default, {MASTER_PORT}")
        limits = {"timeout_s": self.timeout_s, "grace_s": self.grace_s, "hang_after_s": self.hang_after_s}
        for key, seconds in limits.items():
            if seconds is not None and seconds <= 0:
                raise InputError(key, seconds, "must be above 0", "give it in seconds, or leave it out")
            if seconds is not None and not seconds <= LONGEST_S:  # nor is NaN
                raise InputError(key, seconds, "is more than 365 days", "give less, or leave it out")
        self._check_restarts()
        check_metrics(self.metrics)
        for key, words in (("command", self.command), ("mpi_args", self.mpi_args)):
            for word in words:
                _refuse_unsendable(key, word)
        self._check_variables()
        self._check_size()

    def _check_size(self) -> None:
        """Refuse more than a rank can be started with."""
        words = [*self.command, *self.mpi_args, *(f"{name}={value}" for name, value in self.env.items())]
        size = sum(len(os.fsencode(word)) + 1 + _POINTER for word in words)
        if size > _LONGEST_TOGETHER:
            problem = f"have {size} bytes with the command; Linux's limit is {_LONGEST_TOGETHER}"
            raise InputError("environment", None, problem, "put some of them into a file")

    def _check_restarts(self) -> None:
        if not 0 <= self.max_restarts <= MOST:
            raise wrong(self, "max_restarts", "is not a number of restarts", f"give 0 to {MOST}")
        if self.identity and self.max_restarts:
            problem = "cannot be combined with identity: a signature grants it to one launch"
            raise wrong(self, "max_restarts", problem, "leave one of the two out")
        if self.min_nodes is None:
            return
        if self.min_nodes < 1 or not self.per_node:
            remedy = "remove it, or run the command once on each node with --nnodes MIN:MAX"
            raise wrong(self, "min_nodes", "is only for torchrun over a range of nodes", remedy)
        if self.max_restarts:
            problem = (
                "cannot be combined with a range of nodes, over which torchrun itself restarts the processes"
            )
            remedy = f"give torchrun --max-restarts {self.max_restarts}"
            raise wrong(self, "max_restarts", problem, remedy)

    def _check_processes(self) -> None:
        count = self.processes_per_node
        if count is not None and count < 1:
            raise wrong(self, "processes_per_node", "must be at least 1", "ask for one or more")
        if count is not None and count > 1 and self.per_node:
            problem = "cannot be combined with a command that starts a node's processes itself"
            remedy = "leave the count out, or run the script without that launcher"
            raise wrong(self, "processes_per_node", problem, remedy)

    def _check_launcher(self) -> None:
        """Refuse what the launcher does not take."""
        launcher = launcher_of(self.kind)
        for key, remedy in _SOME_LAUNCHERS.items():
            value = getattr(self, key)
            if value and key not in launcher.fields:
                takers = [name for name, one in LAUNCHERS.items() if key in one.fields]
                raise InputError(key, value, f"is for {either(takers)} jobs", remedy)
        launcher.check(self)

    def _check_node(self) -> None:
        """Check what the nodes must have and make."""
        if not self.python.strip():
            raise wrong(self, "python", "is empty", "name a command, or leave it out")
        for key, value in (("python", self.python), ("setup", self.setup)):
            _refuse_unsendable(key, value)
        if isinstance(self.environment, PythonEnvironment) and self.python != "python3":
            problem = f"cannot be combined with {self.environment.title}, which makes a Python of its own"
            raise wrong(self, "python", problem, "give one of the two")
        if self.health not in get_args(HealthMode):
            raise wrong(self, "health", "is not a mode", f"use {either(get_args(HealthMode))}")
        for module in self.requires:
            if not module.isidentifier():
                raise InputError("requires", module, "is not a top-level module", "name it as import does")
        if self.shm_bytes is not None and self.shm_bytes < 1:
            raise wrong(self, "shm_bytes", "must be above 0", "give it in bytes")
        for name, kind in self.outputs.items():
            if not _OUTPUT_NAME.fullmatch(name):
                raise InputError(
                    *("outputs", name, "is not a valid name for an output"),
                    "use at most 100 letters, digits, _ and -",
                )
            if kind not in get_args(OutputType):
                raise InputError(
                    f"outputs {name}", kind, "is not a type of output", f"use {either(get_args(OutputType))}"
                )
        if not self.home.startswith("/"):
            raise wrong(self, "home", "is not an absolute path", f"leave it out for {HOME}")

    def _check_variables(self) -> None:
        errors = []
        for name, value in self.env.items():
            try:
                self._check_variable(name, value)
            except InputError as error:
                errors.append(error)
        if errors:
            raise errors[0] if len(errors) == 1 else InputErrors(errors)

    def _check_variable(self, name: str, value: str) -> None:
        if not _ENV_NAME.fullmatch(name):
            raise InputError("env", name, "is not a valid name for a variable", "use letters, digits and _")
        if name in EXPANDED or name in launcher_of(self.kind).variables:
            remedy = "leave it out"
            if name == "MASTER_PORT":
                remedy = "leave it out: the head takes a free port, 6105 if it is free"
            raise InputError(f"env {name}", None, "is set by the launcher for every rank", remedy)
        if name.startswith("RANKLIFT_"):
            problem = "is kept for Ranklift's own variables"
            raise InputError(f"env {name}", None, problem, "choose a name that begins otherwise")
        _refuse_unsendable(f"env {name}", value, shows=False)


def _refuse_unsendable(key: str, value: str, *, shows: bool = True) -> None:
    """Refuse what no process can be given: Linux ends strings at a NUL and limits their length.

    The value of a variable may be a secret, which no error ``shows``.
    """
    shown = value if shows else None
    if "\0" in value:
        raise InputError(
            key, shown, "holds a NUL byte, which Linux does not allow in an argument", "remove it"
        )
    try:
        size = len(value.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:
        raise InputError(key, shown, "cannot be encoded in UTF-8", "use text that UTF-8 can hold") from None
    if size > LONGEST:
        raise InputError(key, None, f"has {size} bytes; Linux's limit is {LONGEST}", "put it into a file")
