"""A job's results folder: its content, its lock, and atomic writes of its files.

::

    results/<job>/logs/rank-<n>.log  outputs/<node>/...  exits/<node>.jsonl  the head's records
    results/<job>/SHA256SUMS         every file that is whole, for ``sha256sum -c``
    results/<job>/.part/...          unfinished files, under the same names; removed once all are whole
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import shutil
import stat
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from launch.errors import InputError, RankliftError, RetryError
from launch.received_names import CannotKeep, ReceivedNames, has_folder, look
from launch.remote.base.files import write_all
from launch.remote.collect.trees import TREES, is_work
from launch.results.diff import Copy, Here, numbered
from launch.results.layout import PARTS, SUMS

__all__ = [
    "PARTS",
    "SUMS",
    "Changed",
    "Results",
    "read_sums",
    "sums_line",
]

_LOCK = "lock"
_CHUNK = 1 << 16
_MOST_FOLDERS = 250_000
"""Folders that one collect makes or looks at. A short path may have many, and each takes a kilobyte here."""
_OF_THIS_NAME = (
    *(errno.EACCES, errno.EEXIST, errno.EILSEQ, errno.EINVAL, errno.EISDIR, errno.ELOOP),
    *(errno.ENAMETOOLONG, errno.ENOTDIR, errno.EPERM),
)
"""Error numbers that concern one file's write; any other (a full disk, most of all) concerns all files."""
_LINE = re.compile(r"(?P<escaped>\\?)(?P<digest>[0-9a-f]{64}) [ *](?P<name>.+)", re.DOTALL)
_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r"}


class Changed(Exception):
    """A local file has changed since it was listed."""


