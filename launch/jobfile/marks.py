"""YAML with the place of everything in it, read key by key.

PyYAML's own reading forgets lines and lets the last of two equal keys win; what people look for in an error
is the line, and a key that stands twice is a mistake. Only what is asked for is looked at, so that aliases
that multiply cost nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from launch.errors import InputError

__all__ = ["Place", "compose"]

_MAP, _TEXT, _NULL, _MERGE = (f"tag:yaml.org,2002:{kind}" for kind in ("map", "str", "null", "merge"))
_SHOWN = 60


@dataclass(frozen=True, slots=True)
class _Source:
    """What the places of one file share."""

    name: str
    lines: tuple[str, ...]
    given: dict[int, str] = field(default_factory=dict)
    """Where a value came from that is not in the file, by the node's id."""


@dataclass(frozen=True, slots=True)
class Place:
    """One value of the file: where it is, and what is there."""

    key: str
    """The way to it, e.g. ``limits.timeout``; empty for the whole file."""
    line: int
    """Its key's line, counted from 1."""
    node: yaml.Node = field(repr=False)
    source: _Source = field(repr=False)

    @property
    def where(self) -> str:
        """``job.yml, line 4``, or the option that gave the value."""
        given = self.source.given.get(id(self.node))
        return given or f"{self.source.name}, line {self.line}"

    @property
    def is_mapping(self) -> bool:
        """Whether it has keys."""
        return isinstance(self.node, yaml.MappingNode)

    @property
    def is_list(self) -> bool:
        """Whether it has items."""
        return isinstance(self.node, yaml.SequenceNode)

    @property
    def is_null(self) -> bool:
        """Whether nothing is there, or ``null``."""
        return self.node.tag == _NULL

    @property
    def text(self) -> str:
        """A plain value as it is written; a short description of anything else."""
        if isinstance(self.node, yaml.ScalarNode):
            return str(self.node.value)
        return "a list" if self.is_list else "a mapping"

    @property
    def value(self) -> Any:
        """A plain value as YAML 1.1 reads it, which is how Azure ML reads it: ``on`` is true, ``010`` is 8.

        Raises :class:`~launch.errors.InputError` for a tag or a date that YAML itself cannot read.
        """
        if not isinstance(self.node, yaml.ScalarNode):
            return None
        try:
            return yaml.SafeLoader("").construct_object(self.node)
        except (yaml.YAMLError, ValueError) as error:
            problem = getattr(error, "problem", None) or str(error)
            raise self.wrong(f"cannot be read ({problem})", "put it in quotes if it is text") from None

    def entries(self) -> dict[str, Place]:
        """What the keys of a mapping hold, merged keys (``<<``) included.

        Raises :class:`~launch.errors.InputError` when it is no mapping, a key is no text or stands twice.
        """
        node = self.node
        if not isinstance(node, yaml.MappingNode):
            raise self.wrong("is no mapping", "write one key a line below it, each with a colon")
        first: dict[str, int] = {}
        for key_node, _ in node.value:
            key, line = self._key(key_node), key_node.start_mark.line + 1
            if key in first:
                at = f"{self.source.name}, line {line}: {self._path(key)}"
                raise InputError(at, None, f"stands twice, first in line {first[key]}", "keep one of the two")
            first[key] = line
        if "<<" in first:
            node = self._merged(node)
        found = {}
        for key_node, value in node.value:
            key = self._key(key_node)
            found[key] = Place(self._path(key), key_node.start_mark.line + 1, value, self.source)
        return found

    def items(self) -> list[Place]:
        """The items of a list; raises :class:`~launch.errors.InputError` when it is none."""
        if not isinstance(self.node, yaml.SequenceNode):
            raise self.wrong("is no list", "write one item a line below it, each with a dash")
        return [
            Place(f"{self.key}[{number}]", item.start_mark.line + 1, item, self.source)
            for number, item in enumerate(self.node.value)
        ]

    def wrong(self, problem: str, remedy: str, *, at: str = "") -> InputError:
        """The error for this value; ``at`` is a part of it whose own line is to be named."""
        where = self.where
        if at and id(self.node) not in self.source.given:
            low, high = self.node.start_mark.line, self.node.end_mark.line
            for number in range(low, min(high + 1, len(self.source.lines))):
                if at in self.source.lines[number]:
                    where = f"{self.source.name}, line {number + 1}"
                    break
        value = None if self.is_null or not isinstance(self.node, yaml.ScalarNode) else self._shown(at)
        return InputError(f"{where}: {self.key}" if self.key else where, value, problem, remedy)

    def _shown(self, at: str) -> Any:
        text = at or self.text
        if self.node.tag == _TEXT or at:
            return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
        return _Bare(text)

    def _path(self, key: str) -> str:
        return f"{self.key}.{key}" if self.key else key

    def _key(self, node: yaml.Node) -> str:
        if isinstance(node, yaml.ScalarNode) and node.tag in (_TEXT, _MERGE):
            return str(node.value)
        at = f"{self.source.name}, line {node.start_mark.line + 1}: key"
        if isinstance(node, yaml.ScalarNode) and node.value:
            raise InputError(at, _Bare(node.value), "is no text to YAML", f"put it in quotes: '{node.value}'")
        raise InputError(at, None, "is no word", "write a name before the colon")

    def _merged(self, node: yaml.MappingNode) -> yaml.MappingNode:
        copy = yaml.MappingNode(node.tag, list(node.value), node.start_mark, node.end_mark)
        try:
            yaml.SafeLoader("").flatten_mapping(copy)
        except (yaml.YAMLError, RecursionError) as error:
            problem = getattr(error, "problem", None) or "it merges itself"
            raise self.wrong(f"cannot be merged ({problem})", "give << an alias of another mapping") from None
        return copy


