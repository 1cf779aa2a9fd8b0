"""What the files of a repository may read of the operator's machine: nothing outside it, and no variable.

A job file, a requirements file, a conda file, an environment and a data asset belong to whoever wrote the
repository. What they name is read where it lies in the repository, or where the user has allowed it on the
command line or at the terminal. What users type there themselves is their own word.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from launch.credentials import Credentials, home_folders, known_credentials
from launch.errors import InputError, RetryError

__all__ = [
    "Access",
    "Scope",
    "count_visit",
    "is_within",
    "is_work_tree",
    "open_resolved",
    "read_resolved",
    "repository_of",
]

_MOST_VISITS = 8
"""Ways by which links may reach one folder of data: with two links a level their number doubles."""
_LONGEST_PATH, _LONGEST_NAME = 4096, 255
"""PATH_MAX and NAME_MAX of Linux, in bytes: a longer path would be looked up folder by folder."""
_MOST_LINKS = 40
"""As Linux itself follows in one path."""


@dataclass(frozen=True, slots=True)
class Access:
    """What the user allows files of a repository to read beyond it, and the record of what they read so."""

    folders: tuple[Path, ...] = ()
    """Folders and files outside of it, resolved."""
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Variables that may be filled in, by name."""
    ask: Callable[[str], bool | None] = lambda _: None
    """Asks the user at the terminal; None where there is none."""
    notes: list[str] = field(default_factory=list)
    """Lines about each path outside of it and each variable that a file has read."""
    agreed: set[Path] = field(default_factory=set)
    """Paths to which the user agreed at the terminal."""
    known: list[Credentials] = field(default_factory=list, repr=False)
    """This machine's credentials, once the first path was looked at: a file may name thousands."""

    def of(self, folder: Path) -> Scope:
        """Return the scope of the files in ``folder``."""
        return Scope(folder, repository_of(folder), self)

    def typed(self, key: str, path: Path) -> tuple[Scope, Path]:
        """Return the scope of a file or folder that the user names, and its path resolved as
        :meth:`Scope.admitted` does."""
        scope = self.of(path.parent)
        return scope, scope.admitted(key, path, is_typed=True)

    def fill(self, where: str, name: str) -> str:
        """Return the value of a variable for ``${NAME}`` at ``where``. Raise
        :class:`~launch.errors.InputError` for one that the user has not named."""
        if name not in self.variables:
            problem = "is a variable of this machine, and a file reads none that you do not name"
            raise InputError(f"{where}: ${{{name}}}", None, problem, f"give --fill {name} to fill it in")
        self._note(f"${{{name}}} is filled in from this machine's environment ({where})")
        return self.variables[name]

    def refuse_credentials(self, where: str, path: Path, named: Path) -> None:
        """Raise :class:`~launch.errors.InputError` as :meth:`launch.credentials.Credentials.refuse`."""
        if not self.known:
            self.known.append(known_credentials())
        self.known[0].refuse(where, path, named)

    def allow(self, where: str, path: Path, repository: Path | None) -> None:
        """Return if the user allows a resolved path outside of the repository, else raise
        :class:`~launch.errors.InputError`."""
        if not is_within(path, (*self.folders, *self.agreed)):
            of = f"the repository {repository}" if repository else "any repository: your home folder is none"
            if not self.ask(f"{where} names {path}, outside of {of}. Read it, and send it to the nodes?"):
                folder = path if path.is_dir() else path.parent
                problem = f"lies outside of {of}"
                raise InputError(where, str(path), problem, f"give --allow-path {folder} if it may be sent")
            self.agreed.add(path)
        self._note(f"read from outside of the repository: {path} ({where})")

    def confirm(self, question: str, refusal: InputError, *, dry_run: bool) -> None:
        """Return if the user agrees at the terminal to what a file asks for, else raise ``refusal``.

        A dry run notes the question in place of asking.
        """
        if dry_run:
            self._note(f"without --dry-run, the terminal asks: {question}")
        elif not self.ask(question):
            raise refusal

    def _note(self, line: str) -> None:
        if line not in self.notes:
            self.notes.append(line)


