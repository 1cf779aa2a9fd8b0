"""YAML with the place of every value, read key by key.

PyYAML's own loader drops line numbers and lets the last of two equal keys win; an error needs the line, and a
duplicate key is a mistake. Only requested values are read, so that aliases that multiply cost nothing; these
are counted wherever an alias repeats them, and have a limit.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from launch.errors import InputError, InputErrors

__all__ = ["Ended", "Place", "compose"]

_MAP, _TEXT, _NULL, _MERGE = (f"tag:yaml.org,2002:{kind}" for kind in ("map", "str", "null", "merge"))
_SHOWN = 60

_Pair = tuple[yaml.Node, yaml.Node]
"""A key and its value."""

_LARGEST = 256 * 1024
"""Size limit of a file in bytes: two commands of Linux's maximum length; YAML parses some 200 kB a second."""
_MOST = 4 * _LARGEST
"""Limit of what is read of a file: characters, and one for each value; without aliases it has fewer."""
_DEEPEST = 100
_LONGEST_NUMBER = 1000


class Ended(InputErrors):
    """Ends the reading of a file: the rest would be read in vain, or without end."""


@dataclass(slots=True)
class _Source:
    """The part that the places of one file share."""

    name: str
    lines: tuple[str, ...]
    given: dict[int, str] = field(default_factory=dict)
    """The origin of a value that is not from the file, by the node's id."""
    merged: dict[int, dict[str, _Pair]] = field(default_factory=dict)
    """A mapping's keys with merged ones, by the node's id."""
    entries: dict[tuple[int, str], dict[str, Place]] = field(default_factory=dict)
    """A mapping's values, by the node's id and the keys that lead to it."""
    left: int = _MOST

    def count(self, size: int) -> None:
        """Count what is read. Raise :class:`Ended` where that is more than the limit."""
        self.left -= size
        if self.left < 0:
            problem = f"has more than {_MOST} characters with its aliases and merges written out"
            raise Ended([InputError("file", self.name, problem, "repeat less by aliases")])


