"""What a command says of nodes, held against the job: it fits, is completed, or is refused."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from launch.errors import InputError
from launch.launchers.launches import MPI_PROGRAMS, Command, Launch, inserted, launches
from launch.launchers.mpi import Mpi
from launch.launchers.options import (
    TORCHRUNS,
    Options,
    accelerate_options,
    deepspeed_options,
    mpirun_options,
    torchrun_options,
)
from launch.launchers.pytorch import RENDEZVOUS
from launch.numbers import counted

__all__ = ["Fitted", "fitted"]

_COUNT = re.compile(r"([0-9]{1,6})(?::([0-9]{1,6}))?")
_FROM_ENVIRONMENT = "PET_"
"""Begins the variables from which torchrun takes what no option gives it."""
_PLACES = frozenset({"node-rank", "master-addr", "rdzv-endpoint"})
"""Options of which a torchrun of several nodes has one, unless its user has forgotten them all."""
_ALONE = "let the job start its processes (process_count_per_instance, or --nproc-per-node)"


@dataclass(frozen=True, slots=True)
class Fitted:
    """A command that fits its job."""

    command: Command
    notices: tuple[str, ...] = ()
    """What was added to it."""


@dataclass(frozen=True, slots=True)
class _Job:
    """The job that a command is held against."""

    key: str
    """What the user calls the command."""
    nodes: int
    kind: str

    def refused(self, value: str, problem: str, remedy: str) -> InputError:
        """Return the error for a part of the command."""
        return InputError(self.key, value, problem, remedy)

    def check_number(self, given: Options, name: str) -> None:
        """Refuse a number of nodes, or a range, that is fixed and not the job's."""
        number = _COUNT.fullmatch(given.given.get(name, ""))
        if number is None or int(number[1]) <= self.nodes <= int(number[2] or number[1]):
            return
        written = given.written[name]
        option = re.split("[= ]", written)[0]
        remedy = f"write {option} {self.nodes} or {option} $AZUREML_NODE_COUNT, or choose other nodes"
        raise self.refused(written, f"the job has {counted(self.nodes, 'node')}", remedy)

    def check_place(self, given: Options, name: str) -> None:
        """Refuse a node's number that is the same on several nodes."""
        if self.nodes > 1 and given.given.get(name, "").isdecimal():
            written = given.written[name]
            remedy = f"write {re.split('[= ]', written)[0]} $NODE_RANK"
            raise self.refused(written, f"would be the same on each of the {self.nodes} nodes", remedy)


def fitted(
    key: str, command: Command, nodes: int, kind: str, variables: Collection[str] = frozenset()
) -> Fitted:
    """Return the command as a job of so many nodes can run it; ``variables`` are names that the job sets.

    What cannot be known is left as it is: a variable's value, and commands that ask which node they are on.
    Raise :class:`~launch.errors.InputError`, which names ``key``, for a command that contradicts the job.

    >>> fitted("command", "torchrun --nproc-per-node 2 a.py", 1, "pytorch").notices
    ()
    """
    job = _Job(key, nodes, kind)
    notices = []
    text = command if isinstance(command, str) else " ".join(command)
    from_environment = any(_FROM_ENVIRONMENT in one for one in (text, *variables))
    for launch in reversed(launches(command)):  # what is added moves what follows
        if not launch.is_everywhere:
            continue
        if launch.name in MPI_PROGRAMS:
            _check_mpirun(job, launch)
        elif launch.name == "horovodrun":
            _check_horovodrun(job, launch)
        elif launch.name.startswith("deepspeed"):
            _check_deepspeed(job, launch)
        elif launch.name.startswith("accelerate"):
            _check_accelerate(job, launch)
        elif launch.name in TORCHRUNS and (words := _missing(job, launch, from_environment=from_environment)):
            if launch.place is None:
                problem = f"each of the {nodes} nodes would {_fate(words)}"
                raise job.refused(launch.name, problem, f"write {' '.join(words)} behind it")
            command = inserted(command, launch.place, words)
            reason = f"without it each of the {nodes} nodes would {_fate(words)}"
            notices.append(f"{launch.name}: added {' '.join(words)}: {reason}")
    return Fitted(command, tuple(reversed(notices)))


