"""The files of one dataset on this node, of their final size from the beginning, and which parts they hold.

A part counts once its line is in the journal, ``ID.parts``. What a killed staging left is read again: part by
part it counts where its content still has the digest of the journal.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
from collections.abc import Iterator, Sequence

from launch.remote.base.files import replace_file
from launch.remote.data import cache, faults
from launch.remote.data.faults import FetchError
from launch.remote.data.parts import File, Part, cut
from launch.remote.store.removal import remove_file
from launch.remote.store.store import Store

__all__ = ["PartFiles", "PartWriter"]

_PIECE = 1 << 20
_DIGITS = 18
_MODE, _FOLDER_MODE = 0o644, 0o755
_WHOLE_MODE, _WHOLE_FOLDER_MODE = 0o444, 0o555
"""Whole data are not to be changed: a job that wrote into its input would change that of all later jobs."""


class PartFiles:
    """A dataset's files below the node's cache; ``digests`` has the parts that are here."""

    def __init__(self, store: Store, name: str, url: str, files: Sequence[File], *, is_cut: bool) -> None:
        self.name, self.files = name, files
        self.parts: list[Part] = cut(files, is_cut=is_cut)
        self.digests: dict[int, str] = {}
        self.is_whole = False
        self._store, self._url = store, url
        self._folder = store.path(name)

    @property
    def missing(self) -> int:
        """Bytes that are not here."""
        return sum(part.size for number, part in enumerate(self.parts) if number not in self.digests)

    def find(self) -> None:
        """Find out which parts are here."""
        facts = cache.read_manifest(self._store, self.name)
        if facts is not None and self._store.has(self.name):
            self._find_whole(facts["digests"])
            return
        if facts is None:
            with _disk_errors():  # what a job has made of it would be in the way of a new one
                remove_file(self._store.path(self.name) + ".manifest")
        self._find_parts()

    def _find_whole(self, listed: list[str]) -> None:
        if len(listed) != len(self.parts):  # the server serves ranges now, or does not any more
            listed = [self._digest(number) for number in range(len(self.parts))]
        here = [self._size(number) == file.size for number, file in enumerate(self.files)]
        for number, part in enumerate(self.parts):
            if all(here[extent.file] for extent in part.extents):
                self.digests[number] = listed[number]
        self.is_whole = all(here)
        if not self.is_whole:
            self._reopen()

    def void(self, number: int) -> None:
        """Let a part be fetched again. Raise :class:`FetchError`."""
        self.digests.pop(number, None)
        if self.is_whole:
            self.is_whole = False
            self._reopen()
            self.prepare()

    def _reopen(self) -> None:
        """Make whole data count part by part again, so that a killed staging does not leave them as whole."""
        with _disk_errors():
            lines = "".join(f"{number} {digest}\n" for number, digest in self.digests.items())
            replace_file(self._store.path(self.name) + ".parts", lines.encode())
            os.unlink(self._store.path(self.name) + ".manifest")

    def _find_parts(self) -> None:
        for number, digest in self._journal():
            if number < len(self.parts) and self._digest(number) == digest:
                self.digests[number] = digest

    def _journal(self) -> Iterator[tuple[int, str]]:
        try:
            with open(self._store.path(self.name) + ".parts", encoding="ascii", errors="replace") as stream:
                lines = stream.read().splitlines()
        except OSError:
            return
        found: dict[int, str] = {}
        for line in lines:  # the last one may be torn
            number, _, digest = line.partition(" ")
            if number.isdecimal() and len(number) <= _DIGITS:
                found[int(number)] = digest
        yield from found.items()

    def prepare(self) -> None:
        """Make every folder and every file, of its final size. Raise :class:`FetchError`."""
        with _disk_errors():
            self._make_folders()
            for number, file in enumerate(self.files):
                path, size = self._path(number), self._size(number)
                if size >= 0:
                    os.chmod(path, _MODE)
                if size != file.size:
                    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, _MODE), "wb") as stream:
                        stream.truncate(file.size)

    def _make_folders(self) -> None:
        for folder in self._folders():
            os.makedirs(folder, exist_ok=True)
            os.chmod(folder, _FOLDER_MODE)

    def _folders(self) -> list[str]:
        """Return the folders of all files, parents first."""
        found = {self._folder}
        for file in self.files:
            names = file.path.split("/")[:-1]
            found.update(os.path.join(self._folder, *names[:depth]) for depth in range(1, len(names) + 1))
        return sorted(found)

    def read(self, number: int) -> Iterator[bytes]:
        """Yield the content of a part in pieces. Raise OSError."""
        for extent in self.parts[number].extents:
            with open(self._path(extent.file), "rb", buffering=0) as stream:
                stream.seek(extent.start)
                left = extent.size
                while left:
                    data = stream.read(min(_PIECE, left))
                    if not data:
                        raise EOFError(f"{self._path(extent.file)} was cut")
                    left -= len(data)
                    yield data

    def writer(self, number: int) -> PartWriter:
        """Return what takes the bytes of a part in their order."""
        part = self.parts[number]
        return PartWriter([(self._path(extent.file), extent.start, extent.size) for extent in part.extents])

    def keep(self, number: int, digest: str) -> bool:
        """Count a part as here; return whether that makes the dataset whole. Raise :class:`FetchError`."""
        with _disk_errors():
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            with open(
                os.open(self._store.path(self.name) + ".parts", flags, 0o600), "wb", buffering=0
            ) as log:
                log.write(f"{number} {digest}\n".encode())
        self.digests[number] = digest
        return len(self.digests) == len(self.parts)

    def finish(self) -> None:
        """Make the dataset whole. Raise :class:`FetchError`."""
        with _disk_errors():
            for number in range(len(self.files)):
                os.chmod(self._path(number), _WHOLE_MODE)
            for folder in self._folders():
                os.chmod(folder, _WHOLE_FOLDER_MODE)
            cache.sync_data(self._store)  # the manifest must not outlive what it counts as whole
            digests = [self.digests[number] for number in range(len(self.parts))]
            size = sum(file.size for file in self.files)
            cache.write_manifest(self._store, self.name, self._url, len(self.files), size, digests)
        self.is_whole = True

    def _path(self, number: int) -> str:
        return os.path.join(self._folder, self.files[number].path)

    def _size(self, number: int) -> int:
        try:
            return os.stat(self._path(number)).st_size
        except OSError:
            return -1

    def _digest(self, number: int) -> str:
        digest = hashlib.sha256()
        try:
            for data in self.read(number):
                digest.update(data)
        except (OSError, EOFError):
            return ""
        return digest.hexdigest()


class PartWriter:
    """Writes a part where it belongs, and takes its digest."""

    def __init__(self, places: Sequence[tuple[str, int, int]]) -> None:
        """``places`` are the part's ranges: path, start and size."""
        self._places = list(reversed(places))
        self._digest = hashlib.sha256()
        self._file = -1
        self._at = self._left = 0

    def write(self, data: memoryview) -> None:
        """Write the next bytes. Raise :class:`FetchError` of the disk."""
        self._digest.update(data)
        with _disk_errors():
            while data:
                if not self._left:
                    self._next()
                count = os.pwrite(self._file, data[: self._left], self._at)
                self._at += count
                self._left -= count
                data = data[count:]

    def _next(self) -> None:
        self.close()
        path, self._at, self._left = self._places.pop()
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, _MODE)

    def digest(self) -> str:
        """Return the SHA-256 of what was written."""
        return self._digest.hexdigest()

    def close(self) -> None:
        """Close the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


@contextlib.contextmanager
def _disk_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        why = "its disk is full" if error.errno == errno.ENOSPC else f"its disk: {error}"
        raise FetchError(faults.DISK, f"{why}; `fab data.prune` removes what no job uses") from None