@dataclass(frozen=True, slots=True)
class Place:
    """One value of the file and its location."""

    key: str
    """The keys that lead to the value, e.g. ``limits.timeout``; empty for the whole file."""
    line: int
    """The line of the value's key, counted from 1."""
    node: yaml.Node = field(repr=False)
    source: _Source = field(repr=False)

    @property
    def where(self) -> str:
        """``job.yml, line 4``, or the option that gave the value."""
        given = self.source.given.get(id(self.node))
        return given or f"{self.source.name}, line {self.line}"

    @property
    def is_typed(self) -> bool:
        """Whether the user has typed the value on the command line."""
        return id(self.node) in self.source.given

    @property
    def is_mapping(self) -> bool:
        """Whether the value is a mapping."""
        return isinstance(self.node, yaml.MappingNode)

    @property
    def is_list(self) -> bool:
        """Whether the value is a list."""
        return isinstance(self.node, yaml.SequenceNode)

    @property
    def is_null(self) -> bool:
        """Whether the value is missing or ``null``."""
        return self.node.tag == _NULL

    @property
    def text(self) -> str:
        """A plain value as written; a short description of anything else."""
        if isinstance(self.node, yaml.ScalarNode):
            return str(self.node.value)
        return "a list" if self.is_list else "a mapping"

    @property
    def value(self) -> Any:
        """A plain value by YAML 1.1, as in Azure ML: ``on`` is true, ``010`` is 8.

        Raise :class:`~launch.errors.InputError` for a tag or a date that YAML itself cannot read.
        """
        if not isinstance(self.node, yaml.ScalarNode):
            return None
        if self.node.tag != _TEXT and len(self.node.value) > _LONGEST_NUMBER:
            raise self.wrong("is too long for a number or a date", "put it in quotes if it is text")
        try:
            return yaml.SafeLoader("").construct_object(self.node)
        except (yaml.YAMLError, ValueError, ArithmeticError, LookupError, AttributeError) as error:
            # PyYAML raises the last two for an invalid !!bool or !!timestamp.
            problem = getattr(error, "problem", None) or str(error)
            raise self.wrong(f"cannot be read ({problem})", "put it in quotes if it is text") from None

    def entries(self) -> dict[str, Place]:
        """Return a mapping's values by key, merged keys (``<<``) included.

        Raise :class:`~launch.errors.InputError` for another kind of value, a key that is not text or a
        duplicate key.
        """
        node = self.node
        if not isinstance(node, yaml.MappingNode):
            raise self.wrong("is not a mapping", "write one key per line below it, each followed by a colon")
        if (known := self.source.entries.get((id(node), self.key))) is not None:
            return known
        first: dict[str, int] = {}
        for key_node, _ in node.value:
            key, line = self._key(key_node), key_node.start_mark.line + 1
            if key in first:
                at = f"{self.source.name}, line {line}: {self._path(key)}"
                raise InputError(
                    at, None, f"is given twice, first in line {first[key]}", "keep one of the two"
                )
            first[key] = line
        found = self.source.entries[id(node), self.key] = {
            key: self._part(self._path(key), key_node, value, len(key))
            for key, (key_node, value) in self._merged(node, ()).items()
        }
        return found

    def items(self) -> list[Place]:
        """Return the items of a list. Raise :class:`~launch.errors.InputError` for another kind of value."""
        if not isinstance(self.node, yaml.SequenceNode):
            raise self.wrong("is not a list", "write one item per line below it, each after a dash")
        return [
            self._part(f"{self.key}[{number}]", item, item) for number, item in enumerate(self.node.value)
        ]

    def _part(self, key: str, at: yaml.Node, node: yaml.Node, size: int = 0) -> Place:
        self.source.count(size + 1 + (len(node.value) if isinstance(node, yaml.ScalarNode) else 0))
        return Place(key, at.start_mark.line + 1, node, self.source)

    def wrong(self, problem: str, remedy: str, *, at: str = "") -> InputError:
        """Return the error for this value; with ``at``, a part of the value, name that part's line."""
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
        return _Bare(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")

    def _path(self, key: str) -> str:
        return f"{self.key}.{key}" if self.key else key

    def _key(self, node: yaml.Node) -> str:
        if isinstance(node, yaml.ScalarNode) and node.tag in (_TEXT, _MERGE):
            return str(node.value)
        at = f"{self.source.name}, line {node.start_mark.line + 1}: key"
        if isinstance(node, yaml.ScalarNode) and node.value:
            remedy = f"put it in quotes: '{node.value}'" if len(node.value) <= _SHOWN else "put it in quotes"
            raise InputError(at, _Bare(node.value[:_SHOWN]), "is not a string to YAML", remedy)
        raise InputError(at, None, "is not a name", "write a name before the colon")

    def _merged(self, node: yaml.Node, above: tuple[yaml.Node, ...]) -> dict[str, _Pair]:
        """Return a mapping's keys: its own win over merged ones, earlier merged ones over later ones.

        Each mapping's are stored, as the pairs of mappings that merge one another many times grow without
        bound.
        """
        if id(node) in self.source.merged:
            return self.source.merged[id(node)]
        problem = (
            f"cannot be merged (expected a mapping, but found {_described(node)})"
            if not isinstance(node, yaml.MappingNode)
            else "cannot be merged (it merges itself)"
            if any(node is one for one in above)
            else f"merges more than {_DEEPEST} nested mappings"
            if len(above) == _DEEPEST
            else None
        )
        if problem is not None:
            raise self.wrong(problem, "give << an alias of another mapping")
        own: dict[str, _Pair] = {}
        merged: dict[str, _Pair] = {}
        seen: set[int] = set()
        for key_node, value in node.value:
            key = self._key(key_node)
            if key_node.tag != _MERGE:
                own[key] = key_node, value
                continue
            for one in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                if id(one) in seen:  # a repeated mapping adds nothing
                    continue
                seen.add(id(one))
                pairs = self._merged(one, (*above, node))
                self.source.count(len(pairs))
                for key, pair in pairs.items():
                    merged.setdefault(key, pair)
        found = self.source.merged[id(node)] = {**merged, **own}
        return found


class _Bare(str):
    """A value that an error shows without quotes, as it is in the file."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class _Loader(yaml.SafeLoader):
    """A loader with a limit of depth, as Python's own stack is limited."""

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self._depth += 1
        if self._depth > _DEEPEST:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            problem = f"nested more than {_DEEPEST} levels deep"
            raise yaml.composer.ComposerError(None, None, problem, mark)
        node: yaml.Node | None = super().compose_node(parent, index)
        self._depth -= 1
        return node


def _described(node: yaml.Node) -> str:
    return "a list" if isinstance(node, yaml.SequenceNode) else "one value"


def compose(
    path: Path, overrides: Sequence[tuple[str, str]] = (), kind: str = "a job file, e.g. job.yml"
) -> Place:
    """Return the file as one place; each override sets the plain value at the end of a key's path.

    ``kind`` is what the file has to be. Raise :class:`~launch.errors.InputError` with the line when the file
    cannot be parsed.
    """
    name = str(path)
    try:
        # O_NONBLOCK, so that a pipe does not wait for a writer.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:  # noqa: PTH123  (a handle)
            if stat.S_ISFIFO(os.fstat(stream.fileno()).st_mode):
                raise InputError("file", name, "is a pipe", f"name {kind}")
            data = stream.read(_LARGEST + 1)
        if len(data) > _LARGEST:
            problem = f"is larger than {_LARGEST} bytes"
            raise InputError("file", name, problem, "put long values into files of the code")
        text = data.decode("utf-8-sig")
    except OSError as error:
        problem = f"cannot be read ({error.strerror})"
        raise InputError("file", name, problem, f"name {kind}") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise InputError(f"{name}, line {line}", None, "is not UTF-8", "save it as UTF-8") from None
    try:
        root = _Loader(text).get_single_node()
    except yaml.MarkedYAMLError as error:
        # An unclosed quote is detected at the end of the file only.
        unclosed = error.problem is not None and "end of stream" in error.problem
        mark = (error.context_mark if unclosed else None) or error.problem_mark or error.context_mark
        at = f"{name}, line {mark.line + 1 if mark else 1}"
        problem = ", ".join(part for part in (error.context, error.problem) if part)
        raise InputError(at, None, f"is not YAML ({problem})", "correct it there or just above") from None
    except yaml.YAMLError as error:
        raise InputError(
            name, None, f"is not YAML ({str(error).splitlines()[0]})", "save it as text"
        ) from None
    if root is None or root.tag == _NULL:
        raise InputError(f"{name}, line 1", None, "the file is empty", f"name {kind}")
    source = _Source(name, tuple(text.splitlines()))
    for key, value in overrides:
        root = _override(root, key.split("."), value, source, f"--set {key}")
    return Place("", 1, root, source)


def _override(node: yaml.Node, way: Sequence[str], value: str, source: _Source, given: str) -> yaml.Node:
    """Return the node with one plain value set; nodes on the path are copied, as aliases may share them."""
    mark = node.start_mark
    if not way:
        # The text is one plain value, whatever punctuation it has: never a mapping or a list.
        tag = yaml.SafeLoader("").resolve(yaml.ScalarNode, value, (True, False)) if value else _TEXT  # type: ignore[no-untyped-call]
        new = yaml.ScalarNode(str(tag), value, mark, mark)
        source.given[id(new)] = given
        return new
    if not isinstance(node, yaml.MappingNode):
        if node.tag != _NULL:
            raise InputError(given, value, "leads through a value without keys", "name the value itself")
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
