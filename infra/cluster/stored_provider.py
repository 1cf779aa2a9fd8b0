"""The base of the project's dynamic providers: a stack's state holds them by name."""

from __future__ import annotations

from importlib import import_module
from operator import methodcaller
from typing import Any

from pulumi import dynamic

__all__ = ["StoredProvider"]


class StoredProvider(dynamic.ResourceProvider):
    """A provider that every Python can load from a stack's state, whichever Python stored it.

    Pulumi stores a provider in the state as a pickle. Of a class that its other process may not find, the
    pickle would hold the byte code, which crashes any other version of Python. Instead it holds the call
    ``import_module("stored_providers").NAME()``. A subclass has to be one of :mod:`infra.stored_providers`.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the call that makes the provider where it is loaded."""
        return methodcaller(type(self).__name__), (_Entry(),)


class _Entry:
    """The module ``stored_providers``, as a pickle names it: imported where the pickle is loaded."""

    def __reduce__(self) -> tuple[Any, ...]:
        return import_module, ("stored_providers",)
