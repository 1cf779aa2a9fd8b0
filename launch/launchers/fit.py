"""What a command says of nodes, held against the job: it fits, is completed, or is refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from launch.errors import InputError
from launch.job.rank_env import EXPANDED
from launch.launchers.imports import no_code
from launch.launchers.launches import Command, Launch, exchanged, inserted, launches
from launch.launchers.line_variables import Variables, settings, variables_of
from launch.launchers.mpi import Mpi
from launch.launchers.options import (
    TORCHRUNS,
    Options,
    accelerate_options,
    configured,
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
_OURS: Mapping[str, str] = {
    **dict.fromkeys(("node-rank", "machine-rank"), "$NODE_RANK"),
    **dict.fromkeys(("nnodes", "num-machines", "num-nodes"), "$AZUREML_NODE_COUNT"),
    **dict.fromkeys(("master-addr", "main-process-ip"), "$MASTER_ADDR"),
    **dict.fromkeys(("master-port", "main-process-port"), "$MASTER_PORT"),
    "rdzv-endpoint": "$MASTER_ADDR:$MASTER_PORT",
    "rdzv-id": "$RANKLIFT_JOB_ID",
    "nproc-per-node": "gpu",
}
"""What the job has for an option of a launcher."""
_ADDRESSES = ("master-addr", "main-process-ip", "rdzv-endpoint")
_SAME = (*_ADDRESSES, "master-port", "main-process-port", "rdzv-id")
"""Options that are the same on every node."""
_ITSELF = re.compile(
    r"\[?(localhost(\.localdomain)?|ip6-localhost|127(\.\d+){1,3}|0\.0\.0\.0|[0:]*:[01]?)\]?(:\d*)?|:\d+",
    re.IGNORECASE,
)
"""An address by which every node means itself."""
_DIFFERS = re.compile(
    r"\b(S?RANDOM|BASHPID|HOSTNAME|RANKLIFT_NODE_ADDR|NODE_RANK|AZ_BATCHAI_TASK_INDEX|"
    r"hostname|uname|shuf|uuidgen|date)\b|\$\$"
)
_RANK = re.compile(r"\$(RANK|\{RANK(:?-[0-9]*)?\})")
_MEETINGS = ("MASTER_ADDR", f"{_FROM_ENVIRONMENT}MASTER_ADDR", f"{_FROM_ENVIRONMENT}RDZV_ENDPOINT")
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
        option = _option(written)
        remedy = f"write {option} {self.nodes} or {option} $AZUREML_NODE_COUNT, or choose other nodes"
        raise self.refused(written, f"the job has {counted(self.nodes, 'node')}", remedy)

    def check_place(self, given: Options, name: str) -> None:
        """Refuse a node's number that is the same on several nodes."""
        if self.nodes > 1 and given.given.get(name, "").isdecimal():
            written = given.written[name]
            remedy = f"write {_option(written)} $NODE_RANK"
            raise self.refused(written, f"would be the same on each of the {self.nodes} nodes", remedy)

    def check_meeting(self, given: Options, name: str) -> None:
        """Refuse what is another one on each node, where the nodes meet by it."""
        value = given.given.get(name, "")
        is_itself = name in _ADDRESSES and _ITSELF.fullmatch(value) is not None
        if self.nodes > 1 and (is_itself or (re.search("[$`]", value) and _DIFFERS.search(value))):
            written = given.written[name]
            problem = f"is another one on each of the {self.nodes} nodes, which would not meet"
            raise self.refused(written, problem, f"write {_option(written)} {_OURS[name]}")

    def settled(self, given: Options, variables: Variables) -> Options:
        """Return the options with what is known of their variables. Refuse a variable that nothing sets."""
        values = dict(given.given)
        for name in _OURS.keys() & values.keys():
            values[name] = variables.resolved(values[name])
            unset = variables.unset(values[name])
            if unset is None or (name == "nproc-per-node" and unset not in EXPANDED):
                continue  # of processes a node or its image may have a variable, of the job's nodes none
            written = given.written[name]
            problem = f"nothing sets {unset} where this launcher is started"
            if not variables.by_shell:
                problem = "stays as it is: no shell reads this line"
            raise self.refused(written, problem, f"write {_option(written)} {_OURS[name]}")
        return replace(given, given=values)


