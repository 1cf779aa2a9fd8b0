"""Registry of the resource types of an emulation. It is handed in: no module here imports a type."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from rehearsal.arm.core.hooks import Hooks
from rehearsal.arm.core.resource_type import GROUP, ResourceType

__all__ = ["Entry", "ResourceTypes"]

Entry = tuple[ResourceType, Callable[[Any], Hooks[Any]]]
"""A resource type's data and the factory of its behaviour, called once with an emulation's services."""


class ResourceTypes:
    """Registry of an emulation's resource types; resource groups are always in it."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._entries = ((GROUP, Hooks), *entries)
        self._types = {kind.type.lower(): kind for kind, _ in self._entries}
        self._tokens = {kind.token: kind for kind in self if kind.token}

    def __iter__(self) -> Iterator[ResourceType]:
        return iter(self._types.values())

    def __getitem__(self, name: str) -> ResourceType:
        """Return a type that is known to be there; :class:`KeyError` otherwise."""
        return self._types[name.lower()]

    def find(self, name: str) -> ResourceType | None:
        """Return the type of an ARM name, compared without case, e.g. ``microsoft.network/NATGATEWAYS``."""
        return self._types.get(name.lower())

    def by_token(self, token: str) -> ResourceType | None:
        """Return the type of a Pulumi type token; None for a type that is not emulated as a resource."""
        return self._tokens.get(token)

    @property
    def tokens(self) -> tuple[str, ...]:
        """Every Pulumi type token, sorted."""
        return tuple(sorted(self._tokens))

    @property
    def namespaces(self) -> frozenset[str]:
        """Resource providers of the types, in lower case."""
        return frozenset(kind.namespace.lower() for kind in self)

    def hooks(self, services: Any) -> Mapping[str, Hooks[Any]]:
        """Return each type's behaviour, by its ARM name, constructed with ``services``."""
        return {kind.type: make(services) for kind, make in self._entries}
