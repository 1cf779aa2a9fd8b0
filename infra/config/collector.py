"""Settings being read: errors are collected, so that the user sees all of them at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from infra.config import readers
from infra.config.readers import KEY
from launch.errors import InputError

__all__ = ["NotSet", "Settings"]

T = TypeVar("T")


class NotSet(InputError):
    """A setting is missing."""

    def __init__(self, key: str, problem: str, remedy: str) -> None:
        super().__init__(key, None, problem, remedy)


class Settings:
    """The settings of one stack, without their namespace; an empty value counts as absent."""

    def __init__(self, settings: Mapping[str, object]) -> None:
        """Take the keys of this program's namespace from ``settings``."""
        self.all = {key.removeprefix(KEY): value for key, value in settings.items() if key.startswith(KEY)}
        self.known = set[str]()
        """Keys that were read, with a value or without."""
        self.errors: list[InputError] = []

    def has(self, key: str) -> bool:
        """Whether the key has a value."""
        self.known.add(key)
        return self.all.get(key) not in (None, "")

    def required(self, key: str, reader: Callable[[str, object], T]) -> Any:
        """Return the value as ``reader`` returns it; if absent or wrong, add an error and return ``None``."""
        if not self.has(key):
            self.errors.append(NotSet(KEY + key, "is not set", readers.remedy(key)))
            return None
        value = self.all[key]
        if readers.is_encrypted(value):
            remedy = f"`pulumi config set {KEY}{key} VALUE`, without --secret: settings hold no secrets"
            self.errors.append(InputError(KEY + key, None, "is encrypted", remedy))
            return None
        try:
            return reader(KEY + key, value)
        except InputError as error:
            self.errors.append(error)
            return None

    def optional(self, key: str, reader: Callable[[str, object], T], default: T) -> T:
        """Return the value or, if absent, the default; if wrong, add an error and return the default."""
        value = self.perhaps(key, reader)
        return default if value is None else value

    def perhaps(self, key: str, reader: Callable[[str, object], T]) -> T | None:
        """Return the value or, if absent, ``None``; if wrong, add an error and return ``None``."""
        value: T | None = self.required(key, reader) if self.has(key) else None
        return value

    def guard(self, key: str, reader: Callable[[str, object], T]) -> T | None:
        """Like :meth:`perhaps`, but refuse an empty value: an empty limit is a mistake."""
        self.known.add(key)
        value: T | None = self.required(key, reader) if key in self.all else None
        return value
