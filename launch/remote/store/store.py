"""A node's store of pushed code: ``~/.ranklift/snapshots/<id>/``, each made whole or not at all.

A snapshot is described by its manifest, one JSON array of ``["f", path, sha256, size, executable]`` and
``["l", path, target]``; its id is the head of the manifest's own SHA-256. Contents travel as *blobs*: the
distinct, non-empty file contents in the order of the manifest, one after the other with nothing between
them. Whoever knows the manifest can therefore cut the stream, skip what it has and check all it takes.

Contents a node already has come from its older snapshots, copied and checked, never linked. Jobs work in
copies of their own (:mod:`launch.remote.node.work_dir`); one that writes over a snapshot all the same, such
as an input's, must not reach into another.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator

from launch.remote.base.whole_file import replace_file

__all__ = ["CHUNK", "KEEP", "Manifest", "Store", "digest_of"]

KEEP = 5
"""Snapshots kept on a node beside those that a job still uses."""

_ID_DIGITS = 16
_ABANDONED_S = 86400.0
CHUNK = 256 * 1024
_FINAL_STATES = ('"SUCCEEDED"', '"FAILED"', '"CANCELLED"', '"LOST"')


class Manifest:
    """What a snapshot holds, read from its JSON text."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        self.id = hashlib.sha256(text).hexdigest()[:_ID_DIGITS]
        self.files: list[tuple[bytes, str, int, bool]] = []
        self.links: list[tuple[bytes, bytes]] = []
        self.blobs: list[tuple[str, int]] = []
        self.places: dict[str, list[tuple[bytes, bool]]] = {}
        for entry in json.loads(text):
            path = _safe(entry[1])
            if entry[0] == "l":
                self.links.append((path, entry[2].encode("utf-8", "surrogateescape")))
                continue
            _, _, sha, size, executable = entry
            self.files.append((path, sha, size, bool(executable)))
            if sha not in self.places:
                self.places[sha] = []
                if size:
                    self.blobs.append((sha, size))
            self.places[sha].append((path, bool(executable)))

    def folders(self) -> list[bytes]:
        """Every folder that must exist, parents first."""
        wanted: set[bytes] = set()
        for path in [entry[0] for entry in self.files] + [link[0] for link in self.links]:
            folder = os.path.dirname(path)
            while folder and folder not in wanted:
                wanted.add(folder)
                folder = os.path.dirname(folder)
        return sorted(wanted)


def _safe(path: str) -> bytes:
    parts = path.split("/")
    if ".." in parts or "" in parts or "." in parts:
        raise ValueError(f"the manifest names a path outside the snapshot: {path!r}")
    return path.encode("utf-8", "surrogateescape")


