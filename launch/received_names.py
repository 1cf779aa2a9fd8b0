"""Names of files that a job or another writer chose, before such files come onto this machine.

The settings of a git repository run programs, and Ranklift obeys its own. Neither comes from elsewhere.
"""

from __future__ import annotations

import os
import stat
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path, PurePath

from launch.credentials import STATE

__all__ = ["OBEYED", "CannotKeep", "ReceivedNames", "check_way", "has_folder", "is_obeyed", "look"]

_OBEYED = {".git", "git~1", STATE}
OBEYED = "would be in a folder of settings, which programs obey"
_OF_REPOSITORY = "would be part of a git repository, whose settings run programs"
_REPOSITORIES = ({"head", "objects", "refs"}, {"head", "commondir"})
"""Names that make any folder a repository: by ``commondir`` the others are elsewhere
(https://git-scm.com/docs/gitrepository-layout)."""
_ON_DISK = ("HEAD", "objects", "refs", "commondir")
_MOST_FOLDERS, _MOST_PARTS = 100_000, 8
"""Folders whose names of such parts are known, after which none is taken; such names in one path."""
_PARTS = {"config", "config.worktree", "hooks"}.union(*_REPOSITORIES)


class CannotKeep(Exception):
    """One file cannot be written here; the text is the reason."""


class ReceivedNames:
    """All names that are received, by several threads too: together they make no folder a repository.

    >>> names = ["a/HEAD", "a/config", "a/objects/x", "a/refs/x", "a/model", "config", "b/.git/x"]
    >>> problems = ReceivedNames().problems([(Path("nowhere"), name) for name in names])
    >>> [name for name, problem in zip(names, problems, strict=True) if not problem]
    ['a/model', 'config']
    """

    def __init__(self) -> None:
        self._parts: dict[str, set[str]] = {}

    def problems(self, files: Sequence[tuple[Path, str]]) -> list[str]:
        """Return why each file must not be written, "" where it may be; each is given as the folder that the
        user chose and a path in it. What is in the folders already counts too."""
        found = [_problem(inside) for _, inside in files]
        of_git = [at for at, problem in enumerate(found) if problem == _OF_REPOSITORY]
        for at in of_git:
            for folder, name in _steps(*files[at]):
                key = _folded(folder)
                if key in self._parts or len(self._parts) < _MOST_FOLDERS:
                    self._parts.setdefault(key, set()).add(name)
        known: dict[str, bool] = {}
        for at in of_git:
            if not any(self._is_repository(folder, known) for folder, _ in _steps(*files[at])):
                found[at] = ""
        return found

    def _is_repository(self, folder: str, known: dict[str, bool]) -> bool:
        if folder not in known:
            parts = self._parts.get(_folded(folder))
            known[folder] = parts is None or _is_whole(parts.union(_on_disk(Path(folder))))
        return known[folder]


def _problem(inside: str) -> str:
    """Return the problem of a path by its names alone: of git's parts, one that other names decide."""
    names = [*map(_plain, inside.split("/"))]
    if not _OBEYED.isdisjoint(names):
        return OBEYED
    parts = sum(name in _PARTS for name in names)
    if parts > _MOST_PARTS:
        return f"has more than {_MOST_PARTS} names of parts of git repositories in its path"
    return _OF_REPOSITORY if parts else ""


def _is_whole(names: set[str]) -> bool:
    return any(names >= repository for repository in _REPOSITORIES)


def _on_disk(folder: Path) -> list[str]:
    return [name.lower() for name in _ON_DISK if look(folder / name) is not None]


def _steps(top: Path, inside: str) -> Iterator[tuple[str, str]]:
    """Yield each name of a part of a repository in a path, after the folder that it is in."""
    folders = inside.split("/")
    for at, part in enumerate(folders):
        if (name := _plain(part)) in _PARTS:
            yield "/".join((str(top), *folders[:at])), name


def _folded(path: str) -> str:
    return unicodedata.normalize("NFC", path).casefold()


@lru_cache(1 << 12)
def _plain(name: str) -> str:
    """Return a name without what some file system ignores in it (as git's own ``verify_path`` has it)."""
    if not name.isascii():
        name = "".join(one for one in name if unicodedata.category(one) != "Cf")
    return name.partition(":")[0].rstrip(" .").casefold()


def is_obeyed(part: str) -> bool:
    """Return whether a file system may take the name for git's folder or for Ranklift's.

    >>> [is_obeyed(part) for part in (".GIT", "git~1", ".g\u200cit", ".git. ", ".git::x", ".Ranklift")]
    [True, True, True, True, True, True]
    >>> is_obeyed(".gitignore")
    False
    """
    return _plain(part) in _OBEYED


def look(path: Path) -> os.stat_result | None:
    """Return what is at the path, a link itself; None for nothing."""
    try:
        return path.lstat()
    except OSError:  # also for an invalid name, whose write raises the error
        return None


def has_folder(top: Path, path: Path) -> bool:
    """Return whether there is a folder at ``path``, on the way to a file within ``top``.

    Raise :class:`CannotKeep` for anything else: no link is followed, as it may come from a node.
    """
    found = look(path)
    if found is not None and not stat.S_ISDIR(found.st_mode):
        raise CannotKeep(f"{path.relative_to(top)} is not a folder: the file cannot be written")
    return found is not None


def check_way(top: Path, inside: PurePath) -> None:
    """Raise :class:`CannotKeep` as :func:`has_folder`, for each folder on the way to ``inside``."""
    for folder in list(inside.parents)[-2::-1]:
        if not has_folder(top, top / folder):
            return
