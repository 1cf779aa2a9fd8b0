"""A run's files under Azure ML's names for them."""

from __future__ import annotations

import filecmp
import re
import shutil
import stat
import tempfile
import unicodedata
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from launch.azureml.exceptions import UserErrorException
from launch.azureml.program import Fab
from launch.numbers import counted
from launch.received_names import OBEYED, CannotKeep, ReceivedNames, check_way, is_obeyed, look
from launch.results.folder import SUMS

__all__ = ["Files", "copy_new", "destination", "local_paths"]

_NAMED = 10
"""Files that an error names."""
_REMEDY = "name another place, move what is there, or take `fab collect`, which makes a folder of its own"
_OF_RANK = re.compile(r"rank-(0|[1-9][0-9]{0,8})\.log")


class Files:
    """A copy of the files that ``fab collect`` fetches, kept while the run's object lives."""

    def __init__(self, fab: Fab, job: str) -> None:
        self._fab, self._job = fab, job
        self._folder: Path | None = None
        self._final = False

    def table(self, nodes: Sequence[str], ranks: int, *, final: bool) -> Mapping[str, Path]:
        """Return each file's copy by name, sorted; fetch again until a copy of a ``final`` state was made.

        Raise ExperimentExecutionException naming the nodes whose files cannot be fetched.
        """
        if self._folder is None or not self._final:
            if self._folder is None:
                self._folder = Path(tempfile.mkdtemp(prefix="ranklift-"))
                weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
            shutil.rmtree(self._folder / self._job, ignore_errors=True)
            self._fab.json("collect", self._job, "--into", str(self._folder))
            self._final = final
        return dict(sorted(_named(self._folder / self._job, nodes, ranks).items()))


def _named(folder: Path, nodes: Sequence[str], ranks: int) -> dict[str, Path]:
    table = {
        f"system_logs/{path.name}": path for path in folder.glob("*") if path.is_file() and path.name != SUMS
    }
    for path in (folder / "logs").glob("rank-*.log"):
        if path.is_file():  # a job may put anything there, under names that no rank's log has
            match = _OF_RANK.fullmatch(path.name)
            table[_log_name(int(match[1]), ranks) if match else f"user_logs/{path.name}"] = path
    for node in nodes:
        top = folder / "outputs" / node
        for path in sorted(top.rglob("*")):
            if not path.is_file():
                continue
            name = f"outputs/{path.relative_to(top).as_posix()}"
            if name not in table:
                table[name] = path
            elif not filecmp.cmp(table[name], path, shallow=False):
                table[f"outputs/{node}/{path.relative_to(top).as_posix()}"] = path
    return table


def _log_name(rank: int, ranks: int) -> str:
    """Return Azure ML's name of a process's log.

    >>> _log_name(0, 1), _log_name(3, 8), _log_name(3, 16)
    ('user_logs/std_log.txt', 'user_logs/std_log_process_3.txt', 'user_logs/std_log_process_03.txt')
    """
    if ranks == 1:
        return "user_logs/std_log.txt"
    return f"user_logs/std_log_process_{rank:0{len(str(ranks - 1))}}.txt"


def destination(name: str, asked_for: str | None) -> Path:
    """Return one file's target: in a folder that exists or ends in a slash, else the path itself.

    >>> str(destination("outputs/model.pt", None)), str(destination("outputs/model.pt", "kept/"))
    ('model.pt', 'kept/model.pt')
    >>> str(destination("outputs/model.pt", "kept/best.pt"))
    'kept/best.pt'
    """
    base = PurePosixPath(name).name
    if asked_for is None:
        return Path(base)
    path = Path(asked_for)
    return path / base if asked_for.endswith("/") or path.is_dir() else path


def local_paths(
    names: Sequence[str], directory: str | None, paths: Sequence[str] | None, without: str
) -> list[Path]:
    """Return many files' targets in ``directory``: ``paths``, or their own names less ``without``.

    >>> [str(path) for path in local_paths(["outputs/a/b"], "got", None, "outputs/")]
    ['got/a/b']

    Raise UserErrorException for other than one path a file.
    """
    if paths is not None and (len(paths) != len(names) or len(set(paths)) != len(paths)):
        problem = f"{counted(len(paths), 'path')} for {counted(len(names), 'file')}, or some twice"
        raise UserErrorException("output_paths", None, problem, "give one path for each file")
    chosen = [name.removeprefix(without) for name in names] if paths is None else list(paths)
    return [Path(directory or ".") / name for name in chosen]


