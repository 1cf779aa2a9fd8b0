"""Folder of a rehearsal in a project, and the record of the running daemon."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import secrets
import shlex
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from launch.errors import GiveUpError, InputError

__all__ = ["Folder", "Record", "replace_file", "short_path", "start_time"]

_LOCK_LIMIT = 1.0
_NO_PROXY = ("no_proxy", "NO_PROXY")
_BACKEND = "backend-named-by-fab-rehearsal.env-"
TOKEN_KEY = "token"  # noqa: S105 - a key's name
"""Key of the operator's token in the record."""


def start_time(pid: int) -> int:
    """Return a process's start in clock ticks after boot: with the pid its identity; 0 when it does not run.

    >>> start_time(os.getpid()) > 0, start_time(2**30)
    (True, 0)
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if stat[0] == "Z" else int(stat[19])


def _without_proxy(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables by which programs use no proxy for this machine, nor for what they name already.

    Programs read one of the two names, and differ in which.

    >>> _without_proxy({"no_proxy": "corp.example, localhost"})["NO_PROXY"]
    'corp.example,localhost,127.0.0.1'
    """
    given = [environment.get(name, "") for name in _NO_PROXY]
    hosts = [host.strip() for text in given for host in text.split(",") if host.strip()]
    named = ",".join(dict.fromkeys([*hosts, "localhost", "127.0.0.1"]))
    return dict.fromkeys(_NO_PROXY, "*" if "*" in hosts else named)


@dataclass(frozen=True, slots=True)
class Record:
    """Content of ``rehearsal.json``."""

    pid: int
    start_time: int
    """By :func:`start_time`: a pid alone may be another process's by now."""
    arm_port: int
    provider_port: int
    subscription_id: str
    nodes_limit: int
    blob_port: int = 0
    """Port of the operator's blob endpoint; 0 without Azurite."""
    blob_certificate: str = ""
    """File of that endpoint's certificate."""
    directory_port: int = 0
    """Port of the token endpoint."""
    tenant_id: str = ""
    """Directory of the application that signs in there."""

    @property
    def alive(self) -> bool:
        """Whether that very process still runs."""
        return start_time(self.pid) == self.start_time != 0