def fitted(
    key: str,
    command: Command,
    nodes: int,
    kind: str,
    variables: Mapping[str, str],
    read: Callable[[str], str | None] = no_code,
) -> Fitted:
    """Return the command as a job of so many nodes can run it; ``variables`` are those of the user, and
    ``read`` returns the text of a file of the code, None without one.

    What only a node knows is left as it is, and so are commands that ask which node they are on.
    Raise :class:`~launch.errors.InputError`, which names ``key``, for a command that contradicts the job.

    >>> fitted("command", "torchrun --nproc-per-node 2 a.py", 1, "pytorch", {}).notices
    ()
    """
    job = _Job(key, nodes, kind)
    notices: list[str] = []
    found = [*settings(command)]
    all_set = [*(pairs for pairs, _ in found), variables]
    from_environment = _from_environment(command, all_set)
    _check_settings(job, all_set)
    known_by_shell = {
        one: variables_of(command, kind, variables, found, by_shell=one) for one in (True, False)
    }
    for launch in reversed(launches(command)):  # what is added moves what follows
        read_options = _reader(launch.name)
        if read_options is None:
            if launch.is_everywhere:
                _check_processes(job, launch)
            continue
        known = known_by_shell[launch.by_shell]
        command, words, changed = _numbered(command, launch, read_options(launch.words), known)
        notices += changed
        options = job.settled(read_options(words), known)
        if not launch.is_everywhere:
            continue
        for name in _SAME:
            job.check_meeting(options, name)
        if launch.name.startswith("deepspeed"):
            _check_deepspeed(job, launch, options)
        elif launch.name not in TORCHRUNS:
            _check_accelerate(job, launch, options, read)
        elif missing := _missing(job, options, from_environment):
            given = {**from_environment, **options.given}
            fate = f"without it each of the {nodes} nodes would {_fate(missing, given)}"
            if launch.place is None:
                raise job.refused(launch.name, fate, f"write {' '.join(missing)} behind it")
            command = inserted(command, launch.place, missing)
            notices.append(f"{launch.name}: added {' '.join(missing)}: {fate}")
    return Fitted(command, tuple(reversed(notices)))


def _reader(name: str) -> Callable[[Sequence[str]], Options] | None:
    """Return what reads the options of a launcher that is started on every node; None for other launchers."""
    if name in TORCHRUNS:
        return torchrun_options
    if name.startswith("deepspeed"):
        return deepspeed_options
    return accelerate_options if name.startswith("accelerate") else None


def _option(written: str) -> str:
    return re.split("[= ]", written)[0]


