"""A walk over a tree of this machine: what of it is pushed, and what is wrong with it."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from launch.access import count_visit, is_within
from launch.code.hashes import Changed, Hashes
from launch.code.ignore import IGNORE_FILES, Rules, files_above, read_rules, rules_above
from launch.code.left_out import LeftOut, left_out_by_content, left_out_by_name, left_out_file
from launch.code.private_keys import shows_key
from launch.credentials import STACK_FILES, STATE, Credentials, is_state
from launch.errors import InputError, RetryError

__all__ = ["Entry", "Walk"]


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


class Walk:
    """A walk below ``root`` that collects entries and errors, so that one error names all of them."""

    def __init__(
        self,
        root: Path,
        readable: tuple[Path, ...],
        hashes: Hashes,
        keys: Collection[bytes],
        credentials: Credentials,
    ) -> None:
        self._root, self._hashes, self._keys, self._credentials = root, hashes, keys, credentials
        self.readable = readable
        """Resolved folders and files, the root's own first."""
        self.entries: list[Entry] = []
        self.special: list[str] = []
        """Paths of pipes, sockets and devices."""
        self.private: list[str] = []
        """Paths that hold private keys or lead to them."""
        self.left_out: list[LeftOut] = []
        self._leaving: list[str] = []
        """Links out of the folder, and where they lead."""
        self._unreadable: dict[str, list[str]] = {}
        self._moved: list[str] = []

    def check(self, remedy: str) -> None:
        """Raise InputError for links that leave the folder and for unreadable entries, RetryError for entries
        that vanished or changed."""
        if self._leaving:
            links = "it" if len(self._leaving) == 1 else "them"
            raise InputError(
                "source",
                str(self._root),
                f"has links that leave it, which are not followed: {', '.join(sorted(self._leaving))}",
                f"replace {links} by what is to be sent, or give --allow-path with the folder that is meant",
            )
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
        pending: list[tuple[str, Rules]] = [("", self._rules_above())]
        while pending:
            folder, rules = pending.pop()
            children = self._children(folder)
            names = {child.name for child in children}
            if folder and self._is_left_out(left_out_by_content(folder, names), rules):
                continue
            names = self._ignore_files(folder, children)
            try:
                rules = read_rules(rules, self._root, folder, names)
            except OSError as error:
                self._failed(os.path.relpath(str(error.filename), self._root), error)
                continue
            for child in children:
                path = f"{folder}/{child.name}" if folder else child.name
                is_directory = child.is_dir(follow_symlinks=False)
                if child.name == ".git" or child.name.lower() == STATE or rules.ignored(path, is_directory):
                    continue
                if child.inode() in self._credentials.inodes and not child.is_symlink():
                    self._refuse_credentials(path, child.stat(follow_symlinks=False))
                if is_directory:
                    if not self._is_left_out(left_out_by_name(path), rules):
                        pending.append((path, rules))
                    continue
                if self._is_left_out(left_out_file(path), rules):
                    continue
                try:
                    if child.is_symlink():
                        target = os.readlink(child.path)  # noqa: PTH115  (Path would tidy the target)
                        self.entries.append(Entry(path, target=target))
                    else:
                        self._file(path, child.stat(follow_symlinks=False))
                except OSError as error:
                    self._failed(path, error)

    def _rules_above(self) -> Rules:
        """Return the rules of the repository's folders above the root. A link out of the repository is an
        error, for without its rules files could be pushed that it leaves out."""
        root = Path(os.path.realpath(self._root))
        top, files = files_above(root)
        leaving = [file for file in files if not is_within(file.resolve(), (top,))]
        self._leaving += [f"{file} -> {file.resolve()}" for file in leaving]
        try:
            return rules_above(root, files)
        except OSError as error:
            self._failed(str(error.filename), error)
            return Rules()

    def _is_left_out(self, found: LeftOut | None, rules: Rules) -> bool:
        if found is None or found.is_kept(rules):
            return False
        self.left_out.append(found)
        return True

    def data(self) -> None:
        """Collect the whole tree, links followed. Raise InputError for links that lead in circles, and for a
        folder that they reach too often: its content would be sent as often."""
        top = self._root.stat()
        visits: Counter[tuple[int, int]] = Counter()
        pending: list[tuple[str, frozenset[tuple[int, int]]]] = [("", frozenset({(top.st_dev, top.st_ino)}))]
        while pending:
            folder, above = pending.pop()
            for child in self._children(folder):
                path = f"{folder}/{child.name}" if folder else child.name
                if child.name.lower() == STATE:
                    self.private.append(path)
                    continue
                try:
                    if child.is_symlink() and not self._is_followed(path, child.path):
                        continue
                    status = os.stat(child.path)  # noqa: PTH116  (a Path for each of many files costs more)
                    self._refuse_credentials(path, status)
                    if not stat.S_ISDIR(status.st_mode):
                        self._file(path, status)
                        continue
                except OSError as error:
                    self._failed(path, error)
                    continue
                here = (status.st_dev, status.st_ino)
                if here in above:
                    raise InputError("source", path, "a link that leads back to its own folder", "remove it")
                count_visit(visits, here, "source", path)
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
        real = os.path.realpath(self._root / folder)
        if not is_within(Path(real), self.readable):  # a link took its place
            self._moved.append(folder)
            return []
        try:
            with os.scandir(real) as found:
                children = list(found)
        except OSError as error:
            self._failed(folder or ".", error)
            return []
        if {child.name for child in children} >= STACK_FILES:
            self.private.append(folder)
            return []
        return children

    def _ignore_files(self, folder: str, children: Sequence[os.DirEntry[str]]) -> set[str]:
        """Return the names of ignore files, without links that lead nowhere or to themselves."""
        names = set()
        for child in children:
            if child.name in IGNORE_FILES:
                with suppress(OSError):  # a circle of links
                    if not child.is_file():
                        continue
                    real = os.path.realpath(child.path)
                    if is_within(Path(real), self.readable):
                        names.add(child.name)
                    else:  # without its rules, files could be pushed that it leaves out
                        self._leaving.append(f"{folder and f'{folder}/'}{child.name} -> {real}")
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

    def _is_followed(self, path: str, link: str) -> bool:
        """Return whether a link of data is followed; record it where not."""
        real = Path(os.path.realpath(link))
        found = self._credentials.around(real)
        if found is not None and is_state(found):
            self.private.append(path)
            return False
        if found is not None:
            raise self.holds_credentials(path, found)
        if not is_within(real, self.readable):
            self._leaving.append(f"{path} -> {real}")
            return False
        return True

    def _refuse_credentials(self, path: str, status: os.stat_result) -> None:
        found = self._credentials.at(status)
        if found is not None:
            raise self.holds_credentials(path, found)

    def holds_credentials(self, path: str, found: Path) -> InputError:
        """Return the error for an entry that is credentials of this machine."""
        problem = f"holds credentials of this machine ({found}), which never leave it: {path}"
        remedy = "name it in .ranklift-ignore if it lies in your code, or choose another folder"
        return InputError("source", str(self._root), problem, remedy)

    def _failed(self, path: str, error: OSError) -> None:
        gone = isinstance(error, FileNotFoundError) and not os.path.lexists(f"{self._root}/{path}")
        if gone or isinstance(error, Changed):
            self._moved.append(path)
        else:
            self._unreadable.setdefault(error.strerror or str(error), []).append(path)
