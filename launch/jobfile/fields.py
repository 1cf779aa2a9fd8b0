"""A reader of a job file's mappings, key by key, that collects errors."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from launch.errors import InputError, InputErrors
from launch.jobfile import values
from launch.jobfile.yaml_source import Ended, Place

__all__ = ["Reader"]

T = TypeVar("T")

_MOST = 100
"""Errors of a file that are shown."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Reader:
    """A reader that collects errors, so that one run reports all mistakes of a file."""

    def __init__(self) -> None:
        self.errors: list[InputError] = []
        self.unused: list[str] = []
        self.places: dict[str, Place] = {}
        self.tables: set[Path] = set()
        """Folders whose MLTable was read: many inputs may name one."""

    def add(self, *errors: InputError) -> None:
        """Collect errors. Raise :class:`~launch.jobfile.yaml_source.Ended` with those so far for one too
        many."""
        for error in errors:
            if len(self.errors) == _MOST:
                problem = f"is wrong too, and more may be: {_MOST} errors are shown"
                raise Ended([*self.errors, InputError(error.key, None, problem, "correct those first")])
            self.errors.append(error)

    @contextlib.contextmanager
    def collecting(self) -> Iterator[None]:
        """Collect an error raised inside, and continue after the block."""
        try:
            yield
        except Ended:
            raise
        except InputErrors as error:
            self.add(*error.errors)
        except InputError as error:
            self.add(error)

    def entries(self, place: Place | None) -> dict[str, Place]:
        """Return a mapping's values by key; none of a missing one, or of one that is wrong."""
        with self.collecting():
            return place.entries() if place is not None else {}
        return {}

    def block(
        self,
        place: Place | None,
        used: Sequence[str],
        unused: Sequence[str] = (),
        hints: Mapping[str, str] | None = None,
    ) -> dict[str, Place]:
        """Return a mapping's ``used`` keys; record ``unused`` ones, report any other as an error."""
        found = {}
        for key, entry in self.entries(place).items():
            if key in used:
                found[key] = self.places[entry.key] = entry
            elif key in unused:
                self.unused.append(entry.key)
            else:
                self.add(values.unknown(entry, key, (*used, *unused), (hints or {}).get(key)))
        return found

    def named(self, place: Place | None, what: str) -> dict[str, Place]:
        """Return a mapping whose keys the user chooses, each an identifier."""
        entries = self.entries(place)
        for key, entry in entries.items():
            self.places[entry.key] = entry
            if not _NAME.fullmatch(key):
                self.add(entry.wrong(f"is not a valid name for {what}", "use letters, digits and _"))
        return entries

    def get(self, block: Mapping[str, Place], key: str, reader: Callable[[Place], T], default: T) -> T:
        """Return a key's value as read by ``reader``; ``default`` where it is missing or wrong."""
        if key in block:
            with self.collecting():
                return reader(block[key])
        return default
