"""A node's side of a job: its folder, its slots, and the environment and arguments of each rank."""

from __future__ import annotations

import fcntl
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

__all__ = [
    "SlotsTaken",
    "environment",
    "expand",
    "full",
    "open_log",
    "prepare",
    "take_slots",
    "write_exit",
    "write_log",
]

_MISSING_SNAPSHOT = "the pushed code {cwd} is not on this node: push again"


class SlotsTaken(Exception):
    """Another job holds some of the slots that this one was given."""

    def __init__(self, slots: list[int], holders: list[str]) -> None:
        self.slots, self.holders = slots, holders
        super().__init__(f"slots {slots} are held by {', '.join(holders)}")


def full(path: str) -> str:
    """The path with ``~`` replaced by this node's home folder."""
    return os.environ.get("HOME", "/") + path[1:] if path.startswith("~") else path


def prepare(spec: Mapping[str, Any]) -> str:
    """Makes the job's folder on this node and gives its path.

    ``outputs`` in the working directory, where scripts written for Azure ML put their results, leads to
    the job's outputs unless the pushed code has something of that name; of two jobs that run from one
    snapshot at once the later one owns it, so such scripts use ``RANKLIFT_OUTPUT_DIR``.

    Raises FileNotFoundError when the snapshot is not on this node.
    """
    folder, cwd = full(spec["folder"]), full(spec["cwd"])
    if not os.path.isdir(cwd):
        raise FileNotFoundError(_MISSING_SNAPSHOT.format(cwd=cwd))
    for path in (folder + "/logs", folder + "/outputs"):
        os.makedirs(path, mode=0o700, exist_ok=True)
    if spec["hostfile"]:
        _replace(folder + "/hostfile", spec["hostfile"])
    link = cwd + "/outputs"
    if os.path.islink(link) or not os.path.exists(link):
        temporary = f"{link}.{os.getpid()}"
        os.symlink(folder + "/outputs", temporary)
        os.rename(temporary, link)
    return folder


def _replace(path: str, text: str) -> None:
    temporary = f"{path}.{os.getpid()}"
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(text)
    os.rename(temporary, path)


def take_slots(spec: Mapping[str, Any]) -> list[int]:
    """Locks this node's slots for the job; they are free again when the descriptors given are closed.

    The kernel frees them however the runner ends. Raises :class:`SlotsTaken`.
    """
    folder = full("~/.ranklift/slots")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    held: list[int] = []
    taken: list[int] = []
    holders: list[str] = []
    for slot in spec["slots"]:
        fd = os.open(f"{folder}/{slot}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            taken.append(slot)
            holder = os.read(fd, 200).decode("utf-8", "replace")
            os.close(fd)
            if holder not in holders:
                holders.append(holder)
            continue
        os.ftruncate(fd, 0)
        os.write(fd, spec["job"].encode())
        held.append(fd)
    if taken:
        for fd in held:
            os.close(fd)
        raise SlotsTaken(taken, holders)
    return held


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
    return env


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


def open_log(folder: str, rank: int) -> int:
    """The log file of a rank, stdout and stderr in the order they came."""
    return os.open(
        f"{folder}/logs/rank-{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600
    )


def write_log(fd: int, data: bytes) -> None:
    """Appends to a log; a full disk loses the log, not the job."""
    try:
        while data:
            data = data[os.write(fd, data) :]
    except OSError:
        return


def write_exit(fd: int, rank: int, status: int, stopped: bool) -> None:
    """Keeps one rank's end on its node, in one JSON line."""
    flag = "true" if stopped else "false"
    line = f'{{"rank": {rank}, "status": {status}, "stopped": {flag}, "time": {time.time():.3f}}}\n'
    write_log(fd, line.encode())
