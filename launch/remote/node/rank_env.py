"""A node's side of a job: its folder, its ports, and the environment and arguments of each rank."""

from __future__ import annotations

import fcntl
import os
import time

from launch.remote.base.whole_file import FRESH, replace_file, temporary_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

__all__ = [
    "LAST_PORT",
    "Unfit",
    "environment",
    "expand",
    "full",
    "is_free",
    "node_environment",
    "open_log",
    "prepare",
    "python_folder",
    "take_ports",
    "temporary_folder",
    "unwritable",
    "which",
    "write_exit",
    "write_log",
]

_LAUNCHERS_MARKS = ("OMPI_", "PMIX_", "PMI_", "PRTE_", "HYDRA_", "HYDI_", "I_MPI_HYDRA_")
LAST_PORT = 65535
_UNWRITABLE = "{folder} cannot be written: {why}"
_ROOM = 64 << 10


class Unfit(Exception):
    """This node cannot run the job's ranks; every reason in words for its user."""

    def __init__(self, *reasons: str) -> None:
        self.reasons = list(reasons)
        super().__init__("; ".join(reasons))


def full(path: str) -> str:
    """The path with ``~`` replaced by this node's home folder."""
    return os.environ.get("HOME", "/") + path[1:] if path.startswith("~") else path


def prepare(spec: Mapping[str, Any]) -> str:
    """Make the job's folder on this node, all but its working folder; return its path.

    Raise :class:`Unfit` when there is no room for the job.
    """
    folder = full(spec["folder"])
    try:
        for path in ("/logs", "/outputs", *("/outputs/" + name for name in spec["outputs"])):
            os.makedirs(folder + path, mode=0o700, exist_ok=True)
        _stand_in_for_python(folder, spec)
        if spec["hostfile"]:
            replace_file(folder + "/hostfile", spec["hostfile"].encode(), outlives_machine=False)
    except OSError as error:
        raise Unfit(_UNWRITABLE.format(folder=folder, why=error.strerror)) from error
    reasons = unwritable(folder, temporary_folder())
    if reasons:
        raise Unfit(*reasons)
    return folder


def temporary_folder() -> str:
    """Where programs on this node put what they need for a while."""
    return os.environ.get("TMPDIR") or "/tmp"  # noqa: S108  as they all do


def unwritable(*folders: str) -> list[str]:
    """Why a job cannot write there, a reason for each folder that is full, read-only or no folder at all."""
    reasons = []
    for folder in folders:
        probe = temporary_name(f"{folder}/.ranklift")
        try:
            fd = os.open(probe, FRESH, 0o600)
            try:
                if os.write(fd, bytes(_ROOM)) < _ROOM:
                    os.write(fd, b"-")  # says why
            finally:
                os.close(fd)
                os.unlink(probe)
        except OSError as error:
            reasons.append(_UNWRITABLE.format(folder=folder, why=error.strerror))
    return reasons


def _stand_in_for_python(folder: str, spec: Mapping[str, Any]) -> None:
    """A ``python`` for nodes without one, which :func:`environment` puts last on PATH.

    A script rather than a link, which would lose a virtual environment's packages.
    """
    path = spec["user_env"].get("PATH", os.environ.get("PATH", os.defpath))
    if python_folder(spec["python"]) or which("python", path):
        return
    found = which(full(spec["python"]), path)
    if found:
        os.makedirs(folder + "/bin", mode=0o700, exist_ok=True)
        quoted = "'" + os.path.abspath(found).replace("'", "'\\''") + "'"
        script = f'#!/bin/sh\nexec {quoted} "$@"\n'.encode("utf-8", "surrogateescape")
        replace_file(folder + "/bin/python", script, mode=0o700, outlives_machine=False)


def python_folder(python: str) -> str:
    """The folder of the environment that a job's ``python`` names; empty when it names a command.

    >>> python_folder("/opt/envs/torch"), python_folder("/usr/bin/python3.11"), python_folder("python3")
    ('/opt/envs/torch', '', '')
    """
    path = python.rstrip("/")
    is_command = "/" not in path or path.rpartition("/")[2].startswith(("python", "pypy"))
    return "" if is_command else full(path)


def which(command: str, path: str) -> str:
    """Where a command is, empty when nowhere; :func:`shutil.which` costs each rank its import."""
    folders = [""] if "/" in command else [(folder or ".") + "/" for folder in path.split(":")]
    for folder in folders:
        if os.path.isfile(folder + command) and os.access(folder + command, os.X_OK):
            return folder + command
    return ""