@dataclass(frozen=True, slots=True)
class Scope:
    """Where a file's relative paths start, and what it may read."""

    folder: Path
    repository: Path | None
    """The resolved repository; None where there is none."""
    access: Access

    def named(self, written: str) -> Path:
        """Return the path that a file writes as ``written``. Raise OSError, RuntimeError and ValueError for
        what is none."""
        raw = os.fsencode(written)
        if len(raw) >= _LONGEST_PATH or any(len(part) > _LONGEST_NAME for part in raw.split(b"/")):
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
        return self.folder / Path(written).expanduser()

    def admitted(self, where: str, named: Path, *, is_typed: bool = False) -> Path:
        """Return ``named`` resolved, if it may be read: the file and line ``where`` name it, or the user,
        where it ``is_typed``. What a link leads to is the word of the repository that has the link, though
        the user typed the link's name. Raise :class:`~launch.errors.InputError`."""
        path = Path(os.path.realpath(named))
        self.access.refuse_credentials(where, path, named)
        for repository in _repositories_of_links(named) if is_typed else (self.repository,):
            if not is_within(path, filter(None, (repository,))):
                self.access.allow(where, path, repository)
        return path

    def at(self, folder: Path) -> Scope:
        """Return the same for a file in another folder, which this one includes."""
        return replace(self, folder=folder)


def repository_of(folder: Path) -> Path | None:
    """Return the repository that files in ``folder`` belong to, resolved: the git work tree around it, else
    the folder itself.

    None for a folder that holds the user's home folder, or is it: what lies there is not one author's. A work
    tree that does, of somebody's settings, is passed over.
    """
    real = Path(os.path.realpath(folder))
    homes = home_folders(os.environ)

    def is_home(one: Path) -> bool:
        return any(home.is_relative_to(one) for home in homes)

    trees = (one for one in (real, *real.parents) if is_work_tree(one) and not is_home(one))
    return next(trees, None if is_home(real) else real)


def _repositories_of_links(path: Path) -> Iterator[Path]:
    """Yield the repository of every link that has to be followed to reach ``path``, of nested ones too."""
    here, names, links = Path("/"), [*reversed(path.absolute().parts[1:])], 0
    while names and links <= _MOST_LINKS:
        name = names.pop()
        if name == "..":
            here = here.parent
            continue
        try:
            target = os.readlink(here / name)  # noqa: PTH115  (Path would tidy the target)
            is_machines = os.lstat(here / name).st_uid == 0 != os.geteuid()
        except OSError:  # no link, or nothing
            here /= name
            continue
        links += 1
        repository = repository_of(here)
        # Root's link, as /home/ann may be, is nobody's repository.
        if repository is not None and (not is_machines or is_work_tree(repository)):
            yield repository
        if target.startswith("/"):
            here = Path("/")
        names += reversed(target.split("/"))


def is_work_tree(folder: Path) -> bool:
    """Return whether the folder is the top of a git work tree.

    Does not run git: it may be missing, and it refuses a repository of another user.
    """
    mark = folder / ".git"
    try:
        return (mark / "HEAD").is_file() or mark.is_file()  # a work tree and a submodule have a file
    except PermissionError:
        return os.path.isdir(mark)  # noqa: PTH112  (False where even that may not be read)


def is_within(path: Path, folders: Iterable[Path]) -> bool:
    """Return whether a resolved path is one of these resolved folders, or lies below one.

    >>> is_within(Path("/data/a"), [Path("/data")]), is_within(Path("/database"), [Path("/data")])
    (True, False)
    """
    return any(path.is_relative_to(folder) for folder in folders)


def count_visit(visits: Counter[tuple[int, int]], folder: tuple[int, int], key: str, path: str) -> None:
    """Count one more way to a folder of data, by device and inode. Raise :class:`~launch.errors.InputError`
    naming ``path`` where links lead there too often: its content would be sent as often."""
    visits[folder] += 1
    if visits[folder] > _MOST_VISITS:
        problem = f"is reached by more than {_MOST_VISITS} ways of links, and would be sent as often"
        raise InputError(key, path, problem, "remove links to it")


def open_resolved(path: str) -> int:
    """Return a handle of the regular file at a resolved path. Raise OSError; RetryError where a link was put
    into the path since it was resolved."""
    # O_NONBLOCK, so that a pipe in the file's place does not wait for a writer.
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    is_regular = stat.S_ISREG(os.fstat(handle).st_mode)
    if is_regular and os.path.realpath(path) == path:
        return handle
    os.close(handle)
    if not is_regular:
        raise OSError(errno.EINVAL, "is not a regular file", path)
    raise RetryError(f"{path} changed while it was read; try again")


def read_resolved(path: Path, most: int) -> bytes:
    """Return at most ``most`` bytes of the file at a resolved path. Raise as :func:`open_resolved`."""
    with open(open_resolved(str(path)), "rb") as stream:
        return stream.read(most)
