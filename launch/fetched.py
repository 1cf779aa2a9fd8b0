"""What came back from a job's nodes, put in its place."""

from __future__ import annotations

import contextlib
import json
import shutil
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import IO, Any

from launch.errors import NodeUnreachable
from launch.remote import protocol
from launch.remote.collect import INDEX

__all__ = ["CollectReport", "Fetch", "NodeFiles"]


@dataclass(frozen=True, slots=True)
class NodeFiles:
    """What one node sent."""

    written: int
    kept: int
    """Files that were there already and were left as they are."""
    bytes: int


@dataclass(frozen=True, slots=True)
class CollectReport:
    """Where a job's files are now, and by node what came or why nothing did."""

    folder: Path
    results: Mapping[str, NodeFiles | Exception]

    @property
    def errors(self) -> dict[str, Exception]:
        """The failures alone, by node."""
        return {node: result for node, result in self.results.items() if isinstance(result, Exception)}


class Fetch:
    """Takes the pieces the head sends and unpacks a node's archive once it is whole.

    Each node's files first lie in a temporary one beside the results: the pieces of several nodes come mixed.
    """

    def __init__(self, job: str, into: Path) -> None:
        self._folder = into / job
        self._nodes: list[str] = []
        self._parts: dict[int, IO[bytes]] = {}
        self._results: dict[str, NodeFiles | Exception] = {}
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Fetch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def take(self, kind: bytes, payload: bytes) -> None:
        """One frame of the head's answer."""
        if kind == protocol.JOB:
            records: dict[str, str] = json.loads(payload)
            self._nodes = [node["name"] for node in json.loads(records["job.json"])["nodes"]]
            self._folder.mkdir(parents=True, exist_ok=True)
            for (
                name,
                text,
            ) in records.items():  # the head's own records grow while a job runs: the newest counts
                (self._folder / PurePosixPath(name).name).write_text(text, encoding="utf-8")
        elif kind == protocol.PART:
            index, last = INDEX.unpack_from(payload)
            if last:
                self._end(index, payload[INDEX.size :].decode("utf-8", "replace"))
            else:
                self._part(index).write(payload[INDEX.size :])

    def report(self) -> CollectReport:
        """What came; nodes the head said nothing of are errors."""
        for name in self._nodes:
            if name not in self._results:
                self._results[name] = NodeUnreachable(name, "the head sent nothing of it")
        return CollectReport(self._folder, dict(self._results))

    def _part(self, index: int) -> IO[bytes]:
        if index not in self._parts:
            part = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115  the stack closes it
            self._parts[index] = self._open.enter_context(part)
        return self._parts[index]

    def _end(self, index: int, error: str) -> None:
        name = self._nodes[index]
        part = self._part(index)
        if error:
            self._results[name] = NodeUnreachable(name, error)
        else:
            part.seek(0)
            try:
                self._results[name] = _unpack(part, self._folder, name)
            except (tarfile.TarError, OSError) as problem:
                self._results[name] = problem
        part.close()
        del self._parts[index]


def _unpack(archive: IO[bytes], folder: Path, node: str) -> NodeFiles:
    """Writes regular files and links that stay inside; what is there already stays."""
    written = kept = size = 0
    with tarfile.open(fileobj=archive, mode="r:") as tar:
        for member in tar:
            target = _target(folder, node, member)
            if target is None:
                continue
            if member.isdir():
                target.mkdir(parents=True, exist_ok=True)
                continue
            if target.exists() or target.is_symlink():
                kept += 1
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            size += _write(tar, member, target)
            written += 1
    return NodeFiles(written, kept, size)


def _target(folder: Path, node: str, member: tarfile.TarInfo) -> Path | None:
    """``logs/...`` as they are, since rank numbers are the job's; ``outputs/...`` under the node's name."""
    parts = PurePosixPath(member.name).parts
    if not parts or ".." in parts or parts[0] not in ("logs", "outputs"):
        return None
    if not (member.isfile() or member.isdir() or member.issym() or member.islnk()):
        return None
    return (
        folder.joinpath("logs", *parts[1:])
        if parts[0] == "logs"
        else folder.joinpath("outputs", node, *parts[1:])
    )


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> int:
    try:
        source: Any = None if member.issym() and _leads_out(member) else tar.extractfile(member)
    except KeyError:  # a link to something that is not in the archive
        source = None
    if source is None:
        target.with_name(target.name + ".link").write_text(member.linkname + "\n", encoding="utf-8")
        return 0
    with source, target.open("xb") as file:
        shutil.copyfileobj(source, file)
    return int(member.size)


def _leads_out(member: tarfile.TarInfo) -> bool:
    return PurePosixPath(member.linkname).is_absolute() or ".." in PurePosixPath(member.linkname).parts
