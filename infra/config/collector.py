"""Settings while they are read: what is wrong is gathered, so that all of it comes at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from infra.config import readers
from infra.config.readers import KEY
from launch.errors import InputError

__all__ = ["Settings"]

T = TypeVar("T")


class Settings:
    """The values of one stack, without their namespace; an empty one counts as absent."""

    def __init__(self, settings: Mapping[str, object]) -> None:
        """Of ``settings`` only the keys of this program's namespace are looked at."""
        self.all = {key.removeprefix(KEY): value for key, value in settings.items() if key.startswith(KEY)}
        self.errors: list[InputError] = []

    def has(self, key: str) -> bool:
        """Whether it is set to anything."""
        return self.all.get(key) not in (None, "")

    def required(self, key: str, reader: Callable[[str, object], T]) -> T | None:
        """What ``reader`` makes of it; ``None`` when it is absent or wrong, which leaves an error."""
        if not self.has(key):
            self.errors.append(InputError(KEY + key, None, "is not set", readers.remedy(key)))
            return None
        try:
            return reader(KEY + key, self.all[key])
        except InputError as error:
            self.errors.append(error)
            return None

    def optional(self, key: str, reader: Callable[[str, object], T], default: T) -> T:
        """What ``reader`` makes of it, or the default, also for a wrong one, which leaves an error."""
        value = self.required(key, reader) if self.has(key) else None
        return default if value is None else value

    def perhaps(self, key: str, reader: Callable[[str, object], T]) -> T | None:
        """What ``reader`` makes of it, or ``None``."""
        return self.required(key, reader) if self.has(key) else None

    def guard(self, key: str, reader: Callable[[str, object], T]) -> T | None:
        """As :meth:`perhaps`; but an empty value is wrong, for whoever left a limit empty wanted one."""
        return self.required(key, reader) if key in self.all else None
