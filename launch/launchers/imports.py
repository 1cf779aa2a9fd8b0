"""What a script imports whatever happens, itself and through modules of the pushed code."""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import PurePosixPath

__all__ = ["imported_modules", "no_code"]

_MOST_MODULES = 256
_MOST_CHARACTERS = 2 << 20
"""Of all modules that are followed: Python parses about a million in a second."""


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


def imported_modules(
    source: str,
    script: str = "",
    read: Callable[[str], str | None] = no_code,
    installed: Collection[str] = (),
) -> Iterator[str]:
    """Yield the first parts of the modules outside of the code that a script always imports: not under an
    ``if``, a ``try`` or a ``def``.

    ``script`` is its path in the code, and ``read`` returns the text of a file there, None without one.
    Modules of the code lie beside the script, where Python looks first. One that cannot be parsed imports
    nothing. A folder without ``__init__.py`` loses against an ``installed`` package of its name.
    """
    path, look = PurePosixPath(script), cache(read)
    pending, seen, left = deque([_Module(str(path), source, None)]), {str(path)}, _MOST_CHARACTERS
    while pending:
        module = pending.popleft()
        package = module.package or ()
        for one in _imports(module.source):
            if one.level > len(package):
                continue  # fails when it runs
            name = (*package[: len(package) - one.level + 1], *one.module) if one.level else one.module
            found = _modules(name, path.parent, look, installed)
            if not found and not one.level:
                yield name[0]
                continue
            for submodule in one.names:
                found += _modules((*name, submodule), path.parent, look, installed)
            for new in found:
                if new.path not in seen:
                    seen.add(new.path)
                    pending.append(new)
                    left -= len(new.source)
            if left < 0 or len(seen) > _MOST_MODULES:
                look = cache(no_code)


def _modules(
    name: tuple[str, ...], top: PurePosixPath, read: Callable[[str], str | None], installed: Collection[str]
) -> list[_Module]:
    """Return the modules of the code that importing ``name`` runs, the packages around it first."""
    found: list[_Module] = []
    for count in range(1, len(name) + 1):
        place = str(top.joinpath(*name[:count]))
        package = name[:count]
        for path, inside in ((f"{place}/__init__.py", package), (f"{place}.py", package[:-1])):
            if (source := read(path)) is not None:
                found.append(_Module(path, source, inside))
                break
        else:
            if count == 1 and name[0] in installed:
                return []
    return found


@lru_cache(maxsize=2 * _MOST_MODULES)
def _imports(source: str) -> tuple[_Import, ...]:
    """Return the imports of a module's own level; none of a source that this Python cannot parse."""
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
