"""Make a project folder in a user's own repository: ``init``."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from invoke.context import Context

from launch.access import is_work_tree
from launch.errors import InputError, InputErrors
from launch.project_folder import is_project
from launch.remote.base.files import read_regular, remove_unfinished, replace_file
from playbooks.cli import output
from playbooks.cli.task import command
from playbooks.selection import IMAGE_PROGRAM

__all__ = ["init"]

_FOLDER = "cluster"
_MOST_BYTES = 1 << 20
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
"""A folder's name, which the fabfile has in quotes; hidden ones, as `.git`, mean something to others."""


@dataclass(frozen=True, slots=True)
class _File:
    """A file to write; one that is there stays if it ``serves``, a pattern of one of its lines."""

    name: str
    text: str
    serves: str = ""

    @property
    def needed(self) -> str:
        """The line of it that an existing file lacks."""
        lines = self.text.splitlines()
        return next(line for line in lines if re.match(self.serves, line))


_PROGRAM = '''\
"""The Pulumi program of {what}, which is Ranklift's; resources of your own may follow."""

import runpy

runpy.run_module("{module}", run_name="__main__")
'''
_FILES = (
    # The first one, so that a stack's keys cannot be committed.
    _File(".gitignore", ".ranklift/\n__pycache__/\n", r"/?\.ranklift/?\s*$"),
    _File(".ranklift-ignore", "# Nodes need no file of this folder.\n*\n"),
    _File(
        "stored_providers.py",
        '"""The providers that stacks\' states name; Pulumi imports this file in a process of its own."""\n\n'
        "from infra.stored_providers import *  # noqa: F403\n",
        r"from infra\.stored_providers import ",
    ),
    _File(
        "__main__.py",
        _PROGRAM.format(what="a cluster", module="infra"),
        r"""runpy\.run_module\(["']infra["']""",
    ),
    _File(
        f"{IMAGE_PROGRAM}/__main__.py",
        _PROGRAM.format(what="an image", module="images.build"),
        r"""runpy\.run_module\(["']images\.build["']""",
    ),
    _File(
        f"{IMAGE_PROGRAM}/Pulumi.yaml",
        "name: ranklift-images\n"
        "description: An image for the nodes, made from a recipe by Azure Image Builder\n"
        "runtime: python\n",
        r"name:\s*[\"']?ranklift-images[\"']?\s*$",
    ),
    _File(
        "Pulumi.rehearsal.yaml",
        "# A cluster on Azure emulated by this machine.\n"
        "config:\n"
        "  ranklift:vmSize: Standard_ND40rs_v2\n"
        '  ranklift:nodeCount: "2"\n'
        "  ranklift:location: southcentralus\n"
        "  ranklift:sshFrom: 127.0.0.1/32\n",
    ),
    _File(
        "Pulumi.yaml",
        "name: ranklift\ndescription: An InfiniBand GPU cluster on Azure\nruntime: python\n",
        r"name:\s*[\"']?ranklift[\"']?\s*$",
    ),
)
"""The files of a project folder, in the order in which they are written."""


@command(
    "init",
    example="fab init --folder cluster",
    help={"folder": f"folder in the repository for the cluster's settings and state (default: {_FOLDER})"},
)
def init(_context: Context, folder: str = _FOLDER, dry_run: bool = False) -> None:
    """Make a repository of your own ready: a folder for the cluster, and a fabfile.

    Writes into the repository around the current folder, else into that folder; it needs no fabfile there.
    A file that is there and serves stays as it is; any other is refused before anything is written. What an
    interrupted run has not written, the next one writes.
    """
    new, kept = _planned(_repository(), folder)
    if dry_run:
        output.steps([f"write {path}" for path, _ in new] or ["nothing: all files are there"], json=False)
        return
    for path in kept:
        output.result(f"kept   {path}")
    for path, text in new:
        _write(path, text)
        output.result(f"wrote  {path}")
    output.result(_next_commands(folder))


