"""One version of a code tree, planned on the operator's machine before anything is sent.

The plan is a manifest: every file with its content's SHA-256, its size and whether it is executable, and
every symbolic link with its target. Times, owners and other mode bits are not part of it, so equal trees
have equal ids wherever they were checked out. Folders without files are left out, as in git.
Links in code are kept as links, whatever they point to: ``data -> /mnt/data`` means the node's ``/mnt/data``.
Data is taken whole: ignore files have no effect, and links are followed.

A project's ``.ranklift`` holds the private keys of its nodes. It is left out at every depth, whatever the
rules and links are, under another name too; so is any file in which such a key is found
(:mod:`launch.code.private_keys`).
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from launch.code.hashes import Changed, Hashes
from launch.code.ignore import IGNORE_FILES, Rules, read_rules
from launch.code.left_out import LeftOut, left_out_by_content, left_out_by_name
from launch.code.private_keys import shows_key
from launch.errors import InputError, RetryError

__all__ = ["EMPTY", "Entry", "Snapshot", "plan_data", "plan_snapshot"]

_STATE = ".ranklift"
"""The folder of a project's state, which includes the private keys of all nodes."""

_STACK_FILES = frozenset({"inventory.json", "id_ed25519"})
"""Files that identify a stack's folder, even where a folder around it was renamed."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One file or symbolic link."""

    path: str
    """Path from the root, with slashes; bytes that are not UTF-8 as surrogate escapes."""
    sha256: str = ""
    """SHA-256 of a file's content; empty for a link."""
    size: int = 0
    executable: bool = False
    target: str | None = None
    """A link's target; ``None`` for a file."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The content to push from ``root``."""

    root: Path
    source: Path
    """The folder or file that was named: ``root``, or a file in it."""
    id: str
    """First 16 hexadecimal digits of the manifest's SHA-256."""
    entries: tuple[Entry, ...] = field(repr=False)
    manifest: bytes = field(repr=False)
    """The entries as the nodes read them (``launch/remote/store/assemble.py``)."""
    special: tuple[str, ...] = ()
    """Paths of pipes, sockets and devices, which have no content."""
    private: tuple[str, ...] = ()
    """Paths of a stack's private keys and of links to them, where no rule leaves them out."""
    left_out: tuple[LeftOut, ...] = ()
    """Folders that are left out by default, where no rule leaves them out."""

    @property
    def notice(self) -> str | None:
        """A line that names what is unexpectedly not pushed; None where all is."""
        parts = [
            f"{', '.join(paths)} ({why})"
            for paths, why in (
                (self.special, "pipes, sockets and devices"),
                (self.private, "a stack's private keys"),
            )
            if paths
        ]
        return f"not pushed: {'; '.join(parts)}" if parts else None

    @property
    def size(self) -> int:
        """Total bytes of all files."""
        return sum(entry.size for entry in self.entries)

    def largest(self, count: int = 3) -> list[Entry]:
        """Return the largest files, so that a user sees what makes a push slow."""
        return sorted(self.entries, key=lambda entry: -entry.size)[:count]

    def blobs(self) -> list[Entry]:
        """Return one entry for each distinct, non-empty content, in the order the nodes number them."""
        seen: dict[str, Entry] = {}
        for entry in self.entries:
            if entry.target is None and entry.size:
                seen.setdefault(entry.sha256, entry)
        return list(seen.values())


def plan_snapshot(root: Path, cache: Path | None = None, keys: Collection[bytes] = ()) -> Snapshot:
    """Return the tree below ``root`` as it is now, without what its ignore files name
    (:mod:`launch.code.ignore`), and without what is left out by default (:mod:`launch.code.left_out`).

    ``cache`` names a file that stores hashes between calls: a tree of 10,000 files that did not
    change is planned in well under half a second, because no content is read. A file counts as unchanged
    when its size, inode and both its times are the same. ``keys`` are the numbers of private keys that
    never leave this machine (:func:`launch.code.private_keys.key_numbers`).

    Raise :class:`~launch.errors.InputError` when there is nothing to push, when ``root`` is a folder of keys,
    or naming every entry that cannot be read; :class:`~launch.errors.RetryError` naming every file that
    vanished or changed meanwhile.
    """
    root = _absolute(root)
    if not os.path.isdir(root):  # noqa: PTH112  (False for a name that is too long, too)
        raise InputError("source", str(root), "no such folder", "give the folder that holds the code")
    _refuse_private(root)
    remembered = Hashes(cache, root)
    walk = _Walk(root, remembered, keys)
    walk.code()
    walk.check("make {it} readable or name {it} in .ranklift-ignore")
    if not walk.entries:
        groups = ", ".join(dict.fromkeys(one.group for one in walk.left_out))
        raise InputError(
            "source",
            str(root),
            f"has no files to push but {groups}, left out by default" if groups else "has no files to push",
            "choose another folder, or look at its .gitignore and .ranklift-ignore",
        )
    remembered.save()
    return _snapshot(root, root, walk)