class Results:
    """The folder, locked by one collect; safe to use from several threads, a node each."""

    def __init__(self, into: Path, job: str) -> None:
        """Raise :class:`~launch.errors.InputError` when the folder cannot be made, and
        :class:`~launch.errors.RetryError` when another collect works in it."""
        if "/" in job or job in ("", ".", ".."):
            raise InputError("job", job, "is not the id of a job", "see `fab jobs`")
        self.folder = into / job
        self._parts = self.folder / PARTS
        self._sums: dict[str, str] = {}
        self._made: set[Path] = set()
        self._received = ReceivedNames()
        self._guard = threading.Lock()
        self.broken: RankliftError | None = None
        """The error that prevents all further writes."""
        try:
            into.mkdir(parents=True, exist_ok=True)
            # A job's files may be private to its user, who can still open the folder to others on purpose.
            self.folder.mkdir(mode=0o700, exist_ok=True)
            self._parts.mkdir(exist_ok=True)
            self._lock = self._locked()
            if (self.folder / SUMS).is_file():
                data = (self.folder / SUMS).read_bytes()
                self._sums = read_sums(data)
                if not data.endswith(b"\n"):
                    self._write_sums()
        except OSError as error:
            raise InputError(
                "--into", str(into), _words(error), "name a folder that can be written"
            ) from None

    def _locked(self) -> IO[bytes]:
        """Lock the folder; return the lock file, which a collect that ends removes: it must still be in the
        folder."""
        path = self._parts / _LOCK
        while True:
            self._parts.mkdir(exist_ok=True)
            lock = path.open("ab")
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(lock.fileno()), path.stat()):
                    return lock
            except BlockingIOError:
                lock.close()
                raise RetryError(f"{self.folder}: another collect of this job uses this folder") from None
            except FileNotFoundError:
                pass
            lock.close()

    # -- what is here -----------------------------------------------------------------------------

    def here(self, name: str) -> Here:
        """Return the copies under a name and its numbered names, and the part of an interrupted transfer."""
        copies = []
        links = set()
        number = 1
        while (found := look(self.folder / numbered(name, number))) is not None:
            as_numbered = numbered(name, number)
            if stat.S_ISREG(found.st_mode):
                digest = self._sums.get(as_numbered)
                copies.append(Copy(as_numbered, found.st_size, found.st_mtime_ns, digest))
            elif stat.S_ISLNK(found.st_mode):
                links.add(str((self.folder / as_numbered).readlink()))
            number += 1
        part = look(self._parts / name)
        if part is not None and stat.S_ISREG(part.st_mode):
            copies.append(Copy(name, part.st_size, part.st_mtime_ns, whole=False))
        return Here(tuple(copies), numbered(name, number), frozenset(links))

    def problems(self, names: Sequence[str]) -> list[str]:
        """Return why each name must not be written here, beside those of all nodes; "" where it may be."""
        return self._received.problems([(self.folder, name) for name in names])

    def digest(self, copy: Copy, on_bytes: Callable[[int], object]) -> Any:
        """Return the running SHA-256 of the copy, ready for more bytes. Raise :class:`Changed`."""
        running = hashlib.sha256()
        try:
            for data in self._pieces(copy):
                running.update(data)
                on_bytes(len(data))
        except OSError as error:
            raise Changed(_words(error)) from None
        return running

    def _pieces(self, copy: Copy) -> Iterator[bytes]:
        left = copy.size
        with self.path(copy).open("rb") as file:
            while left and (data := file.read(min(_CHUNK, left))):
                left -= len(data)
                yield data
        if left:
            raise Changed("it has become shorter")

    def path(self, copy: Copy) -> Path:
        """Return the path of the copy."""
        return (self.folder if copy.whole else self._parts) / copy.name

    def free(self) -> int:
        """Return the number of bytes that the disk still takes."""
        try:
            return shutil.disk_usage(self.folder).free
        except OSError as error:
            raise self.trouble(error) from None

    # -- what comes -------------------------------------------------------------------------------

    def make_folder(self, name: str) -> None:
        """Make a folder. Raise :class:`CannotKeep`."""
        self._make(self.folder, name)

    def make_link(self, name: str, target: str) -> None:
        """Make a symbolic link under an unused name. Raise :class:`CannotKeep`."""
        path = self._ready(self.folder, name)
        try:
            path.symlink_to(target)
        except OSError as error:
            raise self.trouble(error) from None

    def open_part(self, name: str, source: Copy | None, known: Any) -> IO[bytes]:
        """Open the unfinished file after the bytes of ``source``, whose SHA-256 is ``known``. Raise
        :class:`CannotKeep` and :class:`Changed`."""
        path = self._ready(self._parts, name)
        continues = source is not None and not source.whole
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | (0 if continues else os.O_TRUNC)
        try:
            if path.is_dir():  # left by a folder that has become a file
                shutil.rmtree(path)
            mode = 0o600 if _is_record(name) else 0o666
            part = os.fdopen(os.open(path, flags, mode), "r+b", buffering=0)
            if _is_record(name):
                os.fchmod(part.fileno(), mode)  # a part that an earlier version began
        except OSError as error:
            raise self.trouble(error) from None
        try:
            if continues:
                part.seek(0, os.SEEK_END)
            elif source is not None:
                self._copy(source, part, known)
        except BaseException as error:
            part.close()
            if isinstance(error, OSError):
                raise self.trouble(error) from None
            raise
        return part

    def _copy(self, source: Copy, part: IO[bytes], known: Any) -> None:
        running = hashlib.sha256()
        for data in self._pieces(source):
            write_all(part.fileno(), data)
            running.update(data)
        if running.digest() != known.digest():
            raise Changed("its local copy was changed meanwhile")

    def keep(self, name: str, at: str, replaces: Copy | None, mtime_ns: int, digest: str) -> str:
        """Give a whole file its name ``at``, or the next free one; return the name. Raise
        :class:`CannotKeep`."""
        part, path = self._parts / name, self._ready(self.folder, at)
        try:
            _set_time(part, mtime_ns)
            found = look(path)
            same = replaces is not None and found is not None and _is(found, replaces)
            if found is not None and not same:
                at = self.here(name).free
                path = self.folder / at
            part.replace(path)
        except OSError as error:
            raise self.trouble(error) from None
        self.add_sum(at, digest)
        return at

    def confirm(self, copy: Copy, mtime_ns: int, digest: str) -> None:
        """Record that a copy equals the node's file."""
        _set_time(self.path(copy), mtime_ns)
        self.add_sum(copy.name, digest)

    def drop_part(self, name: str) -> None:
        """Remove the part of an unfinished file."""
        with contextlib.suppress(OSError):
            (self._parts / name).unlink()

    def trouble(self, error: OSError) -> RankliftError | CannotKeep:
        """Return the error to raise for a failed write: about this file alone, or about all files."""
        if error.errno in _OF_THIS_NAME:
            return CannotKeep(f"cannot be written here: {_words(error)}")
        self.broken = RetryError(
            f"{self.folder}: {_words(error)}; what was copied is kept, and the same "
            "command continues from there"
        )
        return self.broken

    def _ready(self, top: Path, name: str) -> Path:
        parent, _, _ = name.rpartition("/")
        return self._make(top, parent) / name[len(parent) :].lstrip("/")

    def _make(self, top: Path, name: str) -> Path:
        """Make a folder within ``top`` as needed; return it. Raise :class:`CannotKeep`."""
        path = top
        for part in filter(None, name.split("/")):
            path = path / part
            if path in self._made:
                continue
            if len(self._made) >= _MOST_FOLDERS:
                raise CannotKeep(f"would be in one of more than {_MOST_FOLDERS} folders of this collect")
            try:
                found = look(path)
                if found is not None and top == self._parts and not stat.S_ISDIR(found.st_mode):
                    path.unlink()  # left by a file that has become a folder
                if not has_folder(top, path):
                    path.mkdir(exist_ok=True)
            except OSError as error:
                raise self.trouble(error) from None
            self._made.add(path)
        return path

    # -- SHA256SUMS -------------------------------------------------------------------------------

    def forget_sums(self, names: Iterable[str]) -> None:
        """Remove the sums of files about to change, so that every line is true at every moment."""
        with self._guard:
            known = [name for name in names if self._sums.pop(name, None) is not None]
            if known:
                self._write_sums()

    def add_sum(self, name: str, digest: str) -> None:
        """Add the sum of a whole file."""
        with self._guard:
            self._sums[name] = digest
            try:
                with (self.folder / SUMS).open("ab") as file:
                    file.write(sums_line(name, digest))
            except OSError as error:
                raise self.trouble(error) from None

    def _write_sums(self) -> None:
        temporary = self._parts / SUMS
        lines = [sums_line(name, self._sums[name]) for name in sorted(self._sums)]
        try:
            with temporary.open("wb") as file:
                file.writelines(lines)
                file.flush()
                os.fsync(file.fileno())  # a machine that goes down leaves the old sums, not an empty file
            temporary.replace(self.folder / SUMS)
        except OSError as error:
            raise self.trouble(error) from None

    def close(self, *, complete: bool) -> None:
        """Unlock the folder; remove ``.part`` when all files are whole."""
        if self._lock.closed:
            return
        try:
            with self._guard:
                self._sums = {n: d for n, d in self._sums.items() if look(self.folder / n) is not None}
                if self.broken is None and (self._sums or (self.folder / SUMS).exists()):
                    self._write_sums()
            for folder, _, _ in os.walk(self._parts, topdown=False):
                with contextlib.suppress(OSError):
                    Path(folder).rmdir()
            if complete or [path.name for path in self._parts.iterdir()] == [_LOCK]:
                shutil.rmtree(self._parts)
            with contextlib.suppress(OSError):
                self.folder.rmdir()  # empty, as no node has the job
        finally:
            self._lock.close()


