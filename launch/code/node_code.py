"""The node code, ``launch/remote``, as one text and by its id: a launch names it, a push sends it."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterator
from importlib import resources
from importlib.resources.abc import Traversable

__all__ = ["modules", "remote_id"]


@functools.cache
def modules() -> bytes:
    """Return the modules' texts by path, as JSON."""
    return json.dumps(dict(_sources(resources.files("launch.remote"))), sort_keys=True).encode()


def _sources(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, str]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _sources(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(".py"):
            yield prefix + entry.name, entry.read_text(encoding="utf-8")


@functools.cache
def remote_id() -> str:
    """Return the id of ``launch/remote``: 12 hexadecimal digits of its contents' SHA-256.

    On nodes its modules are in ``~/.ranklift/remote/<id>/``: every call of a push sends them along.
    """
    return hashlib.sha256(modules()).hexdigest()[:12]