class _Bare(str):
    """Shown without quotes, as it stands in the file."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def compose(path: Path, overrides: Sequence[tuple[str, str]] = ()) -> Place:
    """The file as one place; each override sets the plain value that a key's way leads to.

    Raises :class:`~launch.errors.InputError` with the line when it cannot be read.
    """
    name = str(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        problem = f"cannot be read ({error.strerror})"
        raise InputError("file", name, problem, "name a job file, e.g. job.yml") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise InputError(f"{name}, line {line}", None, "is not UTF-8", "save it as UTF-8") from None
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        # A quote that is left open is found at the end of the file.
        unclosed = error.problem is not None and "end of stream" in error.problem
        mark = (error.context_mark if unclosed else None) or error.problem_mark or error.context_mark
        at = f"{name}, line {mark.line + 1 if mark else 1}"
        told = ", ".join(part for part in (error.context, error.problem) if part)
        raise InputError(at, None, f"is no YAML ({told})", "mend it there or just above") from None
    except yaml.YAMLError as error:
        raise InputError(
            name, None, f"is no YAML ({str(error).splitlines()[0]})", "save it as text"
        ) from None
    if root is None or root.tag == _NULL:
        raise InputError(f"{name}, line 1", None, "the file is empty", "give at least a command")
    source = _Source(name, tuple(text.splitlines()))
    for key, value in overrides:
        root = _override(root, key.split("."), value, source, f"--set {key}")
    return Place("", 1, root, source)


def _override(node: yaml.Node, way: Sequence[str], value: str, source: _Source, given: str) -> yaml.Node:
    """The node with one plain value set; nodes on the way are copied, as aliases may share them."""
    mark = node.start_mark
    if not way:
        # A value is one value, whatever punctuation it has: never a mapping or a list.
        tag = yaml.SafeLoader("").resolve(yaml.ScalarNode, value, (True, False)) if value else _TEXT  # type: ignore[no-untyped-call]
        new = yaml.ScalarNode(str(tag), value, mark, mark)
        source.given[id(new)] = given
        return new
    if not isinstance(node, yaml.MappingNode):
        if node.tag != _NULL:
            raise InputError(
                given, value, "leads through something that has no keys", "name the value itself"
            )
        node = yaml.MappingNode(_MAP, [], mark, mark)
    entries = list(node.value)
    for position, (key_node, old) in enumerate(entries):
        if key_node.value == way[0]:
            entries[position] = (key_node, _override(old, way[1:], value, source, given))
            break
    else:
        key_node = yaml.ScalarNode(_TEXT, way[0], mark, mark)
        empty = yaml.ScalarNode(_NULL, "", mark, mark)
        made = _override(empty, way[1:], value, source, given)
        source.given.setdefault(id(made), given)
        entries.append((key_node, made))
    copy = yaml.MappingNode(node.tag, entries, mark, node.end_mark)
    if id(node) in source.given:
        source.given[id(copy)] = source.given[id(node)]
    return copy