def _repository() -> Path:
    """Return the folder to make ready. Raise :class:`~launch.errors.InputError` inside a project."""
    here = Path.cwd()
    found = next((one for one in (here, *here.parents) if is_work_tree(one)), here)
    for one in (here, found):
        if is_project(one):
            problem = f"{one} is a project folder already"
            raise InputError("current folder", str(here), problem, "cd to a repository of your own")
    return found


def _planned(repository: Path, folder: str) -> tuple[list[tuple[Path, str]], list[Path]]:
    """Return the files to write with their text, and those that stay.

    Raise :class:`~launch.errors.InputError` for each that is in the way.
    """
    given = Path(folder)
    if not given.parts or not all(map(_NAME.fullmatch, given.parts)):
        remedy = f"name a folder inside {repository}, like {_FOLDER}, of letters, digits, '-', '_' and '.'"
        raise InputError("--folder", folder, "is not a folder of the repository", remedy)
    project = repository / given
    if others := sorted(_others(project)):
        problem = f"has files of its own, like {others[0]}, and is not a project folder"
        remedy = "name a folder that does not exist: fab init --folder NAME"
        raise InputError("folder", str(project), problem, remedy)
    name = re.escape(given.as_posix())
    configured = f'ns.configure({{"ranklift": {{"project": "{given.as_posix()}"}}}})'
    fabfile = _File(
        "__init__.py" if (package := repository / "fabfile").is_dir() else "fabfile.py",
        f"from playbooks import ns\n\n{configured}\n",
        rf"""[^#]*\bproject["']?\s*[:=]\s*["'](\./)?{name}/?["']""",
    )
    new, kept, errors = [], list[Path](), list[InputError]()
    at = {project / file.name: file for file in _FILES}
    at[(package if package.is_dir() else repository) / fabfile.name] = fabfile
    for path, file in at.items():
        real = os.path.realpath(path)
        if not Path(real).is_relative_to(os.path.realpath(repository)):
            raise InputError(
                "file", str(path), f"is {real} by a link, outside of {repository}", "remove the link"
            )
        text = _text_of(path)
        if text is None:
            new.append((path, file.text))
        elif any(re.match(file.serves, line) for line in text.splitlines() or [""]):
            kept.append(path)
        else:
            problem = f"is there and lacks a line like {file.needed}"
            errors.append(InputError("file", str(path), problem, "add it, or move the file away"))
    if errors:
        raise errors[0] if len(errors) == 1 else InputErrors(errors)
    return new, kept


def _others(project: Path) -> Iterator[str]:
    """Yield the names in a folder that is no project's, unless an interrupted run has written them."""
    ours = {Path(file.name).parts[0] for file in _FILES}
    if is_project(project) or not project.is_dir():
        return
    for path in project.iterdir():
        if path.name not in ours and not path.name.startswith(".new-"):
            yield path.name


def _text_of(path: Path) -> str | None:
    """Return the text of a file; None where there is none."""
    try:
        return read_regular(os.path.realpath(path), _MOST_BYTES).decode(errors="replace")
    except FileNotFoundError:
        if not os.path.lexists(path):
            return None
        raise InputError("file", str(path), "is a link to nothing", "remove it") from None
    except OSError as error:
        problem = f"cannot be read as a file ({error.strerror})"
        raise InputError("file", str(path), problem, "move it away") from None


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_unfinished(str(path))
        replace_file(str(path), text.encode(), mode=0o644)
    except OSError as error:
        problem = f"cannot be written ({error.strerror})"
        raise InputError("file", str(path), problem, "correct that and repeat fab init") from None


def _next_commands(folder: str) -> str:
    return f"""
In a rehearsal, on this machine:
  fab rehearsal.start
  fab up --stack rehearsal
On Azure, in a stack dev:
  pulumi -C {folder} stack init dev
  fab config set vmSize Standard_ND40rs_v2    # then nodeCount, location and sshFrom
  fab plan"""
