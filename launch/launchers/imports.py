"""What a script imports whatever happens, itself and through modules of the pushed code."""

from __future__ import annotations

import ast
import re
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePosixPath

__all__ = ["imported_modules", "no_code"]

_MOST_MODULES = 256
_MOST_CHARACTERS = 2 << 20
"""Of all paths that are looked at and all modules there: Python parses about a million in a second."""
_LARGEST = 256 << 10
"""Characters of a script or module that is parsed, which can take a thousand times the memory."""
_DOTTED = re.compile(r"\w++(?:[\s\\]*+\.[\s\\]*+\w++)*+")
_MOST_DOTS = 1000
"""In a name that is parsed: for an import, Python's parser keeps the text up to each dot."""


@dataclass(frozen=True, slots=True)
class _Import:
    """``from MODULE import NAMES``, or ``import MODULE``; ``level`` counts the dots before the module."""

    level: int
    module: tuple[str, ...]
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Module:
    """A module of the code; relative imports in it start at ``package``, None in a script."""

    path: str
    source: str
    package: tuple[str, ...] | None


def no_code(_: str) -> None:
    """Read nothing: the script alone is known."""


class _Code:
    """The files of the code: each is read once, and none when the bounds are reached."""

    def __init__(self, read: Callable[[str], str | None]) -> None:
        self._read = read
        self._texts: dict[str, str | None] = {}
        self._modules, self._characters = _MOST_MODULES, _MOST_CHARACTERS

    @property
    def is_spent(self) -> bool:
        return self._modules <= 0 or self._characters <= 0

    def module(self, folder: str, package: tuple[str, ...], name: str) -> _Module | None:
        """Return the module of that name in a folder, which is that of ``package``."""
        place = f"{folder}{name}"
        for path, inside in ((f"{place}/__init__.py", (*package, name)), (f"{place}.py", package)):
            if (source := self._text(path)) is not None:
                return _Module(path, source, inside)
        return None

    def _text(self, path: str) -> str | None:
        if path not in self._texts and not self.is_spent:
            text = self._read(path)
            self._characters -= len(path)
            if text is not None:
                self._modules -= 1
                is_short = len(text) <= min(_LARGEST, self._characters)
                self._characters -= len(text)
                text = text if is_short else ""
            self._texts[path] = text
        return self._texts.get(path)


def imported_modules(
    source: str,
    script: str = "",
    read: Callable[[str], str | None] = no_code,
    installed: Collection[str] = (),
) -> Iterator[str]:
    """Yield the first parts of the modules outside of the code that a script always imports: not under an
    ``if``, a ``try`` or a ``def``.

    ``script`` is its path in the code, and ``read`` returns the text of a file there, None without one.
    Modules of the code lie beside the script, where Python looks first. One that cannot be parsed, or is
    very large, imports nothing. A folder without ``__init__.py`` loses against an ``installed`` package of
    its name.
    """
    path, code = PurePosixPath(script), _Code(read)
    top = "" if path.parent == PurePosixPath() else f"{path.parent}/"
    pending, seen = deque([_Module(str(path), source, None)]), {str(path)}
    while pending:
        module = pending.popleft()
        package = module.package or ()
        for one in _imports(module.source):
            if one.level > len(package):
                continue  # fails when it runs
            name = (*package[: len(package) - one.level + 1], *one.module) if one.level else one.module
            found = _modules(one, name, top, code, installed)
            if not found and not one.level:
                yield name[0]
            for new in found:
                if new.path not in seen:
                    seen.add(new.path)
                    pending.append(new)


def _modules(
    one: _Import, name: Sequence[str], top: str, code: _Code, installed: Collection[str]
) -> list[_Module]:
    """Return the modules of the code that an import runs whose module's whole name is ``name``, the packages
    around it first."""
    found: list[_Module] = []
    folder = top
    package: tuple[str, ...] = ()
    for part in name:
        if code.is_spent and package:
            return found
        if module := code.module(folder, package, part):
            found.append(module)
        elif not package and part in installed:
            return []
        folder, package = f"{folder}{part}/", (*package, part)
    for part in one.names if found or one.level else ():
        if code.is_spent:
            break
        if module := code.module(folder, package, part):
            found.append(module)
    return found


@lru_cache(maxsize=2 * _MOST_MODULES)
def _imports(source: str) -> tuple[_Import, ...]:
    """Return the imports of a module's own level; none of a source that this Python cannot parse, or not
    within bounds."""
    if len(source) > _LARGEST or any(name[0].count(".") > _MOST_DOTS for name in _DOTTED.finditer(source)):
        return ()
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    found = []
    for statement in body:
        if isinstance(statement, ast.Import):
            found += [_Import(0, tuple(one.name.split("."))) for one in statement.names]
        elif isinstance(statement, ast.ImportFrom):
            module = tuple((statement.module or "").split(".")) if statement.module else ()
            found.append(_Import(statement.level, module, tuple(one.name for one in statement.names)))
    return tuple(found)