def _is_record(name: str) -> bool:
    """Return whether a file is a record of the job: not a log, an output or a file of its working folder.

    >>> _is_record("job.json"), _is_record("exits/node000001.jsonl"), _is_record("outputs/node000000/model")
    (True, True, False)
    """
    top = name.partition("/")[0]
    return top not in TREES and not is_work(top)


def sums_line(name: str, digest: str) -> bytes:
    r"""Return a line as sha256sum writes it: a leading backslash marks a name with escapes.

    >>> sums_line("a b", "0" * 4), sums_line("a\nb", "0" * 4)
    (b'0000  a b\n', b'\\0000  a\\nb\n')
    """
    escaped = "".join(_ESCAPES.get(letter, letter) for letter in name)
    mark = "\\" if escaped != name else ""
    return f"{mark}{digest}  {escaped}\n".encode("utf-8", "surrogateescape")


def read_sums(data: bytes) -> dict[str, str]:
    """Return the digests by name; a later line wins, an incomplete last line is skipped."""
    found = {}
    for line in data.decode("utf-8", "surrogateescape").split("\n"):
        match = _LINE.fullmatch(line)
        if match is not None:
            name = match["name"]
            if match["escaped"]:
                name = re.sub(r"\\(.)", lambda m: {"n": "\n", "r": "\r"}.get(m[1], m[1]), name)
            found[name] = match["digest"]
    return found


def _is(found: os.stat_result, copy: Copy) -> bool:
    return stat.S_ISREG(found.st_mode) and (found.st_size, found.st_mtime_ns) == (copy.size, copy.mtime_ns)


def _set_time(path: Path, mtime_ns: int) -> None:
    if mtime_ns >= 0:
        with contextlib.suppress(OSError):  # without it, another user's file is compared by its digest
            os.utime(path, ns=(mtime_ns, mtime_ns))


def _words(error: OSError) -> str:
    return error.strerror or str(error)
