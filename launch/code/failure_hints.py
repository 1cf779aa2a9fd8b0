"""Why a failed job lacked a module or a file that its user has: it was not pushed, or is part of a package
that only a requirements file of the code names."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

__all__ = ["PushedCode", "missing_hints"]

_MODULE = re.compile(r"(?:ModuleNotFoundError|python[\d.]*): No module named '?([\w.]{1,200})")
_CHECKED = re.compile(r"has no module (\w{1,200}(?:, \w{1,200})*): ")
"""In the reason of :func:`launch.remote.node.prepare.missing_modules`."""
_NAME = re.compile(r"ImportError: cannot import name '(\w{1,200})' from '([\w.]{1,200})'")
_FILES = (
    re.compile(r"No such file or directory: '([^']{1,1000})'"),
    re.compile(r"can't open file '([^']{1,1000})'"),
    re.compile(r"(?:^|: )([^:']{1,1000}): No such file or directory"),
)
_SHARED = re.compile(
    r"Permission denied.*/\.ranklift/environments/|/\.ranklift/environments/.*Permission denied"
    r"|(?:environment location: |Could not restore ').*/\.ranklift/environments/"
    r"|^\s*`[^`\s]*/\.ranklift/environments/[^`\s]*`:?$"
)
"""In what pip, uv and conda print where they cannot write into a job's environment."""
_JOBS_COPY = re.compile(r".*/jobs/[^/]+/work/")
"""Where a job's copy of the code lies on a node."""
_LISTS = re.compile(
    r"(?:.*/)?(?:requirements/[^/]+\.(?:txt|in)|[^/]*requirements[^/]*\.(?:txt|in)"
    r"|[^/]*(?:conda|environment)[^/]*\.ya?ml)"
)
"""Paths of requirements and conda files, by their usual names."""
_MOST_LISTS, _MOST_FOLDERS = 32, 256
_MOST_MISSING = 8
"""Modules that a failure is explained for, and files: a job prints what it likes."""
_DEPENDENCIES = re.compile(r"^dependencies:(.*?)(?=^\w|\Z)", re.MULTILINE | re.DOTALL)
_PACKAGE = re.compile(r"[\s'\"-]*+(?:[\w.-]+::)?([A-Za-z0-9][\w.-]*)")
_OTHER_NAMES = {
    "PIL": ("pillow",),
    "cv2": ("opencv-python", "opencv-python-headless"),
    "skimage": ("scikit-image",),
    "sklearn": ("scikit-learn",),
    "torch": ("pytorch",),
    "yaml": ("pyyaml",),
}
"""Packages whose names differ from their module's."""


@dataclass(frozen=True, slots=True)
class PushedCode:
    """The code of a job: the paths that were pushed from ``root``."""

    root: Path
    files: Collection[str]
    read: Callable[[str], str | None]
    """Returns the text of one of them, None where it cannot be read."""

    def unpushed(self, path: str) -> str | None:
        """Return a path of the code that exists on this machine alone; None for another one."""
        path = _JOBS_COPY.sub("", path)
        parts = PurePosixPath(path).parts
        if not parts or path.startswith("/") or ".." in parts or not os.path.lexists(self.root / path):
            return None
        tidy = "/".join(parts)
        is_pushed = any(file == tidy or file.startswith(f"{tidy}/") for file in self.files)
        return None if is_pushed else tidy

    def module(self, name: str) -> Iterator[str]:
        """Yield the paths where a module of that name may lie: in the folders above Python code."""
        scripts = (PurePosixPath(file) for file in self.files if file.endswith(".py"))
        folders = {str(folder) for script in scripts for folder in script.parents}
        for folder in ("", *sorted(folders - {"."}, key=_nearest)[:_MOST_FOLDERS]):
            place = PurePosixPath(folder, *name.split("."))
            yield from (f"{place}.py", f"{place}/__init__.py")


