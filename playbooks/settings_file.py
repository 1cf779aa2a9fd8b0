"""A stack's settings with their places: its configuration file, and the project's own ``config``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launch.errors import InputError

__all__ = ["Setting", "read_settings"]

_OF_TAGS = (ValueError, LookupError, TypeError, AttributeError, RecursionError)
"""What PyYAML raises beside its own errors, for tags whose value is none and for deep documents."""
_SPACE = "ranklift:"


@dataclass(frozen=True, slots=True)
class Setting:
    """A value, and the line of the file that sets it."""

    value: Any
    file: Path
    line: int

    @property
    def place(self) -> str:
        """The file's name and the line."""
        return f"{self.file.name}:{self.line}"


def read_settings(file: Path) -> dict[str, Setting]:
    """Return the settings of the stack that ``file`` configures, by keys like ``ranklift:nodeCount``.

    As for Pulumi, ``config`` of the ``Pulumi.yaml`` beside it has the values of keys that ``file`` lacks: its
    keys may lack the project's name, and a value may be the ``value`` or the ``default`` of a mapping.
    Raises :class:`FileNotFoundError` without ``file``, :class:`~launch.errors.InputError` for a file that is
    not YAML.
    """
    own = {key: Setting(value, file, line) for key, value, line in _config(file)}
    project = file.with_name("Pulumi.yaml")
    shared = {}
    for key, given, line in _config(project) if project.is_file() else ():
        is_typed = isinstance(given, dict) and bool({"value", "default", "type"} & given.keys())
        value = given.get("value", given.get("default")) if is_typed else given
        if value is not None:
            shared[key if ":" in key else f"{_SPACE}{key}"] = Setting(value, project, line)
    return shared | own


def _config(file: Path) -> Iterator[tuple[str, Any, int]]:
    """Yield the keys of a file's ``config`` with their values and lines."""
    import yaml

    try:
        reader = yaml.SafeLoader(file.read_text())
        try:
            document: Any = reader.get_single_node()
            found = reader.construct_document(document) if document is not None else None
        finally:
            reader.dispose()
    except FileNotFoundError:
        raise
    except (OSError, yaml.YAMLError, *_OF_TAGS) as error:
        problem = f"is not YAML ({' '.join(str(error).split())})"
        raise InputError("configuration", str(file), problem, "correct it") from None
    config = found.get("config") if isinstance(found, dict) else None
    if not isinstance(config, dict):
        return
    node = next(value for key, value in document.value if key.value == "config")
    lines = {key.value: key.start_mark.line + 1 for key, _ in node.value}
    for key, value in config.items():
        yield str(key), value, lines.get(str(key), node.start_mark.line + 1)