def _from_environment(command: Command, found: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return the options that torchrun takes from variables; "" for a value that is not known."""
    known = {name: value for pairs in found for name, value in pairs.items() if "$" not in value}
    text = command if isinstance(command, str) else " ".join(command)
    names = {*re.findall(rf"\b{_FROM_ENVIRONMENT}\w+", text), *known}
    return {
        name.removeprefix(_FROM_ENVIRONMENT).lower().replace("_", "-"): known.get(name, "")
        for name in names
        if name.startswith(_FROM_ENVIRONMENT)
    }


def _check_settings(job: _Job, found: Sequence[Mapping[str, str]]) -> None:
    """Refuse a meeting that a variable has at each node itself, but for a process that is alone by its
    variables."""
    for pairs in found:
        name = next((name for name in _MEETINGS if _ITSELF.fullmatch(pairs.get(name, ""))), None)
        if job.nodes > 1 and name is not None and "WORLD_SIZE" not in pairs:
            problem = f"is another node on each of the {job.nodes} nodes, which would not meet"
            remedy = "leave it out: the job sets MASTER_ADDR and MASTER_PORT"
            raise job.refused(f"{name}={pairs[name]}", problem, remedy)


def _numbered(
    command: Command, launch: Launch, read: Options, variables: Variables
) -> tuple[Command, tuple[str, ...], tuple[str, ...]]:
    """Return the command and its launcher's words with NODE_RANK for an unset RANK as the node's number, and
    a notice of that.

    Azure ML sets RANK to it where one process is started on each node. Here such a launcher sees no RANK,
    which scripts that it does not start would take for their own.
    """
    words = launch.words
    for name in ("node-rank", "machine-rank"):
        value, written = read.given.get(name, ""), read.written.get(name)
        if not _RANK.fullmatch(value) or variables.unset(value) is None:
            continue
        before = ("", *words)
        at = next(at for at, word in enumerate(words) if written in (word, f"{before[at]} {word}"))
        place, new = launch.places[at], words[at].replace(value, _OURS[name])
        if place is None:
            break
        command = exchanged(command, place, words[at], new)
        notice = f"{launch.name}: {new} in place of {words[at]}: nothing sets RANK there"
        return command, (*words[:at], new, *words[at + 1 :]), (notice,)
    return command, words, ()


def _missing(job: _Job, read: Options, from_environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the options by which a torchrun takes part in the job, where it has none."""
    given = {**from_environment, **read.given}
    job.check_number(read, "nnodes")
    backend = given.get("rdzv-backend", "static")
    if backend == "static":
        job.check_place(read, "node-rank")
    if job.nodes > 1 and "standalone" in read.given:
        problem = f"would train on each of the {job.nodes} nodes alone"
        raise job.refused(read.written["standalone"], problem, "leave it out")
    if job.nodes == 1 or not (backend and read.are_all_known):
        return ()
    if backend == "static":
        _check_static_range(job, read)
    elif "store_type=file" in read.given.get("rdzv-conf", "") and "rdzv-endpoint" not in given:
        problem = f"without an endpoint is another file on each of the {job.nodes} nodes"
        raise job.refused(read.written["rdzv-conf"], problem, "leave it out")
    nodes = () if "nnodes" in given else ("--nnodes", str(job.nodes))
    return (*nodes, *_meeting(backend, given))


def _meeting(backend: str, given: Mapping[str, str]) -> tuple[str, ...]:
    """Return the options by which torchrun's nodes meet, without those that are given.

    Of themselves both backends have them meet at localhost.
    """
    words = RENDEZVOUS.get(backend, ())
    pairs = zip(words[::2], words[1::2], strict=True)
    own = {option.removeprefix("--"): (option, value) for option, value in pairs}
    if "rdzv-endpoint" in given:
        own = {"node-rank": own["node-rank"]} if backend == "static" else {}
    elif "master-addr" in given:
        own.pop("master-port", None)
    return tuple(word for name, pair in own.items() if name not in given for word in pair)


def _check_static_range(job: _Job, read: Options) -> None:
    """Refuse a range of nodes whose most are not the job's: only c10d takes fewer."""
    number = _COUNT.fullmatch(read.given.get("nnodes", ""))
    if number is not None and int(number[2] or number[1]) != job.nodes:
        written = read.written["nnodes"]
        problem = f"waits for {number[2]} nodes without --rdzv-backend c10d, the job has {job.nodes}"
        remedy = f"write {_option(written)} {job.nodes}, or add --rdzv-backend c10d"
        raise job.refused(written, problem, remedy)


def _fate(words: tuple[str, ...], given: Mapping[str, str]) -> str:
    """Return what a torchrun would do without the words that it lacks."""
    is_alone = "--nnodes" in words or given.get("nnodes", "").startswith("1:")
    return "train alone" if is_alone else "wait for the others in vain"


def _check_accelerate(
    job: _Job, launch: Launch, read: Options, read_file: Callable[[str], str | None]
) -> None:
    job.check_number(read, "num-machines")
    job.check_place(read, "machine-rank")
    given, file = dict(read.given), read.given.get("config-file")
    value = launch.name if file is None else read.written["config-file"]
    if not read.are_all_known or (file is not None and re.search("^[/~]|[$`]", file)):
        return  # a file that is not of the code may be another one on each node
    if file is not None:
        text = read_file(str(PurePosixPath(file)))
        if text is None and "machine-rank" in given:
            return
        given = _with_config(job, configured(text or ""), given)
    if job.nodes == 1:
        return
    options = {
        "num-machines": f"--num_machines {job.nodes}",
        "machine-rank": "--machine_rank $NODE_RANK",
        "main-process-ip": "--main_process_ip $MASTER_ADDR",
        "main-process-port": "--main_process_port $MASTER_PORT",
    }
    missing = [name for name in options if name not in given]
    if missing and missing != ["main-process-port"]:  # which has a default
        problem = f"would train on each of the {job.nodes} nodes alone"
        if "num-machines" in given:
            problem = f"would not find the others of the {job.nodes} nodes"
        remedy = f"add {' '.join(options[name] for name in missing)}"
        if "num-machines" in missing:
            remedy += ", and give the processes of all nodes together as --num_processes"
        raise job.refused(value, problem, remedy)
    total = read.given.get("num-processes", "")
    if total.isdecimal() and int(total) % job.nodes:
        problem = f"counts the processes of all {job.nodes} nodes, and does not divide by that"
        raise job.refused(read.written["num-processes"], problem, f"give a multiple of {job.nodes}")


def _with_config(job: _Job, config: Mapping[str, str], given: dict[str, str]) -> dict[str, str]:
    """Return the options with what a config file, the same on every node, says of the job's nodes rightly."""
    number = config.get("num-machines", str(job.nodes))
    if job.nodes == 1 and number != "1" and "num-machines" not in given:
        problem = f"has num_machines: {number}, the job has 1 node"
        raise job.refused(given["config-file"], problem, "add --num_machines 1, or choose other nodes")
    of_job = {
        "num-machines": number == str(job.nodes),
        "machine-rank": False,
        "main-process-ip": not _ITSELF.fullmatch(config.get("main-process-ip", "")),
        "main-process-port": True,
    }
    return {**{name: value for name, value in config.items() if of_job[name]}, **given}


def _check_deepspeed(job: _Job, launch: Launch, read: Options) -> None:
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
        "--master_addr $MASTER_ADDR --master_port $MASTER_PORT and a --hostfile with a line for each address "
        "in $AZ_BATCH_HOST_LIST and its GPUs: 10.0.0.4 slots=8",
    )


def _check_processes(job: _Job, launch: Launch) -> None:
    """Refuse a launcher that starts processes on nodes of its own choice."""
    (_check_horovodrun if launch.name == "horovodrun" else _check_mpirun)(job, launch)


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
