"""What was pushed to this node, compared with the manifest whose digest is its name.

Every process of the nodes' user may write to stored files, to their times and to the manifest; the name comes
with the plan. Copies are read after they were made, what ranks read in place is read before they start. Only
the first runner of a node imports this module, which loads OpenSSL.
"""

from __future__ import annotations

import json
import os
import stat
import time
from hashlib import sha256

from launch.remote.base.files import MANIFEST_BYTES, expand_home, read_regular
from launch.remote.node.prepare import Unfit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Pushed", "check"]

_ID_DIGITS = 16
_PIECE = 1 << 20
_WRITABLE = 0o222
_BETWEEN_S = 0.1
"""Seconds of work between two signs of life."""
_CHANGED = "a job changed {path} of the pushed {snapshot} on this node: launch again, which pushes it again"
_MISSING = "the pushed code {snapshot} is not on this node: push again"


class Pushed:
    """Contents of a snapshot; their paths begin with a slash and are below its ``folder``.

    Raise :class:`~launch.remote.node.prepare.Unfit` without the snapshot, or with another manifest than the
    pushed one.
    """

    def __init__(self, snapshot: str) -> None:
        self.folder = folder = expand_home(snapshot)
        try:
            os.stat(folder)
            text = read_regular(folder + ".manifest", MANIFEST_BYTES)
        except FileNotFoundError as error:
            raise Unfit(_MISSING.format(snapshot=snapshot)) from error
        except OSError as error:
            raise self.changed("the manifest") from error
        if sha256(text).hexdigest()[:_ID_DIGITS] != os.path.basename(folder):
            raise self.changed("the manifest")
        self.files: dict[str, tuple[str, int, bool]] = {}
        """Digest and size in bytes of each file, and whether it is executable."""
        self.links: dict[str, str] = {}
        self.folders = {""}
        for kind, name, *more in json.loads(text):
            path = "/" + _native(name)
            if kind == "f":
                self.files[path] = (more[0], more[1], bool(more[2]))
            elif kind == "l":
                self.links[path] = _native(more[0])
            inside = path if kind == "d" else os.path.dirname(path)
            while inside not in self.folders and inside != "/":
                self.folders.add(inside)
                inside = os.path.dirname(inside)
        self.paths = {*self.files, *self.links, *self.folders}

    def changed(self, path: str) -> Unfit:
        """Return the error for a changed ``path``; without its manifest, the next push makes the snapshot
        again."""
        try:  # noqa: SIM105  contextlib costs each rank its import
            os.unlink(self.folder + ".manifest")
        except OSError:  # gone already, or a folder, which does not count either
            pass
        return Unfit(_CHANGED.format(path=path.lstrip("/"), snapshot=os.path.basename(self.folder)))

    def entries(self, inside: str) -> list[os.DirEntry[str]]:
        """Return what a folder holds. Raise Unfit where its owner may not read it, and OSError."""
        try:
            with os.scandir(self.folder + inside) as entries:
                return list(entries)
        except PermissionError as error:
            raise self.changed(inside) from error

    def open(self, path: str) -> int:
        """Return a descriptor to read a file with. Raise Unfit where its owner may not, and OSError."""
        try:
            return os.open(self.folder + path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except PermissionError as error:
            raise self.changed(path) from error

    def check_entry(self, path: str, found: os.stat_result, target: str) -> None:
        """Raise Unfit where an entry's kind, size, executable bit or ``target``, if it is a link, is another.

        ``found`` is its lstat result.
        """
        mode = found.st_mode
        if stat.S_ISREG(mode):
            what = (found.st_size, bool(mode & stat.S_IXUSR))
            is_same = path in self.files and what == self.files[path][1:]
        elif stat.S_ISLNK(mode):
            is_same = self.links.get(path) == target
        else:
            is_same = stat.S_ISDIR(mode) and path in self.folders
        if not is_same:
            raise self.changed(path)

    def check_content(self, path: str, fd: int) -> Iterator[None]:
        """Read a file; yield after each piece. Raise Unfit where its content is another, and OSError."""
        (pushed, size, _), digest, place = self.files[path], sha256(), 0
        while place <= size:  # a file that a job makes longer meanwhile is not read to its end
            data = os.pread(fd, min(_PIECE, size + 1 - place), place)
            if not data:
                break
            digest.update(data)
            place += len(data)
            yield
        if digest.hexdigest() != pushed:
            raise self.changed(path)

    def check_whole(self, paths: set[str]) -> None:
        """Raise Unfit where an entry is missing from ``paths``."""
        if not self.paths <= paths:
            raise self.changed(min(self.paths - paths))


def _native(text: str) -> str:
    return os.fsdecode(text.encode("utf-8", "surrogateescape"))


def check(snapshot: str, keep_alive: Callable[[int], object]) -> None:
    """Read a whole snapshot; call ``keep_alive`` every 0.1 s, with the milliseconds that it may take.

    Make its folders read-only: a job that adds a file to its data, such as a cache, would end the next job.
    Raise :class:`~launch.remote.node.prepare.Unfit` where anything is missing, changed or added, and OSError.
    """
    pushed = Pushed(snapshot)
    folders, paths = [""], {""}
    until = time.monotonic() + _BETWEEN_S
    for inside in folders:  # grows in the loop
        found = os.stat(pushed.folder + inside)
        if found.st_mode & _WRITABLE:
            os.chmod(pushed.folder + inside, stat.S_IMODE(found.st_mode) & ~_WRITABLE)
        for entry in pushed.entries(inside):
            path, found = f"{inside}/{entry.name}", entry.stat(follow_symlinks=False)
            mode = found.st_mode
            pushed.check_entry(path, found, os.readlink(entry.path) if stat.S_ISLNK(mode) else "")
            paths.add(path)
            if stat.S_ISDIR(mode):
                folders.append(path)
            if not stat.S_ISREG(mode):
                continue
            fd = pushed.open(path)
            try:
                for _ in pushed.check_content(path, fd):
                    if time.monotonic() > until:
                        keep_alive(0)
                        until = time.monotonic() + _BETWEEN_S
            finally:
                os.close(fd)
    pushed.check_whole(paths)