@dataclass(frozen=True, slots=True)
class Folder:
    """Paths of a project's rehearsal."""

    project: Path

    @property
    def root(self) -> Path:
        """Top folder, removed as a whole when the rehearsal stops."""
        return self.project / ".ranklift" / "rehearsal"

    @property
    def disks(self) -> Path:
        """Folder of the nodes' disks."""
        return self.root / "nodes"

    @property
    def backend(self) -> Path:
        """Pulumi's file backend, under another name in each rehearsal.

        Pulumi runs no program to destroy or refresh, so nothing of the project's would notice a shell with
        the variables of an earlier rehearsal: it would hand the stack's secrets to whoever has that one's
        port now. Such a shell finds no backend, and Pulumi prints its name, which has the remedy in it.
        """
        return next(self.root.glob(f"{_BACKEND}*"), self.root / _BACKEND)

    def make(self) -> None:
        """Make the folders of a rehearsal that is about to start; none of them may be there."""
        self.root.mkdir(mode=0o700)
        for place in (self.disks, self.root / f"{_BACKEND}{secrets.token_hex(4)}", self.root / "pulumi-home"):
            place.mkdir()

    @property
    def log(self) -> Path:
        """Log of the daemon."""
        return self.root / "daemon.log"

    @property
    def control(self) -> Path:
        """Control socket of the daemon."""
        return self.root / "control"

    @property
    def application(self) -> Path:
        """File with the variables of the directory's application."""
        return self.root / "application.env"

    @property
    def record_file(self) -> Path:
        """File of the record, which exists while the daemon is ready."""
        return self.root / "rehearsal.json"

    def write_application(self, variables: Mapping[str, str], assertion: str) -> None:
        """Write the variables of a sign-in as the application, for a shell, and its pipeline's token."""
        token = self.root / "oidc-token"
        given = {**variables, "ARM_OIDC_TOKEN_FILE_PATH": str(token)}
        lines = [f"{name}={shlex.quote(value)}\n" for name, value in given.items()]
        replace_file(token, assertion, 0o600)
        replace_file(self.application, "".join(lines), 0o600)

    def record(self) -> Record | None:
        """Return what a daemon wrote, whether or not it still runs."""
        try:
            found = json.loads(self.record_file.read_text())
            return Record(**{name: value for name, value in found.items() if name != TOKEN_KEY})
        except (OSError, ValueError, TypeError, AttributeError, RecursionError):
            return None

    def write_record(self, record: Record, token: str) -> None:
        """Write that the daemon is ready, with the token that its endpoint asks of the operator.

        The token is in this file alone, which only its owner can read; no command shows it.
        """
        replace_file(self.record_file, json.dumps({**asdict(record), TOKEN_KEY: token}), 0o600)

    def environment(self) -> dict[str, str]:
        """Return the variables that make ``pulumi`` and the tasks use the rehearsal.

        Raises :class:`~launch.errors.InputError` when none runs.
        """
        record = self.record()
        if record is None or not record.alive:
            raise InputError("rehearsal", str(self.project), "is not running", "run fab rehearsal.start")
        tools = self.project / ".venv" / "bin"
        path = os.environ.get("PATH", os.defpath).split(os.pathsep)
        first = str(tools if tools.is_dir() else Path(sys.executable).parent)
        return {
            "PULUMI_BACKEND_URL": self.backend.as_uri(),
            "PULUMI_CONFIG_PASSPHRASE": "",
            # Azure's real provider is not needed here; Pulumi would look for it on the internet, five times.
            "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
            "PULUMI_DEBUG_PROVIDERS": f"azure-native:{record.provider_port}",
            "PULUMI_HOME": str(self.root / "pulumi-home"),
            "PULUMI_SKIP_UPDATE_CHECK": "1",
            "RANKLIFT_ARM_ENDPOINT": f"http://127.0.0.1:{record.arm_port}",
            "RANKLIFT_ARM_TOKEN_FILE": str(self.record_file),
            "PATH": os.pathsep.join([first, *(part for part in path if part != first)]),
            **_without_proxy(os.environ),
        }

    def lock(self) -> int | None:
        """Lock the project's rehearsal for this process and those that inherit the descriptor.

        Returns None when another has it. The kernel releases the lock when the last holder ends.
        """
        self.root.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self.root.parent, os.O_RDONLY | os.O_DIRECTORY)
        # Whoever can open the folder can lock it, and so keep a rehearsal from starting.
        os.fchmod(descriptor, 0o700)
        deadline = time.monotonic() + _LOCK_LIMIT  # `locked` holds it for a moment
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    os.close(descriptor)
                    return None
                time.sleep(0.02)
            else:
                return descriptor

    def locked(self) -> bool:
        """Whether a daemon, or a start or stop under way, holds the project's rehearsal."""
        try:
            descriptor = os.open(self.root.parent, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def ask(self, operation: str, **arguments: Any) -> Any:
        """Send one request to the running daemon and return its answer.

        Raises :class:`~launch.errors.GiveUpError` with its refusal, or when it does not answer.
        """
        with socket.socket(socket.AF_UNIX) as line, short_path(self.control) as path:
            line.settimeout(60)
            try:
                line.connect(path)
                line.sendall(json.dumps({"op": operation, **arguments}).encode() + b"\n")
                with line.makefile("rb") as answers:
                    answer = json.loads(answers.readline())
            except (OSError, ValueError) as error:
                raise GiveUpError(f"the rehearsal in {self.project} does not answer: {error}") from error
        if "error" in answer:
            raise GiveUpError(answer["error"])
        return answer["result"]


def replace_file(path: Path, text: str, mode: int = 0o644) -> None:
    """Replace the file in one step: a reader sees the old or the new one, whole."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    # Made with its mode: what is for this user alone is not readable to others for a moment either.
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as file:
        os.fchmod(file.fileno(), mode)
        file.write(text)
    new.replace(path)


@contextmanager
def short_path(path: Path) -> Iterator[str]:
    """Return a name for ``path`` that fits into a socket's address of 107 bytes, however deep it lies."""
    try:
        descriptor = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    except FileNotFoundError:
        raise GiveUpError(f"{path.parent}: {os.strerror(errno.ENOENT)}") from None
    try:
        yield f"/proc/self/fd/{descriptor}/{path.name}"
    finally:
        os.close(descriptor)
