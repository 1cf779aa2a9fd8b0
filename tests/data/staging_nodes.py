"""Rehearsed nodes with storage, on which the tests of this folder stage data as users do."""

from __future__ import annotations

import hashlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from azure.storage.blob import ContainerClient

from tests.e2e.workplace import LIMIT_S, Ran, Workplace

__all__ = ["MB", "Nodes", "commands_with", "end_of", "files_with", "kill_group", "wait_until"]

MB = 1_000_000
_STAGED = re.compile(r"^~/\.ranklift/data/([0-9a-f]{16})", re.MULTILINE)


def wait_until(is_so: Callable[[], bool], limit: float = 120.0) -> None:
    until = time.monotonic() + limit
    while not is_so():
        assert time.monotonic() < until, "it did not come to pass"
        time.sleep(0.3)


class Nodes:
    """A stack that is up, and the container ``data`` of its storage."""

    def __init__(self, workplace: Workplace, container: ContainerClient) -> None:
        self.workplace, self.container = workplace, container
        self.fab = workplace.fab

    def put(self, name: str, count: int = 24, size: int = MB) -> dict[str, str]:
        """Have ``count`` files in storage below ``name``; return the SHA-256 of each."""
        made = {}
        for number in range(count):
            content = os.urandom(size)
            self.container.upload_blob(f"{name}/{number:02}.bin", content, overwrite=True)
            made[f"{number:02}.bin"] = hashlib.sha256(content).hexdigest()
        return made

    def held(self, path: str, nodes: str = "all") -> dict[str, dict[str, str]]:
        """By node, the SHA-256 of the files that it holds below a path."""
        line = f"cd {path} && find . -type f -print0 | sort -z | xargs -0r sha256sum"
        found = self.fab("exec", line, "--nodes", nodes, "--json").json()
        return {
            node: {
                name: digest
                for digest, name in re.findall(r"^\\?([0-9a-f]{64})  \./(.*)$", one["stdout"], re.MULTILINE)
            }
            for node, one in found.items()
        }

    def stage(self, *words: str, status: int | None = 0) -> Ran:
        return self.fab("data.stage", *words, status=status)

    def on(self, node: int, line: str, status: int | None = 0) -> str:
        """What a shell line prints on a node."""
        return self.fab("exec", line, "--nodes", str(node), status=status).out

    def kill(self, node: int, pattern: str, *, is_there: bool = True) -> None:
        """End processes of a node whose command line has what ``pattern`` matches, by SIGKILL.

        The pattern has to match its own text not: ``[s]tage``. Without ``is_there`` they may have ended.
        """
        if is_there:
            self.on(node, f"pgrep -f '{pattern}'")
        self.on(node, f"pkill -KILL -f '{pattern}'", status=None)

    def left_storage(self) -> int:
        """Bytes that have left storage since the rehearsal began."""
        (traffic,) = self.fab("rehearsal.status", "--json").json()["storage"].values()
        return int(traffic["bytes_out"])

    def stagings(self) -> int:
        """Number of the nodes' processes that stage."""
        found = self.fab("exec", "pgrep -fc '[s]tage_node|__main__.py [s]tage' || true", "--json").json()
        return sum(int(one["stdout"]) for one in found.values())

    @contextmanager
    def slow_storage(self) -> Iterator[None]:
        """Storage over a link of 2 MB a second."""
        self.fab("rehearsal.fault", "storage-slow", "--rate", "2")
        try:
            yield
        finally:
            self.fab("rehearsal.fault", "clear")

    @contextmanager
    def staging(self, name: str, *words: str) -> Iterator[subprocess.Popen[str]]:
        """A staging that has brought a few MB, over a slow link to storage."""
        before = self.left_storage()
        with self.slow_storage(), self.workplace.begin("data.stage", name, *words) as process:
            wait_until(lambda: self.left_storage() - before > 4 * MB or process.poll() is not None)
            assert process.poll() is None, process.stdout and process.stdout.read()
            yield process

    def check_all_hold(self, name: str, made: dict[str, str], nodes: str = "all") -> None:
        """Stage once more, at the full rate; every node has every byte then."""
        path = self.stage(name, "--nodes", nodes).out.strip()
        assert _STAGED.match(path), path
        found = self.held(path, nodes)
        assert found
        assert all(one == made for one in found.values()), {node: len(one) for node, one in found.items()}


def end_of(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Exit status and all output of a command, once it has ended."""
    out, _ = process.communicate(timeout=LIMIT_S)
    return process.returncode, out


def kill_group(process: subprocess.Popen[str]) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def files_with(secret: bytes, folder: Path) -> list[Path]:
    """Return the files below a folder that hold a secret."""
    found = []
    for path in folder.rglob("*"):
        try:
            if path.is_file() and not path.is_symlink() and secret in path.read_bytes():
                found.append(path)
        except OSError:
            continue
    return found


def commands_with(secret: bytes) -> list[Path]:
    """Return the processes of this machine, those of nodes among them, with a secret on the command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if secret in path.read_bytes():
                found.append(path)
        except OSError:
            continue
    return found