def copy_new(
    files: Sequence[tuple[str, Path, Path]], parameter: str, given: str | None, *, is_folder: bool = True
) -> None:
    """Copy files of a run, each with its name, its copy here and its target, or none of them. ``given`` is
    the folder of all targets unless ``is_folder`` is False.

    A job chooses names and contents, so that nothing that is there is replaced. Raise UserErrorException
    naming the targets where something else is or another of the files goes, that git or Ranklift obeys, or
    behind a link; an equal file stays.
    """
    chosen = Path(given or ".") if is_folder else Path()
    clashes = _clashes([target for _, _, target in files])
    split = [_split(name, chosen, target) for name, _, target in files]
    obeyed = ReceivedNames().problems([(top, inside.as_posix()) for top, inside in split])
    refused = [
        f"{target} {problem}"
        for (_, source, target), way, name_problem in zip(files, split, obeyed, strict=True)
        if (problem := name_problem or clashes.get(target, "") or _problem(source, target, *way))
    ]
    if refused:
        more = [f"{len(refused) - _NAMED} more"] if len(refused) > _NAMED else []
        problem = f"nothing is copied: {', '.join(refused[:_NAMED] + more)}"
        raise UserErrorException(parameter, given, problem, _REMEDY)
    for _, source, target in files:
        if look(target) is None:
            target.parent.mkdir(parents=True, exist_ok=True)
            _copy(source, target)


def _problem(source: Path, target: Path, top: Path, inside: Path) -> str:
    """Return why a file cannot be copied to ``target``, which is ``inside`` of the folder ``top``; or ""."""
    if any(map(is_obeyed, target.parts)):
        return OBEYED
    try:
        check_way(top, inside)
    except CannotKeep as error:
        return f"has no place: {error}"
    found = look(target)
    if found is None or (stat.S_ISREG(found.st_mode) and filecmp.cmp(source, target, shallow=False)):
        return ""
    return "is there with another content"


def _clashes(targets: Sequence[Path]) -> dict[Path, str]:
    """Return the targets that one disk cannot have beside the others, with the reason. A file system may
    take upper and lower case for the same.

    >>> _clashes([Path("a"), Path("A"), Path("b/c"), Path("B"), Path("b/d")])
    {PosixPath('A'): 'is the target of a too', PosixPath('B'): 'is a folder of other targets'}
    """
    found: dict[Path, str] = {}
    first: dict[Path, Path] = {}
    folders = {parent for target in targets for parent in _folded(target).parents}
    for target in targets:
        other = first.setdefault(_folded(target), target)
        if other is not target:
            found[target] = f"is the target of {other} too"
        elif _folded(target) in folders:
            found[target] = "is a folder of other targets"
    return found


def _folded(path: Path) -> Path:
    return Path(unicodedata.normalize("NFC", str(path)).casefold())


def _split(name: str, chosen: Path, target: Path) -> tuple[Path, Path]:
    """Return a target as the folder that the script chose, ``chosen`` at least, and the end that it shares
    with the run's name for the file.

    >>> for target in ("/x/a/b", "outputs/a/b", "x/c"):
    ...     print(*_split("outputs/a/b", Path("."), Path(target)))
    /x a/b
    . outputs/a/b
    x c
    >>> print(*_split("outputs/a/b", Path("outputs"), Path("outputs/a/b")))
    outputs a/b
    """
    given = len(chosen.parts) if target.is_relative_to(chosen) else 0
    theirs, parts = PurePosixPath(name).parts, target.parts
    at = len(parts) - 1
    while at > given and parts[at - 1 :] == theirs[at - 1 - len(parts) :]:
        at -= 1
    return Path(*parts[:at]), Path(*parts[at:])


def _copy(source: Path, target: Path) -> None:
    with source.open("rb") as data, target.open("xb") as copy:
        try:
            shutil.copyfileobj(data, copy)
        except OSError:
            target.unlink(missing_ok=True)  # the next call would find it there
            raise