def plan_data(path: Path, cache: Path | None = None, keys: Collection[bytes] = ()) -> Snapshot:
    """Return a file, or a folder with all its content, whatever ignore files name; links are followed.

    A file has its own name in the snapshot.

    ``cache``, ``keys`` and the errors raised are as for :func:`plan_snapshot`.
    """
    path = _absolute(path)
    _refuse_private(path)
    root = path if path.is_dir() else path.parent
    remembered = Hashes(cache, root)
    walk = _Walk(root, remembered, keys)
    if path.is_dir():
        walk.data()
    else:
        walk.data_file(path.name)
    walk.check("make {it} readable or remove {it}")
    if not walk.entries:
        if walk.special and not path.is_dir():
            raise InputError("source", str(path), "is neither a file nor a folder", "name one of them")
        if walk.private and not path.is_dir():
            problem = "is a stack's private key, which never leaves this machine"
            raise InputError("source", str(path), problem, "choose another file")
        raise InputError("source", str(path), "has no files", "choose another folder")
    remembered.save()
    return _snapshot(root, path, walk)


def _refuse_private(path: Path) -> None:
    real = Path(os.path.realpath(path))
    holder = next((at for at in (real, *real.parents) if _is_private(at)), None)
    if holder is not None:
        problem = f"{holder} holds a stack's private keys, which never leave this machine"
        raise InputError("source", str(path), problem, "choose a path outside it")


def _is_private(path: Path) -> bool:
    """Return whether ``path`` itself is a project's ``.ranklift`` or the folder of one of its stacks."""
    return _is_state(path.name) or all((path / name).exists() for name in _STACK_FILES)


def _is_state(name: str) -> bool:
    return name.lower() == _STATE  # some file systems ignore case


def _absolute(path: Path) -> Path:
    return Path(os.path.abspath(path))  # noqa: PTH100  (a root that is a link stays as the user named it)


def _snapshot(root: Path, source: Path, walk: _Walk) -> Snapshot:
    entries = sorted(walk.entries, key=lambda entry: os.fsencode(entry.path))
    manifest = json.dumps(
        [
            ["f", entry.path, entry.sha256, entry.size, int(entry.executable)]
            if entry.target is None
            else ["l", entry.path, entry.target]
            for entry in entries
        ],
        separators=(",", ":"),
    ).encode()
    digest = hashlib.sha256(manifest).hexdigest()[:16]
    special, private = tuple(sorted(walk.special)), tuple(sorted(walk.private))
    left_out = tuple(sorted(walk.left_out, key=lambda one: one.path))
    return Snapshot(root, source, digest, tuple(entries), manifest, special, private, left_out)


