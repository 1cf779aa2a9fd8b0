"""An image's layers as one folder, unpacked by a user without rights.

What the folder keeps of a layer: folders, files with their executable bit, symbolic links as they are. Hard
links stay links here. Owners, setuid and devices do not exist for a user's container; a runtime mounts
``/dev`` and ``/proc``. Links mean the image's own root: no path of a layer leads out of the folder.

Whoever made the image may have made it to fill the disk: what is written is held against the free space and
files of the disk, of which a part stays free for the records of jobs, and no layer may be larger than that.
"""

from __future__ import annotations

import gzip
import os
import shutil
import stat
import subprocess
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from launch.remote.base.messages import size as size_text
from launch.remote.environment.download.tar_entries import MalformedTar, TarEntries
from launch.remote.environment.image_reference import ImageError

__all__ = ["Root"]

_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"
"""Names by which a layer removes an entry, or all entries, of the layers below (OCI image specification)."""
_LINKS = 40
"""Symbolic links after which a path counts as a circle, as in Linux."""
_STEPS, _DEPTH = 2048, 256
"""Names that are looked at to find a folder; folders in each other, which :func:`shutil.rmtree` removes by
recursion."""
_LONGEST_NAME, _LONGEST_PATH = 255, 4095
_ENTRIES = 2_000_000
"""Entries of one layer: their names take some 400 MB of memory. Images of frameworks have some 300,000."""
_LOOKUPS, _LOOKUPS_OF_ENTRY = 300_000, 200
"""Names that the kernel may look up for a layer's folders, and more for each entry. A path of 13 folders that
is walked from the root costs 91; mostly the folder's own path is known."""
_FREE_BYTES, _FREE_FILES, _FREE_SHARE = 1 << 30, 10_000, 20
"""Bytes and files that stay free on the disk, but at most a twentieth of the disk."""
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


