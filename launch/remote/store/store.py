"""A node's store: snapshots of pushed code in ``~/.ranklift/snapshots/<id>/``, environments of jobs in
``~/.ranklift/environments/<id>/``, each made whole or not at all.

A snapshot is described by its manifest, one JSON array of ``["f", path, sha256, size, executable]`` and
``["l", path, target]``; its id is the beginning of the manifest's SHA-256. An environment has a manifest too,
with ``["d", path]`` for empty folders, and an id that its head gave it. Contents travel as *blobs*: the
distinct, non-empty file contents in the order of the manifest, one after the other with nothing between them.
A receiver that knows the manifest can therefore cut the stream, skip what it has and check the rest.

Contents that a node already has come from its older snapshots: read, checked, and shared or copied
(:mod:`launch.remote.store.stored_file`). Jobs work in copies of their own
(:mod:`launch.remote.node.work_dir`).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import stat
import time
from collections.abc import Iterable, Iterator

from launch.remote.base.files import MANIFEST_BYTES, read_regular, replace_file
from launch.remote.node.slots import open_lock
from launch.remote.store.manifest import ID_DIGITS, Manifest
from launch.remote.store.removal import is_unknown, is_worked_in, remove, unfinished_jobs, unload
from launch.remote.store.stored_file import StoredFile, contents_of, digest_of
from launch.remote.store.unfinished import is_abandoned

__all__ = [
    "DATA",
    "ENVIRONMENTS",
    "KEEP",
    "SNAPSHOTS",
    "Store",
    "try_flock",
]

SNAPSHOTS, ENVIRONMENTS, DATA = "snapshots", "environments", "data"
KEEP = 5
"""Number of snapshots kept on a node beside those that a job still uses."""
_KEPT = {SNAPSHOTS: KEEP, ENVIRONMENTS: 3}

_ABANDONED_S = 86400.0
_PIECE = 256 * 1024
_WRITABLE = 0o222
_PARTS = ("", ".manifest", ".made")
"""Suffixes of what is removed with a snapshot."""


class Store:
    """The snapshots, or what else ``kind`` names, of one node under ``root`` (default ``~/.ranklift``)."""

    def __init__(self, root: str | None = None, kind: str = SNAPSHOTS) -> None:
        self.root = root or os.path.join(os.path.expanduser("~"), ".ranklift")
        self.kind = kind
        self.folder = os.path.join(self.root, kind)
        os.makedirs(self.root, mode=0o700, exist_ok=True)
        os.makedirs(self.folder, exist_ok=True)

    def path(self, snapshot: str) -> str:
        """Return the path of a snapshot, whether it exists or not."""
        return os.path.join(self.folder, snapshot)

    def has(self, snapshot: str) -> bool:
        """Return whether a snapshot exists as a whole; a folder without a manifest may be half of one.

        The manifest is not read: :meth:`manifest` does."""
        try:
            found = os.lstat(self.path(snapshot) + ".manifest")
        except OSError:
            return False
        is_manifest = stat.S_ISREG(found.st_mode) and found.st_size <= MANIFEST_BYTES
        return is_manifest and os.path.isdir(self.path(snapshot))

    def holds(self, manifest: Manifest) -> bool:
        """Return whether the snapshot exists, made of this manifest."""
        try:
            return self.has(manifest.id) and self.text(manifest.id) == manifest.text
        except OSError:
            return False

    def text(self, snapshot: str) -> bytes:
        """Return the text of a snapshot's manifest. Raise OSError, also for what is no regular file."""
        return read_regular(self.path(snapshot) + ".manifest", MANIFEST_BYTES)

    def manifest(self, snapshot: str) -> Manifest | None:
        """Return the manifest of a whole snapshot; None where what bears its name is none: a job can write
        anything there."""
        try:
            found = Manifest(self.text(snapshot), "" if self.kind == SNAPSHOTS else snapshot)
        except (OSError, ValueError):
            return None
        return found if found.id == snapshot and self.has(snapshot) else None

    def intact(self, manifest: Manifest) -> bool:
        """Return whether a snapshot exists and nothing has changed or was added since the push; read it."""
        if not self.holds(manifest):
            return False
        base = os.fsencode(self.path(manifest.id))
        try:
            for path, sha, size, executable in manifest.files:
                full = os.path.join(base, path)
                if digest_of(full, size) != sha or bool(os.stat(full).st_mode & 0o100) != executable:
                    return False
            if any(os.readlink(os.path.join(base, path)) != target for path, target in manifest.links):
                return False
            found = {os.path.relpath(path, base) for path in _files_below(base)}
        except OSError:
            return False
        return found == {entry[0] for entry in (*manifest.files, *manifest.links)}

    def known(self) -> list[str]:
        """Return the ids of the whole snapshots, the most recently pushed first."""
        found = []
        for name in os.listdir(self.folder):
            if len(name) >= ID_DIGITS and "." not in name and self.has(name):
                try:
                    found.append((os.lstat(self.path(name) + ".manifest").st_mtime_ns, name))
                except OSError:
                    continue
        return [name for _, name in sorted(found, reverse=True)]

    def is_sealed(self, snapshot: str) -> bool:
        """Return whether :meth:`seal` has ended for a snapshot. Raise OSError."""
        return not os.stat(self.path(snapshot)).st_mode & _WRITABLE

    def seal(self, snapshot: str) -> None:
        """Make a snapshot's folders read-only, its own last: what a job would install into it, other jobs
        would get. Raise OSError."""
        if self.is_sealed(snapshot):
            return
        for folder, _, _ in os.walk(os.fsencode(self.path(snapshot)), topdown=False, onerror=_raise):
            os.chmod(folder, stat.S_IMODE(os.stat(folder).st_mode) & ~_WRITABLE)

    def touch(self, snapshot: str) -> None:
        """Mark a snapshot as just pushed, which keeps it from being pruned."""
        with contextlib.suppress(OSError):
            os.utime(self.path(snapshot) + ".manifest")

    def candidates(self, wanted: Iterable[str]) -> dict[str, list[StoredFile]]:
        """Return files of whole snapshots, by SHA-256, that should hold the wanted contents; unchecked."""
        missing = set(wanted)
        found: dict[str, list[StoredFile]] = {}
        for name in self.known():
            manifest = self.manifest(name)
            base = os.fsencode(self.path(name))
            for path, sha, _, executable in manifest.files if manifest is not None else ():
                if sha in missing:
                    found.setdefault(sha, []).append(StoredFile(os.path.join(base, path), executable))
        return found

    def lacking(self, manifest: Manifest) -> list[int]:
        """Return the numbers of the manifest's blobs that are nowhere on this node; read what should hold
        them."""
        found = self.candidates(sha for sha, _ in manifest.blobs)
        return [
            number
            for number, (sha, size) in enumerate(manifest.blobs)
            if not any(digest_of(file.path, size) == sha for file in found.get(sha, ()))
        ]

    def contents(self, manifest: Manifest, order: Iterable[int]) -> Iterator[bytes]:
        """Yield the blobs of a whole snapshot in pieces of about 256 KiB. Raise ValueError when a file has
        changed since the push: no node may receive the change."""
        from hashlib import sha256

        base = os.fsencode(self.path(manifest.id))
        pieces: list[bytes] = []
        gathered = 0
        for number in order:
            sha, size = manifest.blobs[number]
            left = size
            path = manifest.places[sha][0][0]
            digest = sha256()
            try:
                for data in contents_of(os.path.join(base, path), size, digest):
                    left -= len(data)
                    if left < 0:
                        break
                    pieces.append(data)
                    gathered += len(data)
                    if gathered >= _PIECE:
                        yield b"".join(pieces)
                        pieces, gathered = [], 0
            except OSError:
                left = -1
            if left or digest.hexdigest() != sha:
                remedy = (
                    "push with --verify" if self.kind == SNAPSHOTS else f"fab environment.rm {manifest.id}"
                )
                raise ValueError(f"a job changed the head's copy of {os.fsdecode(path)}; {remedy}")
        yield b"".join(pieces)

    def doubt(self, snapshots: Iterable[str]) -> None:
        """Have the next push ask every node whether it holds the snapshots."""
        for name in snapshots:
            if os.path.exists(self.path(name) + ".nodes"):
                replace_file(self.path(name) + ".nodes", b'{"code": "", "nodes": []}')

    def confirmed(self, snapshot: str, code: str) -> list[str]:
        """Return the nodes that reported to this head to hold the snapshot and the modules ``code``."""
        try:
            known = json.loads(read_regular(self.path(snapshot) + ".nodes", MANIFEST_BYTES))
            return [str(node) for node in known["nodes"]] if known["code"] == code else []
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return []

    def forget(self, snapshots: Iterable[str]) -> None:
        """Undo :meth:`confirm`: this head does not need the snapshots any more."""
        for name in snapshots:
            with contextlib.suppress(OSError):
                os.unlink(self.path(name) + ".nodes")

    def confirm(self, snapshot: str, code: str, nodes: Iterable[str]) -> None:
        """Add nodes to :meth:`confirmed`."""
        with open(open_lock(os.path.join(self.folder, ".lock")), "wb", buffering=0) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            both = sorted(set(self.confirmed(snapshot, code)).union(nodes))
            confirmed = {"code": code, "nodes": both}
            replace_file(self.path(snapshot) + ".nodes", json.dumps(confirmed).encode())

    def owe(self, snapshot: str, head: str) -> None:
        """Write a note that ``head`` relies on this node to hold the snapshot."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with contextlib.suppress(OSError):
            os.close(os.open(self._note(snapshot, head), flags, 0o600))

    def _note(self, snapshot: str, head: str) -> str:
        return f"{self.path(snapshot)}.of-{head}"

    def relied_on(self) -> list[str]:
        """Return the snapshots that this node has spread and relies on other nodes to hold."""
        return [entry[: -len(".nodes")] for entry in os.listdir(self.folder) if entry.endswith(".nodes")]

    def superfluous(self, current: str) -> list[str]:
        """Return spread snapshots beyond the newest ones that no unfinished job needs."""
        old = [name for name in self.known() if name != current][_KEPT[self.kind] - 1 :]
        if not old:
            return []
        in_jobs = "\n".join(unfinished_jobs(self.root).values())
        spread = (name for name in old if os.path.exists(self.path(name) + ".nodes"))
        return [name for name in spread if name not in in_jobs and not self.is_held(name)]

    def prune(self, snapshots: Iterable[str], head: str, kept: Iterable[str]) -> None:
        """Remove, in the background, the snapshots that ``head`` does not need any more, and old debris.

        ``kept`` are all snapshots that ``head`` relies on other nodes to hold: a head that was replaced under
        its name does not know what it spread before. Snapshots stay that another head has spread or that a
        process of this node works in. A head's note expires once it is a day old and the head's name does not
        resolve: nodes reach each other by name alone. A younger note may belong to a push that is under way.
        """
        gone = []
        for name in sorted(set(snapshots).union(self._void(set(snapshots), head, set(kept)))):
            owners = (entry for entry in os.listdir(self.folder) if entry.startswith(name + "."))
            if any(entry == f"{name}.nodes" or entry.startswith(f"{name}.of-") for entry in owners):
                continue
            if self.has(name) and self.discard(name):
                gone.append(name)
        if self.kind == ENVIRONMENTS and gone:
            unload(gone)
        trash = self.trash()
        if trash:
            remove(trash)

    def trash(self) -> list[str]:
        """Return what was moved aside, and the folders that killed processes have left."""
        found = [(name, os.path.join(self.folder, name)) for name in os.listdir(self.folder)]
        return [
            path
            for name, path in found
            if name.startswith(".gone-") or is_abandoned(name, _age(path) > _ABANDONED_S)
        ]

    def aside(self) -> str:
        """Return a new path in the :meth:`trash`."""
        return os.path.join(self.folder, f".gone-{os.urandom(8).hex()}")

    def discard(self, snapshot: str) -> bool:
        """Move a whole snapshot to the :meth:`trash`, unless a process uses it; return whether none does."""
        with self.unused(snapshot) as is_unused:
            if is_unused and not is_worked_in(self.path(snapshot)):
                aside = self.aside()
                for suffix in _PARTS:
                    with contextlib.suppress(FileNotFoundError):
                        os.rename(self.path(snapshot) + suffix, aside + suffix)
                return True
        return False

    def is_held(self, snapshot: str) -> bool:
        """Return whether a process of this node keeps a snapshot by :func:`launch.remote.base.files.hold`."""
        with self.unused(snapshot) as is_unused:
            return not is_unused

    @contextlib.contextmanager
    def unused(self, snapshot: str) -> Iterator[bool]:
        """Keep a snapshot from being held; yield False where a process holds it already."""
        try:
            # NFS locks exclusively what is open for writing alone (man 2 flock).
            flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            manifest = os.open(self.path(snapshot) + ".manifest", flags)
        except OSError as error:  # a job may have made it unwritable, while another holds it
            # Of what is no file, nothing can be held.
            yield error.errno in (errno.ENOENT, errno.EISDIR, errno.ELOOP, errno.ENXIO)
            return
        with try_flock(manifest) as is_unused:
            yield is_unused

    def _void(self, dropped: set[str], head: str, kept: set[str]) -> set[str]:
        """Remove notes that expired or that ``head`` does not need; return their snapshots."""
        void, gone = set(), {head: False}
        for entry in os.listdir(self.folder):
            name, _, owner = entry.partition(".of-")
            is_old = owner and _age(os.path.join(self.folder, entry)) > _ABANDONED_S
            if is_old and owner not in gone:
                gone[owner] = is_unknown(owner)
            is_unwanted = owner == head and (name in dropped or (is_old and name not in kept))
            if is_unwanted or (is_old and gone[owner]):
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(self.folder, entry))
                void.add(name)
        return void


@contextlib.contextmanager
def try_flock(descriptor: int) -> Iterator[bool]:
    """Lock a file unless another process has; yield whether it is locked now. Closes the descriptor."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_locked = True
    except BlockingIOError:
        is_locked = False
    try:
        yield is_locked
    finally:
        os.close(descriptor)


def _files_below(folder: bytes) -> Iterator[bytes]:
    """Yield whatever is no folder below a folder. Raise OSError."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _files_below(entry.path)
            else:
                yield entry.path


def _raise(error: OSError) -> None:
    raise error


def _age(path: str) -> float:
    try:
        return time.time() - os.stat(path).st_mtime
    except OSError:
        return 0.0