class _Walk:
    """A walk below ``root`` that collects entries and errors, so that one error names all of them."""

    def __init__(self, root: Path, hashes: Hashes, keys: Collection[bytes]) -> None:
        self._root, self._hashes, self._keys = root, hashes, keys
        self.entries: list[Entry] = []
        self.special: list[str] = []
        """Paths of pipes, sockets and devices."""
        self.private: list[str] = []
        """Paths that hold private keys or lead to them."""
        self.left_out: list[LeftOut] = []
        self._unreadable: dict[str, list[str]] = {}
        self._moved: list[str] = []

    def check(self, remedy: str) -> None:
        """Raise InputError for unreadable entries, RetryError for entries that vanished or changed."""
        if self._unreadable:
            paths = [path for found in self._unreadable.values() for path in found]
            shown = remedy.format(it="it" if len(paths) == 1 else "them")
            if len(paths) == 1:
                raise InputError(
                    "source", paths[0], f"cannot be read ({next(iter(self._unreadable))})", shown
                )
            reasons = (f"{why}: {', '.join(sorted(found))}" for why, found in self._unreadable.items())
            raise InputError(
                "source", str(self._root), f"some of it cannot be read ({'; '.join(reasons)})", shown
            )
        if self._moved:
            paths = sorted(self._moved)
            raise RetryError(f"{', '.join(paths)} vanished or changed while being read; try again")

    def code(self) -> None:
        """Collect the tree without what ignore files name and what is left out by default; keep links."""
        pending: list[tuple[str, Rules]] = [("", Rules())]
        while pending:
            folder, rules = pending.pop()
            children = self._children(folder)
            names = {child.name for child in children}
            if folder and self._is_left_out(left_out_by_content(folder, names), rules):
                continue
            names = self._ignore_files(children)
            try:
                rules = read_rules(rules, self._root, folder, names)
            except OSError as error:
                self._failed(os.path.relpath(str(error.filename), self._root), error)
                continue
            for child in children:
                path = f"{folder}/{child.name}" if folder else child.name
                is_directory = child.is_dir(follow_symlinks=False)
                if child.name == ".git" or _is_state(child.name) or rules.ignored(path, is_directory):
                    continue
                if is_directory:
                    if not self._is_left_out(left_out_by_name(path), rules):
                        pending.append((path, rules))
                    continue
                try:
                    if child.is_symlink():
                        target = os.readlink(child.path)  # noqa: PTH115  (Path would tidy the target)
                        self.entries.append(Entry(path, target=target))
                    else:
                        self._file(path, child.stat(follow_symlinks=False))
                except OSError as error:
                    self._failed(path, error)

    def _is_left_out(self, found: LeftOut | None, rules: Rules) -> bool:
        if found is None or found.is_kept(rules):
            return False
        self.left_out.append(found)
        return True

    def data(self) -> None:
        """Collect the whole tree, links followed. Raise InputError for links that lead in circles."""
        top = self._root.stat()
        pending: list[tuple[str, frozenset[tuple[int, int]]]] = [("", frozenset({(top.st_dev, top.st_ino)}))]
        while pending:
            folder, above = pending.pop()
            for child in self._children(folder):
                path = f"{folder}/{child.name}" if folder else child.name
                if _is_state(child.name) or (child.is_symlink() and self._leads_to_keys(child.path)):
                    self.private.append(path)
                    continue
                try:
                    status = os.stat(child.path)  # noqa: PTH116  (a Path for each of many files costs more)
                    if not stat.S_ISDIR(status.st_mode):
                        self._file(path, status)
                        continue
                except OSError as error:
                    self._failed(path, error)
                    continue
                here = (status.st_dev, status.st_ino)
                if here in above:
                    raise InputError("source", path, "a link that leads back to its own folder", "remove it")
                pending.append((path, above | {here}))

    def data_file(self, name: str) -> None:
        """Collect one file of the root, as the user named it."""
        try:
            self._file(name, (self._root / name).stat())
        except Changed as error:
            self._failed(name, error)
        except OSError as error:
            self._unreadable[error.strerror or str(error)] = [name]

    def _children(self, folder: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(self._root / folder) as found:
                children = list(found)
        except OSError as error:
            self._failed(folder or ".", error)
            return []
        if {child.name for child in children} >= _STACK_FILES:
            self.private.append(folder)
            return []
        return children

    @staticmethod
    def _ignore_files(children: Sequence[os.DirEntry[str]]) -> set[str]:
        """Return the names of ignore files, without links that lead nowhere or to themselves."""
        names = set()
        for child in children:
            if child.name in IGNORE_FILES:
                with suppress(OSError):  # a circle of links
                    if child.is_file():
                        names.add(child.name)
        return names

    def _file(self, path: str, status: os.stat_result) -> None:
        if not stat.S_ISREG(status.st_mode):
            self.special.append(path)
            return
        full = f"{self._root}/{path}"
        content = self._hashes.of(path, full, status)
        if content.may_hold_key and shows_key(Path(full).read_bytes(), self._keys):
            self.private.append(path)
        else:
            executable = bool(status.st_mode & stat.S_IXUSR)
            self.entries.append(Entry(path, content.sha256, content.size, executable))

    @staticmethod
    def _leads_to_keys(link: str) -> bool:
        real = Path(os.path.realpath(link))
        return any(_is_private(at) for at in (real, *real.parents))

    def _failed(self, path: str, error: OSError) -> None:
        gone = isinstance(error, FileNotFoundError) and not os.path.lexists(f"{self._root}/{path}")
        if gone or isinstance(error, Changed):
            self._moved.append(path)
        else:
            self._unreadable.setdefault(error.strerror or str(error), []).append(path)


EMPTY = _snapshot(
    Path(os.devnull), Path(os.devnull), _Walk(Path(os.devnull), Hashes(None, Path(os.devnull)), ())
)
"""A snapshot without files: the working folder of a job without code."""