class Root:
    """A folder to which layers are applied, the lowest first."""

    def __init__(self, path: str) -> None:
        """Make the folder."""
        self.path = path
        os.mkdir(path)
        disk = os.statvfs(path)
        self._free_bytes = min(_FREE_BYTES, disk.f_blocks * disk.f_frsize // _FREE_SHARE)
        self._free_files = min(_FREE_FILES, disk.f_files // _FREE_SHARE)
        self._most = self._room()
        self._real: dict[str, str] = {}
        """By folder in the image: its path here, without links."""
        self._lookups = 0
        """How many are left to the current layer."""

    def apply(self, layer: str) -> None:
        """Unpack the layer of this path. Raise :class:`ImageError` for one that is damaged, and OSError."""
        own: set[str] = set()
        """What this layer made, which its opaque whiteouts keep."""
        cleared: set[str] = set()
        """Folders in which nothing of the layers below is left, nor comes back."""
        self._lookups = _LOOKUPS
        try:
            with _opened(layer) as stream:
                archive = TarEntries(stream, self._most, _ENTRIES)
                for member in archive:
                    self._room()
                    self._lookups += _LOOKUPS_OF_ENTRY
                    self._add(archive, member, own, cleared)
        except (MalformedTar, EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ImageError(f"{os.path.basename(layer)} is not a layer of an image: {error}") from None

    def folder(self, name: str) -> str:
        """Return the path here of a top folder of the image, which is made where the image has none."""
        return self._folder([name])

    def _room(self) -> int:
        """Return the bytes that may be written. Raise :class:`ImageError` where there is no room."""
        disk = os.statvfs(self.path)
        room = disk.f_bavail * disk.f_frsize - self._free_bytes
        files = disk.f_favail - self._free_files if disk.f_files else 1  # Btrfs has no such number
        if room > 0 and files > 0:
            return room
        free = size_text(self._free_bytes) if room <= 0 else f"room for {self._free_files} files"
        raise ImageError(
            f"unpacking the image: the disk of {os.uname().nodename} is full, of which {free} stays free for "
            f"jobs ({self.path}): remove environments that are not needed (`fab environment.prune`), or take "
            "a size with a larger disk"
        )

    def _add(self, archive: TarEntries, member: tarfile.TarInfo, own: set[str], cleared: set[str]) -> None:
        names = _names(member.name)
        if not names:
            return
        folder = self._folder(names[:-1])
        path = os.path.join(folder, names[-1])
        if names[-1] == _OPAQUE:
            self._clear(folder, own, cleared)
        elif names[-1].startswith(_WHITEOUT):
            self._remove(os.path.join(folder, _plain_name(names[-1][len(_WHITEOUT) :])))
        elif member.isdir():
            if not _is_folder(path):
                self._remove(path)
                os.mkdir(path)
        elif member.isreg():
            self._remove(path)
            self._write(archive, path, 0o755 if member.mode & 0o111 else 0o644)
        elif member.issym():
            if not 0 < len(os.fsencode(member.linkname)) <= _LONGEST_PATH or "\0" in member.linkname:
                raise ImageError(f"a layer of the image has a link to {member.linkname[:80]!r}")
            self._remove(path)
            os.symlink(member.linkname, path)
        elif member.islnk():
            target = _names(member.linkname)
            source = os.path.join(self._folder(target[:-1]), *target[-1:])
            if not os.path.lexists(source) or _is_folder(source):
                raise ImageError(
                    f"a layer of the image links to {member.linkname[:80]!r}, which is not a file"
                )
            if source != path:
                self._remove(path)
                os.link(source, path, follow_symlinks=False)
        while path != self.path and path not in own:
            own.add(path)
            path = os.path.dirname(path)

    def _clear(self, folder: str, own: set[str], cleared: set[str]) -> None:
        """Remove what the layers below have in a folder."""
        if folder in cleared:
            return
        cleared.add(folder)
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            if path not in own:
                self._remove(path)
            elif _is_folder(path):
                self._clear(path, own, cleared)

    def _write(self, archive: TarEntries, path: str, mode: int) -> None:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode), "wb") as out:

            def write(data: bytes) -> None:
                self._room()
                out.write(data)

            archive.copy(write)

    def _folder(self, names: list[str]) -> str:
        """Return the path here of a folder of the image; make it where a layer does not name it."""
        wanted = "/".join(names)
        if wanted not in self._real:
            above = self._real.get("/".join(names[:-1]))
            start, below = (self.path, names) if above is None else (above, names[-1:])
            self._real[wanted] = self._walk(names, start, below)
        return self._real[wanted]

    def _walk(self, names: list[str], here: str, below: list[str]) -> str:
        """Return the path here of the folder ``names``, which is ``below`` in the folder ``here``."""
        rest, links, steps = list(reversed(below)), 0, 0
        while rest:
            name = rest.pop()
            steps += 1
            depth = here.count("/") - self.path.count("/")
            if steps > _STEPS or depth > _DEPTH:
                raise ImageError(f"the image's folder /{'/'.join(names)[:80]} is too deep")
            self._look_up(depth + 1, names)
            if name == "..":
                here = self.path if here == self.path else os.path.dirname(here)
                continue
            path = os.path.join(here, name)
            if os.path.islink(path):
                links += 1
                if links > _LINKS:
                    raise ImageError(f"the image's links at /{'/'.join(names)} lead in a circle")
                target = os.readlink(path)
                self._look_up(target.count("/"), names)
                here = self.path if target.startswith("/") else here
                rest += [part for part in reversed(target.split("/")) if part not in ("", ".")]
                continue
            if not _is_folder(path):
                self._remove(path)
                os.mkdir(path)
            here = path
        return here

    def _look_up(self, count: int, names: list[str]) -> None:
        self._lookups -= count
        if self._lookups < 0:
            raise ImageError(
                "a layer of the image leads through too many folders for its entries, last at "
                f"/{'/'.join(names)[:80]}: build the image without replacing deep folders again and again"
            )

    def _remove(self, path: str) -> None:
        try:
            found = os.lstat(path)
        except FileNotFoundError:
            return
        if stat.S_ISDIR(found.st_mode) or stat.S_ISLNK(found.st_mode):  # the way to a folder may go through
            self._real.clear()
        if stat.S_ISDIR(found.st_mode):
            shutil.rmtree(path)
        else:
            os.unlink(path)


def _names(path: str) -> list[str]:
    names = [name for name in path.split("/") if name not in ("", ".")]
    if "\0" in path or len(os.fsencode(path)) > _LONGEST_PATH:
        raise ImageError(f"a layer of the image has the path {path[:80]!r}, which no file can have")
    if any(len(os.fsencode(name)) > _LONGEST_NAME for name in names):
        raise ImageError(f"a layer of the image has the path {path[:80]!r}, which no file can have")
    if ".." in names:
        raise ImageError(f"a layer of the image has the path {path[:80]!r}, which leads out of it")
    return names


def _plain_name(name: str) -> str:
    if name in ("", ".", ".."):
        raise ImageError(f"a layer of the image removes {name!r}")
    return name


def _is_folder(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)


@contextmanager
def _opened(layer: str) -> Iterator[IO[bytes]]:
    """Give the layer's tar archive, decompressed."""
    with open(layer, "rb", buffering=0) as raw:  # zstd reads the same file
        magic = raw.read(len(_ZSTD))
        raw.seek(0)
        if magic.startswith(_GZIP):
            with gzip.GzipFile(fileobj=raw) as plain:
                yield plain  # type: ignore[misc]
        elif magic == _ZSTD:
            with _zstd(raw) as plain:
                yield plain
        else:
            yield raw


@contextmanager
def _zstd(raw: IO[bytes]) -> Iterator[IO[bytes]]:
    try:
        process = subprocess.Popen(["zstd", "-dc"], stdin=raw, stdout=subprocess.PIPE)
    except FileNotFoundError:
        raise ImageError(
            "a layer of the image is compressed with zstd, which this node lacks: add the package zstd to "
            "the nodes' image, or push the image with gzip layers"
        ) from None
    assert process.stdout is not None  # noqa: S101  (stdout is a pipe)
    try:
        with process.stdout:
            yield process.stdout
    finally:
        process.kill()
        process.wait()