def _missing(job: _Job, launch: Launch, *, from_environment: bool) -> tuple[str, ...]:
    """Return the options by which a torchrun takes part in the job, where it has none."""
    read = torchrun_options(launch.words)
    given = read.given
    job.check_number(read, "nnodes")
    backend = given.get("rdzv-backend", "static")
    if backend == "static":
        job.check_place(read, "node-rank")
    if job.nodes > 1 and "standalone" in given:
        problem = f"would train on each of the {job.nodes} nodes alone"
        raise job.refused(read.written["standalone"], problem, "leave it out")
    unknown = from_environment or not read.are_all_known
    if job.nodes == 1 or unknown:
        return ()
    meeting = RENDEZVOUS.get(backend, ()) if backend == "static" or "rdzv-endpoint" not in given else ()
    if "nnodes" in given:
        return () if backend != "static" or _PLACES & given.keys() else meeting
    return ("--nnodes", str(job.nodes), *meeting)


def _fate(words: tuple[str, ...]) -> str:
    """Return what a torchrun would do without the words that it lacks."""
    return "train alone" if "--nnodes" in words else "wait for the others in vain"


def _check_accelerate(job: _Job, launch: Launch) -> None:
    read = accelerate_options(launch.words)
    job.check_number(read, "num-machines")
    job.check_place(read, "machine-rank")
    if job.nodes == 1 or "config-file" in read.given or not read.are_all_known:
        return
    if "num-machines" not in read.given:
        options = {
            "num-machines": f"--num_machines {job.nodes}",
            "machine-rank": "--machine_rank $NODE_RANK",
            "main-process-ip": "--main_process_ip $MASTER_ADDR",
            "main-process-port": "--main_process_port $MASTER_PORT",
        }
        missing = " ".join(text for name, text in options.items() if name not in read.given)
        remedy = f"add {missing}, and give the processes of all nodes together as --num_processes"
        raise job.refused(launch.name, f"would train on each of the {job.nodes} nodes alone", remedy)
    total = read.given.get("num-processes", "")
    if total.isdecimal() and int(total) % job.nodes:
        problem = f"counts the processes of all {job.nodes} nodes, and does not divide by that"
        raise job.refused(read.written["num-processes"], problem, f"give a multiple of {job.nodes}")


def _check_deepspeed(job: _Job, launch: Launch) -> None:
    read = deepspeed_options(launch.words)
    job.check_number(read, "num-nodes")
    job.check_place(read, "node-rank")
    by_itself = "no-ssh" in read.given and "node-rank" in read.given
    if job.nodes == 1 or by_itself or not read.are_all_known:
        return
    own = read.first("hostfile", "H", "include", "i", "num-nodes")
    raise job.refused(
        read.written[own] if own else launch.name,
        f"deepspeed goes to other nodes by its own ssh, from each of the {job.nodes} nodes",
        f"run the script without deepspeed and {_ALONE}, or add --no_ssh --node_rank $NODE_RANK "
        "--master_addr $MASTER_ADDR --master_port $MASTER_PORT and a --hostfile",
    )


def _check_horovodrun(job: _Job, launch: Launch) -> None:
    if job.nodes > 1:
        problem = f"would start all of its processes from each of the {job.nodes} nodes"
        remedy = f"run the script without it in an {Mpi.name} job, and {_ALONE}"
        raise job.refused(launch.name, problem, remedy)
    _check_hosts(job, launch)


def _check_mpirun(job: _Job, launch: Launch) -> None:
    remedy = f"run the program without it in an {Mpi.name} job, and {_ALONE}"
    if job.kind == Mpi.name:
        problem = "mpirun starts the ranks of this job already, and an mpirun in them fails"
        raise job.refused(launch.name, problem, f"run the program without it, and {_ALONE}")
    if job.nodes > 1:
        problem = f"would start all of its processes from each of the {job.nodes} nodes"
        raise job.refused(launch.name, problem, remedy)
    _check_hosts(job, launch)


def _check_hosts(job: _Job, launch: Launch) -> None:
    """Refuse hosts that one node cannot be."""
    read = mpirun_options(launch.words)
    if launch.name == "srun":
        job.check_number(read, read.first("N", "nodes") or "N")
        return
    own = read.first("H", "host", "hosts")
    if own is None or "$" in read.given[own]:
        return
    hosts = {host.partition(":")[0] for host in read.given[own].split(",")}
    if len(hosts) > job.nodes:
        problem = f"names {len(hosts)} hosts, the job has {counted(job.nodes, 'node')}"
        raise job.refused(read.written[own], problem, "leave it out, or choose the job's nodes")
