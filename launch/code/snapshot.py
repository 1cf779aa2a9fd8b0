"""One version of a code tree, planned on the operator's machine before anything is sent.

The plan is a manifest: every file with its content's SHA-256, its size and whether it is executable, and
every symbolic link with its target. Times, owners and other mode bits are not part of it, so equal trees
have equal ids wherever they were checked out. Folders without files are left out, as in git.
Links in code are kept as links, whatever they point to: ``data -> /mnt/data`` means the node's ``/mnt/data``.
Data is taken whole: ignore files have no effect, and links within the folder are followed. A link that leaves
it is an error, and so are credentials of this machine (:mod:`launch.credentials`), in code too.

A project's ``.ranklift`` holds the private keys of its nodes. It is left out at every depth, whatever the
rules and links are, under another name too; so is any file in which such a key is found
(:mod:`launch.code.private_keys`).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from launch.code.hashes import Hashes
from launch.code.left_out import LeftOut
from launch.code.walk import Entry, Walk
from launch.credentials import Credentials, known_credentials
from launch.errors import InputError, RetryError

__all__ = ["EMPTY", "Entry", "Snapshot", "plan_data", "plan_snapshot"]

_OUTPUTS = "outputs"
"""Folder of a job's outputs in its copy of the code."""


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
    readable: tuple[Path, ...] = ()
    """Resolved folders and files from which all of it is read."""

    @property
    def notice(self) -> str | None:
        """A line that names what is unexpectedly not pushed, or not used as it is; None without any."""
        parts = [
            f"{', '.join(paths)} ({why})"
            for paths, why in (
                (self.special, "pipes, sockets and devices"),
                (self.private, "a stack's private keys"),
            )
            if paths
        ]
        link = next((one for one in self.entries if one.path == _OUTPUTS and one.target is not None), None)
        lines = [f"not pushed: {'; '.join(parts)}"] if parts else []
        if link is not None:
            lines.append(f"the link ./{_OUTPUTS} to {link.target} is a folder of the job's own on nodes")
        return "; ".join(lines) or None

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


def plan_snapshot(
    root: Path, cache: Path | None = None, keys: Collection[bytes] = (), expected: Path | None = None
) -> Snapshot:
    """Return the tree below ``root`` as it is now, without what its ignore files name
    (:mod:`launch.code.ignore`), and without what is left out by default (:mod:`launch.code.left_out`).

    ``cache`` names a file that stores hashes between calls: a tree of 10,000 files that did not
    change is planned in well under half a second, because no content is read. A file counts as unchanged
    when its size, inode and both its times are the same. ``keys`` are the numbers of private keys that
    never leave this machine (:func:`launch.code.private_keys.key_numbers`). ``expected`` is what ``root`` led
    to when it was allowed.

    Raise :class:`~launch.errors.InputError` when there is nothing to push, when ``root`` or an entry is
    credentials (:mod:`launch.credentials`), or naming every entry that cannot be read;
    :class:`~launch.errors.RetryError` naming every file that vanished or changed meanwhile.
    """
    root = _absolute(root)
    if not os.path.isdir(root):  # noqa: PTH112  (False for a name that is too long, too)
        raise InputError("source", str(root), "no such folder", "give the folder that holds the code")
    credentials = known_credentials()
    real = _resolved(root, expected, credentials)
    remembered = Hashes(cache, root)
    walk = Walk(root, (real,), remembered, keys, credentials)
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
    if any(entry.path == _OUTPUTS and entry.target is None for entry in walk.entries):
        problem = f"is a file, and ./{_OUTPUTS} is the folder of a job's outputs"
        raise InputError("source", f"{root}/{_OUTPUTS}", problem, "rename it, or name it in .ranklift-ignore")
    remembered.save()
    return _snapshot(root, root, walk)


def plan_data(
    path: Path,
    cache: Path | None = None,
    keys: Collection[bytes] = (),
    allowed: Sequence[Path] = (),
    expected: Path | None = None,
) -> Snapshot:
    """Return a file, or a folder with all its content, whatever ignore files name.

    Links are followed within the folder and into ``allowed``, resolved paths; another one is an error. A
    file has its own name in the snapshot, also where it is a link. ``cache``, ``keys``, ``expected`` and the
    errors raised are as for :func:`plan_snapshot`.
    """
    path = _absolute(path)
    credentials = known_credentials()
    real = _resolved(path, expected, credentials)
    root = path if path.is_dir() else path.parent
    remembered = Hashes(cache, root)
    walk = Walk(root, (real, *allowed), remembered, keys, credentials)
    if path.is_dir():
        if found := credentials.within(real):
            raise walk.holds_credentials(os.path.relpath(os.path.realpath(found), real), found)
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


def _resolved(path: Path, expected: Path | None, credentials: Credentials) -> Path:
    real = Path(os.path.realpath(path))
    credentials.refuse("source", real, path)
    if expected is not None and real != expected:
        raise RetryError(f"{path} led to {expected}, and leads to {real} now; try again")
    return real


def _absolute(path: Path) -> Path:
    return Path(os.path.abspath(path))  # noqa: PTH100  (a root that is a link stays as the user named it)


def _snapshot(root: Path, source: Path, walk: Walk) -> Snapshot:
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
    return Snapshot(root, source, digest, tuple(entries), manifest, special, private, left_out, walk.readable)


EMPTY = _snapshot(
    Path(os.devnull),
    Path(os.devnull),
    Walk(Path(os.devnull), (), Hashes(None, Path(os.devnull)), (), Credentials({}, frozenset())),
)
"""A snapshot without files: the working folder of a job without code."""
