"""Reads files of sizes: checks every row and reports all mistakes at once, each by its size and key."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from catalogue.size import Size
from launch.errors import InputError, InputErrors

__all__ = ["NOTHING", "CatalogueError", "Entries", "read"]

_OWN = ("name", "image", "instead", "note")
"""Keys of a row that are the project's choice; every other one is a figure and stands beside its source."""
_LIKE = "write it like the rows of catalogue/sizes.toml"


class CatalogueError(InputErrors):
    """Rows of a file are wrong."""


@dataclass(frozen=True, slots=True)
class Entries:
    """Everything that the files read so far say."""

    sizes: tuple[Size, ...] = ()
    settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Environment of ranks, by the name that rows use for it."""


NOTHING = Entries()


def read(text: str, file: str, known: Entries) -> Entries:
    """Return ``known`` and what ``text``, the content of ``file``, adds to it.

    Raises :class:`CatalogueError` for anything that is not as the rows of the package are.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise CatalogueError([InputError(file, None, f"is not TOML: {error}", "correct it")]) from None
    reader = _Reader(file, known)
    reader.read(document)
    if reader.errors:
        raise CatalogueError(reader.errors)
    return Entries((*known.sizes, *reader.sizes), reader.settings)


class _Reader:
    """One pass over a file."""

    def __init__(self, file: str, known: Entries) -> None:
        self.file, self.errors = file, list[InputError]()
        self.sizes = list[Size]()
        self.settings = dict(known.settings)
        self.names = {size.name.lower() for size in known.sizes}

    def read(self, document: Mapping[str, Any]) -> None:
        for key in document.keys() - {"size", "settings"}:
            self._wrong(key, None, "is unknown", "a file may hold only [[size]] and [settings.<name>] tables")
        for name, table in self._table("settings", document.get("settings", {})).items():
            self._read_settings(name, self._table(f"settings.{name}", table))
        rows = document.get("size", [])
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            self._wrong("size", None, "is not a list of tables", "write [[size]] before each row")
            return
        seen = set(self.names)
        self.names |= {str(row.get("name")).lower() for row in rows}
        for number, row in enumerate(rows, 1):
            name = row.get("name")
            if not isinstance(name, str) or not name:
                self._wrong(
                    f"size {number}: name", name, "is missing or not a string", "give Azure's spelling"
                )
            elif name.lower() in seen:
                self._wrong(name, None, "has another row", "keep one")
            else:
                seen.add(name.lower())
                self._read_row(name, row)

    def _read_settings(self, name: str, table: Mapping[str, Any]) -> None:
        here = f"settings.{name}"
        for key in table.keys() - {"extends", "source", "env"}:
            self._wrong(f"{here}.{key}", table[key], "is unknown", "known keys: extends, source, env")
        if name in self.settings:
            self._wrong(here, None, "are defined twice", "choose another name")
        self._check_source(here, table.get("source"))
        base, env = table.get("extends"), self._table(f"{here}.env", table.get("env", {}))
        if base is not None and base not in self.settings:
            self._wrong(f"{here}.extends", base, "is unknown", f"use one of {', '.join(self.settings)}")
        for key, value in env.items():
            if not isinstance(value, str):
                self._wrong(f"{here}.env.{key}", value, "is not a string", "put quotes around it")
        self.settings[name] = {**self.settings.get(str(base), {}), **env}

    def _read_row(self, name: str, row: Mapping[str, Any]) -> None:
        before = len(self.errors)
        values = {key: value for key, value in row.items() if key in _OWN}
        for key in row.keys() - {*_OWN, "facts"}:
            known = key in _hints()
            problem = "has no source" if known else "is unknown"
            self._wrong(f"{name}: {key}", row[key], problem, "put it into facts, beside its source")
        sources: dict[str, str] = {}
        for number, fact in enumerate(row.get("facts", ()), 1):
            here = f"{name}: facts {number}"
            given = dict(self._table(here, fact))
            source = self._check_source(here, given.pop("source", None))
            for key, value in given.items():
                if key in sources:
                    self._wrong(f"{name}: {key}", value, "is given twice", "keep one")
                elif key in _OWN or key not in _hints():
                    self._wrong(
                        f"{name}: {key}", value, "is not a figure", f"see catalogue/size.py, or {_LIKE}"
                    )
                sources[key] = source
                values[key] = tuple(value) if isinstance(value, list) else value
        for key, value in values.items():
            hint = _hints().get(key)
            if hint is not None and not _fits(value, hint):
                self._wrong(f"{name}: {key}", value, f"is not {_words(hint)}", _LIKE)
        if len(self.errors) == before:
            for key, problem, remedy in self._contradictions(values):
                self._wrong(f"{name}: {key}", values.get(key), problem, remedy)
        if len(self.errors) == before:
            self.sizes.append(Size(**values, sources=sources))

    def _contradictions(self, row: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
        """Yield key, problem and remedy of each figure that is missing or contradicts another."""
        if "rdma" not in row:
            yield "rdma", "is missing", "state in facts whether the size has InfiniBand"
        for key in ("sriov", "hcas"):
            if row.get("rdma") and key not in row:
                yield key, "is missing", "an InfiniBand size needs it"
        for key in ("sriov", "hcas", "hca_gbps", "link", "connectx3"):
            if row.get("rdma") is False and row.get(key):
                yield key, "contradicts rdma = false", "correct one of them"
        for key in ("gpu", "gpu_driver", "gpu_memory_gib", "fabric_manager"):
            if row.get("gpus") == 0 and row.get(key):
                yield key, "contradicts gpus = 0", "correct one of them"
        limits = [row.get(f"allreduce_{part}gbs", 0) for part in ("report_", "warn_", "")]
        if any(limits) and not 0 < limits[0] < limits[1] < limits[2]:
            yield "allreduce_gbs", "contradicts its limits", "give report < warn < expected"
        unfit = not (row.get("rdma") and row.get("sriov")) or row.get("retired") or row.get("retirement")
        if unfit and "instead" not in row:
            yield "instead", "is missing", "name the nearest size to use instead"
        if "instead" in row and row["instead"].lower() not in self.names:
            yield "instead", "is not a known size", "name a size of the catalogue"
        if "settings" in row and row["settings"] not in self.settings:
            yield (
                "settings",
                "are unknown",
                f"use one of {', '.join(self.settings)}, or add [settings.<name>]",
            )

    def _check_source(self, here: str, source: object) -> str:
        if not isinstance(source, str) or not source.strip():
            self._wrong(
                f"{here}: source", source, "is missing or not a string", "name what gives the figures"
            )
        return str(source)

    def _table(self, here: str, value: object) -> Mapping[str, Any]:
        if isinstance(value, dict):
            return value
        self._wrong(here, value, "is not a table", _LIKE)
        return {}

    def _wrong(self, key: str, value: object, problem: str, remedy: str) -> None:
        self.errors.append(InputError(f"{self.file}: {key}", value, problem, remedy))


@cache
def _hints() -> Mapping[str, Any]:
    """Return the type of every key of a row."""
    hints = get_type_hints(Size)
    return {one.name: hints[one.name] for one in fields(Size) if one.name != "sources"}


def _fits(value: object, hint: Any) -> bool:
    """Return whether a value out of TOML is of a type of the model.

    >>> _fits(True, int | None), _fits(8, int | None), _fits("FDR", Literal["FDR"]), _fits(-1, int)
    (False, True, True, False)
    >>> _fits(("eastus",), tuple[str, ...] | None), _fits(("eastus", 1), tuple[str, ...])
    (True, False)
    """
    kinds = get_args(hint)
    if get_origin(hint) is Literal:
        return value in kinds
    if get_origin(hint) is tuple:
        return isinstance(value, tuple) and all(isinstance(one, str) for one in value)
    if kinds:
        return any(_fits(value, kind) for kind in kinds if kind is not NoneType)
    return type(value) is hint and value != "" and not (isinstance(value, int) and value < 0)


def _words(hint: Any) -> str:
    """Return the type's name for people.

    >>> _words(int | None), _words(Literal["x64", "Arm64"] | None), _words(tuple[str, ...] | None)
    ('int', 'x64 or Arm64', 'list of str')
    """
    if get_origin(hint) is Literal:
        return " or ".join(get_args(hint))
    if get_origin(hint) is tuple:
        return "list of str"
    kinds = [kind for kind in get_args(hint) if kind is not NoneType]
    return _words(kinds[0]) if kinds else str(hint.__name__)