class Store:
    """The snapshots of one node under ``root`` (default ``~/.ranklift``)."""

    def __init__(self, root: str | None = None) -> None:
        self.root = root or os.path.join(os.path.expanduser("~"), ".ranklift")
        self.folder = os.path.join(self.root, "snapshots")
        os.makedirs(self.root, mode=0o700, exist_ok=True)
        os.makedirs(self.folder, exist_ok=True)

    def path(self, snapshot: str) -> str:
        """Where the snapshot is, or would be."""
        return os.path.join(self.folder, snapshot)

    def has(self, snapshot: str) -> bool:
        """Whether it is there whole: it gets its name only when nothing is missing."""
        return os.path.isdir(self.path(snapshot))

    def intact(self, manifest: Manifest) -> bool:
        """Whether it is there and every file and link still is what was pushed; reads all of it."""
        if not self.has(manifest.id):
            return False
        base = os.fsencode(self.path(manifest.id))
        try:
            for path, sha, _, executable in manifest.files:
                full = os.path.join(base, path)
                if digest_of(full) != sha or bool(os.stat(full).st_mode & 0o100) != executable:
                    return False
            return all(os.readlink(os.path.join(base, path)) == target for path, target in manifest.links)
        except OSError:
            return False

    def known(self) -> list[str]:
        """Ids of the whole snapshots, the most recently pushed first."""
        found = []
        for name in os.listdir(self.folder):
            if len(name) == _ID_DIGITS and "." not in name:
                try:
                    found.append((os.stat(self.path(name) + ".manifest").st_mtime_ns, name))
                except OSError:
                    continue
        return [name for _, name in sorted(found, reverse=True)]

    def touch(self, snapshot: str) -> None:
        """Marks it as just pushed, which keeps it from being pruned."""
        with contextlib.suppress(OSError):
            os.utime(self.path(snapshot) + ".manifest")

    def candidates(self, wanted: Iterable[str]) -> dict[str, list[bytes]]:
        """Files of whole snapshots said to hold the wanted contents; not yet checked."""
        missing = set(wanted)
        found: dict[str, list[bytes]] = {}
        for name in self.known():
            try:
                with open(self.path(name) + ".manifest", "rb") as stream:
                    entries = json.loads(stream.read())
            except (OSError, ValueError):
                continue
            base = os.fsencode(self.path(name))
            for entry in entries:
                if entry[0] == "f" and entry[2] in missing:
                    found.setdefault(entry[2], []).append(os.path.join(base, _safe(entry[1])))
        return found

    def lacking(self, manifest: Manifest) -> list[int]:
        """Numbers of the manifest's blobs that are nowhere on this node."""
        found = self.candidates(sha for sha, _ in manifest.blobs)
        return [
            number
            for number, (sha, _) in enumerate(manifest.blobs)
            if not any(digest_of(place) == sha for place in found.get(sha, ()))
        ]

    def contents(self, manifest: Manifest, order: Iterable[int]) -> Iterator[bytes]:
        """The blobs of a whole snapshot as one stream, in pieces of about :data:`CHUNK`.

        Raises :class:`ValueError` when a file no longer is what was pushed: nobody may take it for that.
        """
        base = os.fsencode(self.path(manifest.id))
        pieces: list[bytes] = []
        gathered = 0
        for number in order:
            sha, left = manifest.blobs[number]
            path = manifest.places[sha][0][0]
            digest = hashlib.sha256()
            with open(os.path.join(base, path), "rb", buffering=0) as stream:
                while left:
                    data = stream.read(min(CHUNK, left))
                    if not data:
                        break
                    digest.update(data)
                    left -= len(data)
                    pieces.append(data)
                    gathered += len(data)
                    if gathered >= CHUNK:
                        yield b"".join(pieces)
                        pieces, gathered = [], 0
            if left or digest.hexdigest() != sha:
                raise ValueError(f"a job changed the head's copy of {os.fsdecode(path)}; push with --verify")
        yield b"".join(pieces)

    def confirmed(self, snapshot: str, code: str) -> list[str]:
        """Nodes that have reported to this one that they hold the snapshot, and these modules as of
        ``code``."""
        try:
            with open(self.path(snapshot) + ".nodes", encoding="utf-8") as stream:
                told = json.load(stream)
            return list(told["nodes"]) if told["code"] == code else []
        except (OSError, ValueError, KeyError, TypeError):
            return []

    def forget(self, snapshots: Iterable[str]) -> None:
        """Takes back :meth:`confirm`: this node, a head, needs them no more."""
        for name in snapshots:
            with contextlib.suppress(OSError):
                os.unlink(self.path(name) + ".nodes")

    def confirm(self, snapshot: str, code: str, nodes: Iterable[str]) -> None:
        """Adds to :meth:`confirmed`."""
        with open(os.path.join(self.folder, ".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            both = sorted(set(self.confirmed(snapshot, code)).union(nodes))
            told = {"code": code, "nodes": both}
            replace_file(self.path(snapshot) + ".nodes", json.dumps(told).encode())

    def owe(self, snapshot: str, head: str) -> None:
        """Notes that ``head`` counts on this node to hold the snapshot."""
        with contextlib.suppress(OSError), open(self._note(snapshot, head), "wb"):
            pass

    def _note(self, snapshot: str, head: str) -> str:
        return f"{self.path(snapshot)}.of-{head}"

    def relied_on(self) -> list[str]:
        """Snapshots that this node has spread and counts on other nodes to hold."""
        return [entry[: -len(".nodes")] for entry in os.listdir(self.folder) if entry.endswith(".nodes")]

    def superfluous(self, current: str) -> list[str]:
        """Snapshots this node has spread, beyond the newest :data:`KEEP`, that no unfinished job needs."""
        old = [name for name in self.known() if name != current][KEEP - 1 :]
        if not old:
            return []
        in_jobs = "\n".join(_unfinished_jobs(os.path.join(self.root, "jobs")))
        return [name for name in old if os.path.exists(self.path(name) + ".nodes") and name not in in_jobs]

    def prune(self, snapshots: Iterable[str], head: str, kept: Iterable[str]) -> None:
        """Removes, in the background, what ``head`` needs no more; old debris as well.

        ``kept`` is all that ``head`` counts on other nodes to hold: one that was replaced under its name has
        forgotten what it spread before. What another head has spread stays, for that head's jobs, and what a
        process of this node works in. Notes of a head count no longer once they are a day old and its name
        leads nowhere: nodes reach each other by name alone. Younger ones may be of a push that is under way.
        """
        trash = []
        for name in sorted(set(snapshots).union(self._void(set(snapshots), head, set(kept)))):
            owners = (entry for entry in os.listdir(self.folder) if entry.startswith(name + "."))
            if any(entry == f"{name}.nodes" or entry.startswith(f"{name}.of-") for entry in owners):
                continue
            if self.has(name) and not _worked_in(self.path(name)):
                aside = tempfile.mkdtemp(prefix=".gone-", dir=self.folder)
                for suffix in ("", ".manifest"):
                    try:
                        os.rename(self.path(name) + suffix, os.path.join(aside, name + suffix))
                    except OSError:
                        continue
        for name in os.listdir(self.folder):
            full = os.path.join(self.folder, name)
            if name.startswith(".gone-") or (name.startswith(".new-") and _age(full) > _ABANDONED_S):
                trash.append(full)
        if trash:
            subprocess.Popen(
                ["rm", "-rf", "--", *trash],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    def _void(self, dropped: set[str], head: str, kept: set[str]) -> set[str]:
        """Removes the notes that count no longer; gives their snapshots."""
        void, gone = set(), {head: False}
        for entry in os.listdir(self.folder):
            name, _, owner = entry.partition(".of-")
            is_old = owner and _age(os.path.join(self.folder, entry)) > _ABANDONED_S
            if is_old and owner not in gone:
                gone[owner] = _is_gone(owner)
            is_unwanted = owner == head and (name in dropped or (is_old and name not in kept))
            if is_unwanted or (is_old and gone[owner]):
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(self.folder, entry))
                void.add(name)
        return void


def _is_gone(head: str) -> bool:
    """Whether there is no node of that name any more; not so while that cannot be found out."""
    try:
        socket.getaddrinfo(head, None)
    except socket.gaierror as error:
        return error.errno in (socket.EAI_NONAME, socket.EAI_NODATA)
    except OSError:
        return False
    return False


def digest_of(path: bytes) -> str | None:
    """SHA-256 of a file's content; ``None`` when it cannot be read."""
    try:
        digest = hashlib.sha256()
        with open(path, "rb", buffering=0) as stream:
            for data in iter(lambda: stream.read(CHUNK), b""):
                digest.update(data)
        return digest.hexdigest()
    except OSError:
        return None


def _age(path: str) -> float:
    try:
        return time.time() - os.stat(path).st_mtime
    except OSError:
        return 0.0


def _unfinished_jobs(folder: str) -> Iterator[str]:
    """The job.json texts of jobs whose state is not final; a snapshot's id in one means it is in use."""
    try:
        jobs = os.listdir(folder)
    except OSError:
        return
    for job in jobs:
        if not any(word in _text(os.path.join(folder, job, "state.json")) for word in _FINAL_STATES):
            yield _text(os.path.join(folder, job, "job.json"))


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""


def _worked_in(folder: str) -> bool:
    inside = os.path.realpath(folder)
    for process in os.listdir("/proc"):
        if process.isdigit():
            try:
                if (os.readlink(f"/proc/{process}/cwd") + "/").startswith(inside + "/"):
                    return True
            except OSError:
                continue
    return False