def take_ports(first: int, count: int, held: list[int]) -> list[int]:
    """Ports from ``first`` that nothing on this node listens at and no other job was given.

    They stay the job's until the descriptors added to ``held`` are closed. Raises OSError when there are
    not as many.
    """
    if not count:
        return []
    folder = full("~/.ranklift/ports")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    ports: list[int] = []
    for port in range(first, LAST_PORT + 1):
        fd = os.open(f"{folder}/{port}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            taken = not is_free(port)
        except OSError:
            taken = True
        if taken:
            os.close(fd)
            continue
        held.append(fd)
        ports.append(port)
        if len(ports) == count:
            return ports
    raise OSError(f"no {count} free ports from {first}")


def is_free(port: int) -> bool:
    """Whether nothing on this node listens at the port."""
    import _socket  # the module around it takes as long to import as the rest of a runner's start

    probe = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    try:
        probe.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)  # a closed line is none
        probe.bind(("", port))
        probe.listen(1)
    except OSError:
        return False
    finally:
        probe.close()
    return True


def environment(
    spec: Mapping[str, Any], rank: Mapping[str, Any], inherited: Mapping[str, str]
) -> dict[str, str]:
    """What one rank sees: the node's own environment over defaults, then the job's, the rank's, the user's.

    ``files`` are set only where the file exists on this node: images differ in what they bring.
    """
    dropped = tuple(spec["drop"])
    env = dict(spec["defaults"])
    env.update({key: path for key, path in spec["files"].items() if os.path.exists(path)})
    env.update({key: value for key, value in inherited.items() if not (dropped and key.startswith(dropped))})
    env.update(spec["env"])
    env.update({key: full(path) for key, path in spec["paths"].items()})
    env.update(rank["env"])
    env.update(spec["user_env"])
    _lead_to_python(env, spec)
    return env


def node_environment(spec: Mapping[str, Any], inherited: Mapping[str, str]) -> dict[str, str]:
    """What the job's setup line and its checks see: no rank's, and nothing of a launcher's own."""
    kept = {key: value for key, value in inherited.items() if not key.startswith(_LAUNCHERS_MARKS)}
    return environment(spec, {"env": {}}, kept)


def _lead_to_python(env: dict[str, str], spec: Mapping[str, Any]) -> None:
    path = env.get("PATH", os.defpath)
    folder = python_folder(spec["python"])
    if folder:
        env.update(PATH=f"{folder}/bin:{path}", VIRTUAL_ENV=folder)
        env.pop("PYTHONHOME", None)
    elif not which("python", path):
        env["PATH"] = f"{path}:{full(spec['folder'])}/bin"


def expand(argv: list[str], names: list[str], env: Mapping[str, str]) -> list[str]:
    """The arguments with ``$NAME`` and ``${NAME}`` replaced for the launcher's own variables alone.

    Any other ``$`` stays as it is: it is the user's.

    >>> expand(["--rank=$RANK", "${RANK}a", "$RANKS", "$HOME"], ["RANK"], {"RANK": "3", "HOME": "/"})
    ['--rank=3', '3a', '$RANKS', '$HOME']
    """
    wanted = {name: env[name] for name in names if name in env}
    return [_expand(argument, wanted) if "$" in argument else argument for argument in argv]


def _expand(text: str, values: Mapping[str, str]) -> str:
    head, *rest = text.split("$")
    parts = [head]
    for part in rest:
        if part.startswith("{") and part[1:].partition("}")[0] in values and "}" in part:
            name, _, after = part[1:].partition("}")
            parts.append(values[name] + after)
            continue
        length = 0
        while length < len(part) and (
            part[length] == "_" or (part[length].isalnum() and part[length].isascii())
        ):
            length += 1
        if part[:length] in values:
            parts.append(values[part[:length]] + part[length:])
        else:
            parts.append("$" + part)
    return "".join(parts)


def open_log(folder: str, name: str) -> int:
    """The log file of a rank or of a setup line, stdout and stderr in the order they came."""
    return os.open(f"{folder}/logs/{name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def write_log(fd: int, data: bytes) -> tuple[int, str]:
    """Appends to a log; gives how many bytes could not be written, and why: a full disk loses them alone."""
    try:
        while data:
            data = data[os.write(fd, data) :]
    except OSError as error:
        return len(data), error.strerror or str(error)
    return 0, ""


def write_exit(fd: int, rank: int, status: int, stopped: bool) -> None:
    """Keeps one rank's end on its node, in one JSON line."""
    flag = "true" if stopped else "false"
    line = f'{{"rank": {rank}, "status": {status}, "stopped": {flag}, "time": {time.time():.3f}}}\n'
    write_log(fd, line.encode())
