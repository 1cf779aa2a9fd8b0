"""Start, stop, state and faults of the rehearsal of one project folder.

started = start(Path("."))
os.environ.update(Folder(Path(".")).environment())    # now `pulumi up` builds on this machine
report = stop(Path("."))
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import rehearsal
from infra.naming import cluster_name
from launch.errors import GiveUpError, InputError
from launch.numbers import counted
from rehearsal import leftovers, requirements
from rehearsal.faults.fault_kinds import FaultSpec
from rehearsal.run_dir import Folder, Record
from rehearsal.vms.api import VmFault
from rehearsal.vms.disks import remove_tree

__all__ = [
    "Started",
    "Status",
    "Stopped",
    "clear_faults",
    "inject",
    "inject_vm_fault",
    "list_faults",
    "start",
    "start_steps",
    "status",
    "stop",
    "stop_steps",
]

_READY_LIMIT = 120.0
_STOP_LIMIT = 60.0
_PROOF_LIMIT = 10.0


@dataclass(frozen=True, slots=True)
class Started:
    """Result of :func:`start`."""

    record: Record
    cleaned: tuple[str, ...]
    """Leftovers of a killed rehearsal that were removed."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """Result of :func:`stop`; counts are of what the kernel showed before and shows no more."""

    ran: bool
    processes: int = 0
    networks: int = 0
    ports: int = 0
    lost_stacks: tuple[str, ...] = ()
    """Stacks that still had resources, which were removed with the emulated subscription."""
    cleaned: tuple[str, ...] = ()
    """Removed leftovers of a killed rehearsal, when none ran."""


@dataclass(frozen=True, slots=True)
class Status:
    """State of a rehearsal."""

    running: bool
    record: Record | None = None
    networks: dict[str, Any] | None = None
    """By ARM id of the virtual network: ``nodes`` (address by name), ``running``, ``cut``, ``listening``."""
    leftovers: tuple[str, ...] = ()
    """Leftovers of a killed rehearsal; the next start removes them."""
    storage: dict[str, dict[str, int]] | None = None
    """By storage account: ``requests``, bytes that left it (``bytes_out``) and that came (``bytes_in``)."""


def start(project: Path, nodes_limit: int | None = None, node_python: Path | None = None) -> Started:
    """Start the rehearsal; return when it can be used.

    ``nodes_limit`` is the most nodes at a time (default: what this machine's memory holds, at most 300).
    ``node_python`` is a virtual environment that comes first in the nodes' PATH (default: none).
    Raises :class:`~launch.errors.InputError` when one runs already (nothing is changed) or the machine
    forbids user namespaces, :class:`~launch.errors.MissingTool` when a program is missing,
    :class:`~launch.errors.GiveUpError` with the log's last lines when it does not come up.
    """
    limit = _checked_limit(nodes_limit, node_python)
    folder = Folder(project.resolve())
    lock = folder.lock()
    if lock is None:
        raise _runs_already(folder)
    try:
        cleaned = _clean(folder)
        folder.make()
        process = _spawn(folder, limit, node_python, lock)
    finally:
        os.close(lock)  # the daemon holds its own descriptor of the same lock
    return Started(_until_ready(folder, process), cleaned)


def _checked_limit(nodes_limit: int | None, node_python: Path | None) -> int:
    """Return the most nodes at a time of a rehearsal that this machine can run. Raises as :func:`start`."""
    if nodes_limit is not None and nodes_limit < 1:
        raise InputError("--nodes-limit", nodes_limit, "must be at least 1", "leave it out for the default")
    if node_python is not None and not (node_python / "bin" / "python").exists():
        problem = "is not a virtual environment: it lacks bin/python"
        raise InputError(
            "--node-python", str(node_python), problem, "give one, or leave it out for bare nodes"
        )
    requirements.check()
    return nodes_limit or requirements.default_nodes_limit(Path("/proc/meminfo").read_text())


def start_steps(project: Path, nodes_limit: int | None = None, node_python: Path | None = None) -> list[str]:
    """Return what :func:`start` would do, a step a line. Raises as it does, before it begins."""
    limit = _checked_limit(nodes_limit, node_python)
    folder = Folder(project.resolve())
    if folder.locked():
        raise _runs_already(folder)
    left = leftovers.traces(folder) if folder.root.exists() else ()
    python = [] if node_python is None else [f"put {node_python}/bin first into the nodes' PATH"]
    return [
        *(f"remove, left by a killed rehearsal: {line}" for line in left),
        f"start Azure's resource manager and the provider, for up to {counted(limit, 'node')}, "
        f"in {folder.root}",
        *python,
    ]


def _runs_already(folder: Folder) -> InputError:
    record = folder.record()
    who = f"process {record.pid}" if record is not None else "starting"
    problem = f"already runs in {folder.project} ({who})"
    return InputError("rehearsal", None, problem, "use it, or run fab rehearsal.stop")


def _spawn(folder: Folder, nodes_limit: int, node_python: Path | None, lock: int) -> subprocess.Popen[bytes]:
    code_root = str(Path(rehearsal.__file__).parent.parent)
    argv = [sys.executable, "-m", "rehearsal.daemon", str(folder.project)]
    argv += ["--nodes-limit", str(nodes_limit), "--lock", str(lock)]
    if node_python is not None:
        argv += ["--node-python", str(node_python.absolute())]
    paths = [code_root, *filter(None, [os.environ.get("PYTHONPATH")])]
    with folder.log.open("wb") as log:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=[lock],
            start_new_session=True,
            cwd="/",
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )


def _until_ready(folder: Folder, process: subprocess.Popen[bytes]) -> Record:
    deadline = time.monotonic() + _READY_LIMIT
    while process.poll() is None and time.monotonic() < deadline:
        record = folder.record()
        if record is not None:
            process.returncode = 0  # it outlives this handle, which is dropped without a warning
            return record
        time.sleep(0.02)
    tail = _log_tail(folder)
    if process.poll() is None:
        process.kill()
        process.wait()
        raise GiveUpError(f"the rehearsal was not ready after {_READY_LIMIT:g} s{tail}")
    raise GiveUpError(f"the rehearsal ended while it started (exit status {process.returncode}){tail}")


def _log_tail(folder: Folder) -> str:
    lines = folder.log.read_text(errors="replace").splitlines()[-8:] if folder.log.exists() else []
    return "".join(f"\n    {line}" for line in lines)


def stop(project: Path) -> Stopped:
    """Stop the rehearsal with everything in it, and prove it; do nothing when none runs.

    Raises :class:`~launch.errors.GiveUpError` naming what is left, if anything is.
    """
    folder = Folder(project.resolve())
    record = _running(folder)
    if record is None:
        return Stopped(ran=False, cleaned=_clean_locked(folder))
    before = leftovers.belongings(folder)
    leftovers.end_strays(folder, networks=False)
    lost = tuple(f"{name} ({count} resources)" for name, count in leftovers.lost_stacks(folder).items())
    _end(record)
    deadline = time.monotonic() + _PROOF_LIMIT
    while (remains := leftovers.left(before, folder)) and time.monotonic() < deadline:
        time.sleep(0.05)
    if remains:
        raise GiveUpError(f"the rehearsal ended but left: {', '.join(remains)}")
    _clean_locked(folder)
    return Stopped(True, len(before.processes), before.namespaces, len(before.ports), lost)


def stop_steps(project: Path) -> list[str]:
    """Return what :func:`stop` would do, a step a line; nothing is asked of the rehearsal."""
    folder = Folder(project.resolve())
    record = folder.record()
    if record is None or not record.alive:
        left = leftovers.traces(folder) if folder.root.exists() else ()
        return [f"remove, left by a killed rehearsal: {line}" for line in left]
    lost = (f"{name} ({counted(count, 'resource')})" for name, count in leftovers.lost_stacks(folder).items())
    return [
        f"end process {record.pid} with all of its nodes and networks",
        *(f"remove stack {stack}" for stack in lost),
        f"remove {folder.root}",
    ]


def _running(folder: Folder) -> Record | None:
    deadline = time.monotonic() + _READY_LIMIT
    while folder.locked():
        record = folder.record()
        if record is not None and record.alive:
            return record
        if time.monotonic() > deadline:
            raise GiveUpError(f"another process starts or stops the rehearsal in {folder.project}; try again")
        time.sleep(0.1)
    return None


def _end(record: Record) -> None:
    for number, limit in ((signal.SIGTERM, _STOP_LIMIT), (signal.SIGKILL, _PROOF_LIMIT)):
        if record.alive:
            os.kill(record.pid, number)
        deadline = time.monotonic() + limit
        while record.alive and time.monotonic() < deadline:
            time.sleep(0.02)
            with contextlib.suppress(ChildProcessError):  # it was started by another process than this one
                os.waitpid(record.pid, os.WNOHANG)


def _clean_locked(folder: Folder) -> tuple[str, ...]:
    lock = folder.lock()
    if lock is None:  # another start was quicker, and has cleaned up itself
        return ()
    try:
        return _clean(folder)
    finally:
        os.close(lock)


def _clean(folder: Folder) -> tuple[str, ...]:
    """Remove what an ended rehearsal left, with the inventories of its stacks; return what it was."""
    found = leftovers.traces(folder) if folder.root.exists() else ()
    if folder.root.exists():
        leftovers.end_strays(folder)
        for name in _stacks(folder):
            remove_tree(folder.root.parent / name)
        remove_tree(folder.root)
    return found


def _stacks(folder: Folder) -> set[str]:
    """Return the names of all stacks in the rehearsal's backend, now or before."""
    names = {path.stem for path in folder.backend.glob(".pulumi/stacks/**/*.json")}
    names |= {path.name for path in folder.backend.glob(".pulumi/history/*/*")}
    return {name for name in names if name.startswith("rehearsal-")}


def status(project: Path) -> Status:
    """Return what runs in the project, and what a killed rehearsal left."""
    folder = Folder(project.resolve())
    record = folder.record()
    if record is not None and record.alive and folder.locked():
        answer = folder.ask("status")
        return Status(True, record, answer["networks"], storage=answer["storage"])
    return Status(False, leftovers=leftovers.traces(folder) if folder.root.exists() else ())


def inject_vm_fault(project: Path, stack: str, names: Sequence[str], kind: VmFault) -> None:
    """Stop nodes of a rehearsed stack, or cut or restore their links, by computer name.

    Raises :class:`~launch.errors.InputError` when none runs or the stack has no network in it.
    """
    group = f"/resourcegroups/{cluster_name(stack)}/"
    for network in _ask(project, "status")["networks"]:
        if group in network.lower():
            _ask(project, "fault", network=network, names=list(names), fault=kind)
            return
    raise InputError("--stack", stack, "has no nodes in this rehearsal", "run fab up")


def inject(project: Path, stack: str, spec: FaultSpec) -> list[str]:
    """Set or inject a fault; return the names of the nodes that it hits at once.

    Raises :class:`~launch.errors.InputError` when no rehearsal runs, :class:`~launch.errors.GiveUpError` with
    what is wrong with the nodes.
    """
    asked = {name: value for name, value in asdict(spec).items() if name != "hits"}
    return list(_ask(project, "disturb", group=cluster_name(stack), **asked))


def list_faults(project: Path) -> list[str]:
    """Return the faults that are set, a line each."""
    return list(_ask(project, "faults"))


def clear_faults(project: Path) -> list[str]:
    """Clear all faults that are set; return their kinds."""
    return list(_ask(project, "clear"))


def _ask(project: Path, operation: str, **arguments: Any) -> Any:
    folder = Folder(project.resolve())
    record = folder.record()
    if record is None or not record.alive or not folder.locked():
        raise InputError("rehearsal", str(folder.project), "is not running", "run fab rehearsal.start")
    return folder.ask(operation, **arguments)