def missing_hints(lines: Iterable[str], code: PushedCode | None = None, runs_in: str = "") -> list[str]:
    """Return what a user can do about modules and files that a job's last ``lines`` name as missing.

    ``code`` is None where it is not known, and ``runs_in`` names the environment that the job had made.
    """
    lines = list(lines)
    modules = _first(
        name
        for line in lines
        for name in (*_MODULE.findall(line), *", ".join(_CHECKED.findall(line)).split(", "))
    )
    listed = {} if code is None else _lists_with(modules, code)
    found = [_module_hint(name, code, runs_in, listed.get(name)) for name in modules]
    if any(_SHARED.search(line) for line in lines):
        what = f"the job's environment{runs_in and f', {runs_in},'}"
        remedy = "list the packages that it lacks there, and set PYTHONPATH for those of the code itself"
        found.append(f"jobs share {what} and cannot change it: {remedy}")
    if code is not None:
        paths = _first(path for line in lines for pattern in _FILES for path in pattern.findall(line))
        names = _first(f"{package}.{name}" for line in lines for name, package in _NAME.findall(line))
        paths += [path for name in names for path in code.module(name)]
        found += [_not_pushed(path, code) for path in filter(None, map(code.unpushed, paths))]
    return list(dict.fromkeys(filter(None, found)))


def _first(names: Iterable[str]) -> list[str]:
    """Return the first that are explained, each once."""
    return list(dict.fromkeys(filter(None, names)))[:_MOST_MISSING]


def _not_pushed(path: str, code: PushedCode) -> str:
    return f"{path} is in {code.root} and was not pushed: see .gitignore and .ranklift-ignore there"


def _module_hint(name: str, code: PushedCode | None, runs_in: str, file: str | None) -> str | None:
    """Return the hint at a module whose package ``file`` lists."""
    top, dot, _ = name.partition(".")
    if code is not None:
        places = (*code.module(name), *code.module(top))
        if unpushed := next(filter(None, map(code.unpushed, places)), None):
            return f"no module {name}: {_not_pushed(unpushed, code)}"
    if dot:
        return None  # its package is there
    if code is None:
        remedy = "name its package in a file, and launch with --requirements FILE or --conda FILE"
        return f"no module {name}: {remedy}"
    return f"no module {name}{_package_hint(name, code, runs_in, file)}"


def _package_hint(name: str, code: PushedCode, runs_in: str, file: str | None) -> str:
    if runs_in:
        where = f"; {file} lists it" if file is not None and PurePosixPath(file).name != runs_in else ""
        return f" in the job's environment, {runs_in}{where}"
    if file is not None:
        option = "--conda" if file.endswith("ml") else "--requirements"
        return f": {file} lists it; launch with {option} {shlex.quote(file)}"
    pushed = next((path for path in code.module(name) if path in code.files), None)
    if pushed is not None:
        folder = PurePosixPath(pushed.removesuffix("/__init__.py")).parent
        remedy = f"if that is the one, launch with --env PYTHONPATH={shlex.quote(str(folder))}"
        return f" on Python's path: {pushed} of the code has its name; {remedy}"
    remedy = "add its package to one, and launch with --requirements FILE or --conda FILE"
    return f": no requirements or conda file of the code lists it; {remedy}"


def _lists_with(modules: Sequence[str], code: PushedCode) -> dict[str, str]:
    """Return the requirements or conda file of the code that names each module's package."""
    packages = {
        module: {_plain(name) for name in (module, *_OTHER_NAMES.get(module, ()))} for module in modules
    }
    found: dict[str, str] = {}
    lists = sorted((file for file in code.files if _LISTS.fullmatch(file)), key=_nearest)
    for file in lists[:_MOST_LISTS]:
        if len(found) == len(modules):
            break
        listed = set(_packages(file, code.read(file) or ""))
        found = {module: file for module, names in packages.items() if names & listed} | found
    return found


def _nearest(path: str) -> tuple[int, str]:
    """Return a path's place in an order by depth."""
    return path.count("/"), path


def _packages(file: str, text: str) -> Iterator[str]:
    """Yield the names of a requirements or conda file's packages."""
    items = [line for line in text.splitlines() if not line.startswith("-")]
    if file.endswith("ml"):
        items = [
            item for part in _DEPENDENCIES.findall(text) for item in re.split(r"[\n,\[\]{}]|\bpip:", part)
        ]
    for item in items:
        if found := _PACKAGE.match(item):
            yield _plain(found[1])


def _plain(name: str) -> str:
    """Return a package's name as package indexes compare it.

    >>> _plain("PyTorch_Lightning")
    'pytorch-lightning'
    """
    return re.sub(r"[-_.]+", "-", name).lower()
