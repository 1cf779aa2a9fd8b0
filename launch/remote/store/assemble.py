"""The assembly of one snapshot on a node, from older snapshots and from a stream that nodes share."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, TypeVar

from launch.remote.base import messages
from launch.remote.base.files import replace_file, write_all
from launch.remote.store import unfinished
from launch.remote.store.manifest import Manifest
from launch.remote.store.store import Store
from launch.remote.store.stored_file import CHUNK, Sharing, StoredFile, contents_of, digest_of

__all__ = ["Builder", "Share"]

_Result = TypeVar("_Result")


class Builder:
    """Builder of one snapshot, which gets its name once it is whole: ``start()``, ``feed()`` with the blobs
    that ``expect()`` announced, ``finish()``; ``abort()`` at any time leaves nothing behind."""

    def __init__(self, store: Store, manifest: Manifest, check: bool, verify: bool) -> None:
        """Make the temporary folder.

        ``check`` hashes the stream, which the head does once for all nodes; ``verify`` replaces a snapshot
        that is there.
        """
        self.store, self.manifest, self._check, self._verify = store, manifest, check, verify
        self.written = 0
        self._folder = tempfile.mkdtemp(prefix=unfinished.prefix(manifest.id), dir=store.folder)
        self._tree = os.path.join(os.fsencode(self._folder), b"tree")
        self._missing: set[str] = set()
        self._inside = -1
        self._order: Iterator[tuple[str, int]] = iter(())
        self._current: tuple[str, int] | None = None
        self._left = 0
        self._hash: Any = None
        self._out = -1

    def start(self) -> list[int]:
        """Make the folders and the files that this node has; return the numbers of the missing blobs."""
        os.mkdir(self._tree)
        self._inside = os.open(self._tree, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._sharing = Sharing(self._inside)
        for folder in self.manifest.folders():
            os.mkdir(os.path.join(self._tree, folder))
        found = self.store.candidates(sha for sha, _ in self.manifest.blobs)
        lacking = []
        for number, (sha, size) in enumerate(self.manifest.blobs):
            if not self._reuse(found.get(sha, ()), sha, size):
                lacking.append(number)
                self._missing.add(sha)
        self._check_disk(sum(self.manifest.blobs[number][1] for number in lacking))
        return lacking

    def _check_disk(self, size: int) -> None:
        """Raise OSError, before anything is written, where the disk has no room for the missing contents."""
        found = os.statvfs(self._folder)
        free = found.f_bavail * found.f_frsize
        if size > free:
            what = f"{messages.size(size)} are needed, {messages.size(free)} are free"
            raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)}: {what}", self.store.folder)

    def _reuse(self, files: Collection[StoredFile], sha: str, size: int) -> bool:
        """Make the first file of this content from a stored one; return whether one has it."""
        place = self.manifest.places[sha][0]
        new = os.path.join(self._tree, place[0])
        for file in files:
            if self._sharing.share(file, *place):
                if digest_of(new, size) == sha:
                    return True
                os.unlink(new)
            elif self._copy(file.path, sha, size):
                return True
        return False

    def _copy(self, source: bytes, sha: str, size: int) -> bool:
        path, executable = self.manifest.places[sha][0]
        if digest_of(source, size) != sha:
            return False
        digest = hashlib.sha256()
        out = self._sharing.create(path, executable)
        try:
            for data in contents_of(source, size, digest):
                write_all(out, data)
        finally:
            os.close(out)
        if digest.hexdigest() == sha:
            return True
        os.unlink(os.path.join(self._tree, path))
        return False

    def expect(self, order: Iterable[int]) -> None:
        """Set the order of the blobs in the next bytes; blobs not needed here are skipped."""
        self._order = iter([self.manifest.blobs[number] for number in order])
        self._current, self._left = None, 0

    def feed(self, data: bytes | memoryview) -> None:
        """Write the next bytes of the stream, cut anywhere."""
        view = memoryview(data)
        while view:
            if not self._left:
                sha, self._left = self._next()
                if sha in self._missing:
                    self._out = self._sharing.create(*self.manifest.places[sha][0])
                    self._hash = hashlib.sha256() if self._check else None
            part = view[: self._left]
            if self._out >= 0:
                if self._hash is not None:
                    self._hash.update(part)
                write_all(self._out, part)
                self.written += len(part)
            self._left -= len(part)
            view = view[len(part) :]
            if not self._left and self._out >= 0:
                self._end()

    def _next(self) -> tuple[str, int]:
        self._current = next(self._order, None)
        if self._current is None:
            raise ValueError("more file contents arrived than were announced")
        return self._current

    def _end(self) -> None:
        assert self._current is not None  # noqa: S101  (feed() has begun a blob)
        os.close(self._out)
        self._out = -1
        sha = self._current[0]
        if self._hash is not None and self._hash.hexdigest() != sha:
            name = os.fsdecode(self.manifest.places[sha][0][0])
            raise ValueError(f"{name} changed while it was being pushed; push again")
        self._missing.discard(sha)

    def finish(self) -> None:
        """Add links, equal files and empty files, and rename the snapshot to its final name. Raise ValueError
        when contents are missing. Keep an existing snapshot, unless to ``verify``: move it away whole."""
        if self._missing:
            raise ValueError(f"{len(self._missing)} file contents did not arrive; push again")
        with_content = {sha for sha, _ in self.manifest.blobs}
        for sha, places in self.manifest.places.items():
            first = StoredFile(os.path.join(self._tree, places[0][0]), places[0][1])
            if sha not in with_content:
                os.close(self._sharing.create(*places[0]))
            for place in places[1:]:
                if not self._sharing.share(first, *place):
                    new = os.fdopen(self._sharing.create(*place), "wb")
                    with open(first.path, "rb") as source, new as copy:
                        shutil.copyfileobj(source, copy, CHUNK)
        for path, target in self.manifest.links:
            os.symlink(target, os.path.join(self._tree, path))
        if not self._verify and self.store.holds(self.manifest):  # another push was faster; it may be in use
            self.abort()
            return
        final = self.store.path(self.manifest.id)
        if os.path.lexists(final) and (self._verify or not self.store.holds(self.manifest)):
            os.rename(final, self.store.aside())  # its folder may be read-only, which no other folder takes
        if os.path.isdir(final + ".manifest"):  # which no file replaces
            os.rename(final + ".manifest", self.store.aside())
        replace_file(final + ".manifest", self.manifest.text)
        try:
            os.rename(self._tree, final)
        except OSError:
            if not self.store.holds(self.manifest):
                raise
        self.abort()

    def abort(self) -> None:
        """Remove the temporary folder."""
        for fd in (self._out, self._inside):
            if fd >= 0:
                os.close(fd)
        self._out = self._inside = -1
        shutil.rmtree(self._folder, ignore_errors=True)


class Share:
    """This node's own part in a push, whose failure is kept in ``error`` and never stops the relay."""

    def __init__(self, store: Store, manifest: Manifest, *, verify: bool, sealed: bool) -> None:
        """``verify`` as for :class:`Builder`; ``sealed`` makes the folders read-only."""
        self.store, self.manifest, self.verify, self.sealed = store, manifest, verify, sealed
        self.error: str | None = None
        self._builder: Builder | None = None

    def start(self) -> list[int]:
        """Copy what this node has; return the numbers of the missing blobs, none after a failure."""

        def build() -> list[int]:
            store, manifest = self.store, self.manifest
            if store.intact(manifest) if self.verify else store.holds(manifest):
                return []
            self._builder = Builder(store, manifest, check=False, verify=self.verify)
            return self._builder.start()

        return self._attempt(build) or []

    def expect(self, order: Iterable[int]) -> None:
        """Set the order of the blobs in the next bytes."""
        if self._builder is not None:
            self._builder.expect(order)

    def feed(self, data: bytes | memoryview) -> None:
        """Write the next bytes of the stream."""
        if self._builder is not None:
            self._attempt(self._builder.feed, data)

    def finish(self) -> None:
        """Rename the snapshot to its final name."""
        if self._builder is not None:
            self._attempt(self._builder.finish)
        if self.sealed and self.error is None:
            self._attempt(self.store.seal, self.manifest.id)
        self.store.touch(self.manifest.id)

    def abort(self) -> None:
        """Remove the unfinished snapshot."""
        builder, self._builder = self._builder, None
        if builder is not None:
            builder.abort()

    def _attempt(self, step: Callable[..., _Result], *arguments: object) -> _Result | None:
        try:
            return step(*arguments)
        except (OSError, ValueError) as error:
            self.error = str(error)
            self.abort()
            return None
