"""What Invoke imports and few commands need, imported at its first use: it was a fifth of every start."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from types import ModuleType
from typing import Any

__all__ = ["imported_at_first_use"]

_MOCK = "unittest.mock"
"""Imports asyncio and ssl. ``invoke.context`` takes ``Mock`` from it, and only its MockContext calls that."""
_YAML = "invoke.vendor.yaml"
"""Reads settings files in YAML, of which most users have none."""


@contextmanager
def imported_at_first_use() -> Iterator[None]:
    """Import Invoke in this context to delay the imports; afterwards all imports are Python's own again."""
    stand_in = ModuleType(_MOCK)
    stand_in.__dict__["Mock"] = _mock
    sys.modules.setdefault(_MOCK, stand_in)
    sys.meta_path.insert(0, _LazyYaml)
    try:
        yield
    finally:
        sys.meta_path.remove(_LazyYaml)
        if sys.modules.get(_MOCK) is stand_in:
            del sys.modules[_MOCK]


def _mock(*arguments: Any, **options: Any) -> object:
    """Return a new ``Mock``."""
    from unittest.mock import Mock

    return Mock(*arguments, **options)


class _LazyYaml:
    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name == _YAML else None
        if spec is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader)
        return spec
