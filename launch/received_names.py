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
        for top, inside in files:
            for folder, name in _steps(top, inside):
                if name in _PARTS:
                    self._parts.setdefault(_folded(folder), set()).add(name)
        known: dict[str, bool] = {}
        return [self._problem(top, inside, known) for top, inside in files]

    def _problem(self, top: Path, inside: str, known: dict[str, bool]) -> str:
        for folder, name in _steps(top, inside):
            if name in _OBEYED:
                return OBEYED
            if name in _PARTS:
                if folder not in known:
                    found = self._parts[_folded(folder)].union(_on_disk(Path(folder)))
                    known[folder] = any(found >= parts for parts in _REPOSITORIES)
                if known[folder]:
                    return _OF_REPOSITORY
        return ""


def _on_disk(folder: Path) -> list[str]:
    names = ("HEAD", "objects", "refs", "commondir")
    return [name.lower() for name in names if look(folder / name) is not None]


def _steps(top: Path, inside: str) -> Iterator[tuple[str, str]]:
    """Yield each name of a path as file systems may take it, after the folder that it is in."""
    folder = str(top)
    for part in inside.split("/"):
        yield folder, _plain(part)
        folder = f"{folder}/{part}"


def _folded(path: str) -> str:
    return unicodedata.normalize("NFC", path).casefold()


@lru_cache(1 << 12)
def _plain(name: str) -> str:
    """Return a name without what some file system ignores in it (as git's own ``verify_path`` has it)."""
    letters = (one for one in name.partition(":")[0] if unicodedata.category(one) != "Cf")
    return "".join(letters).rstrip(" .").casefold()


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
