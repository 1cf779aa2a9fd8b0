"""Azure resource ids: compared without case, shown as they were written first."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["ResourceId"]

_BASE = re.compile(
    r"/subscriptions/(?P<subscription>[^/]+)(?:/resourcegroups/(?P<group>[^/]+))?/?", re.IGNORECASE
)
_PROVIDERS = "/providers/"


@dataclass(frozen=True, slots=True)
class ResourceId:
    """One resource; ``parts`` alternate type and name: ``("virtualNetworks", "v", "subnets", "s")``.

    ``group`` is empty for what belongs to the subscription as a whole. ``scope`` is set for what extends
    another resource (role assignments): that resource's id.
    """

    subscription: str
    group: str = ""
    namespace: str = ""
    parts: tuple[str, ...] = ()
    scope: ResourceId | None = None

    @classmethod
    def parse(cls, text: str) -> ResourceId | None:
        """Return the id in ``text``; None when it is not an id.

        >>> text = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/v"
        >>> ResourceId.parse(text).type
        'Microsoft.Network/virtualNetworks'
        >>> ResourceId.parse(f"{text}/providers/Microsoft.Authorization/roleAssignments/r").scope.name
        'v'
        >>> ResourceId.parse("nothing") is None
        True
        """
        cut = text.lower().rfind(_PROVIDERS)
        if cut < 0:
            match = _BASE.fullmatch(text)
            return cls(match["subscription"], match["group"] or "") if match is not None else None
        extended = cls.parse(text[:cut])
        namespace, *rest = text[cut + len(_PROVIDERS) :].rstrip("/").split("/")
        if extended is None or len(rest) % 2 or not rest or not all((namespace, *rest)):
            return None
        return extended.extended(namespace, tuple(rest))

    def extended(self, namespace: str, parts: tuple[str, ...]) -> ResourceId:
        """Return a resource in this group, or an extension of this resource."""
        scope = self if self.parts else None
        return ResourceId(self.subscription, self.group, namespace, parts, scope)

    def __str__(self) -> str:
        """Return the id as Azure shows it."""
        base = str(self.base) if self.parts else f"/subscriptions/{self.subscription}"
        if not self.parts:
            return f"{base}/resourceGroups/{self.group}" if self.group else base
        return f"{base}{_PROVIDERS}{self.namespace}/{'/'.join(self.parts)}"

    @property
    def base(self) -> ResourceId:
        """What precedes the last ``/providers/``: a resource, a group or the subscription."""
        return self.scope or ResourceId(self.subscription, self.group)

    @property
    def key(self) -> str:
        """Form in which ids are compared."""
        return str(self).lower()

    @property
    def type(self) -> str:
        """Namespace and types, e.g. ``Microsoft.Network/virtualNetworks/subnets``."""
        if not self.parts:
            return "Microsoft.Resources/resourceGroups" if self.group else "Microsoft.Resources/subscriptions"
        return "/".join((self.namespace, *self.parts[::2]))

    @property
    def name(self) -> str:
        """The last name in it."""
        return self.parts[-1] if self.parts else self.group or self.subscription

    @property
    def short(self) -> str:
        """``<type>/<name>`` as in Azure's messages."""
        return f"{self.namespace}/{'/'.join(self.parts)}" if self.parts else self.name

    @property
    def parent(self) -> ResourceId:
        """The resource this one lives in: for ``.../virtualNetworks/v/subnets/s`` the network."""
        rest = self.parts[:-2]
        return self.base.extended(self.namespace, rest) if rest else self.base

    def child(self, collection: str, name: str) -> ResourceId:
        """Return a resource inside this one."""
        return ResourceId(
            self.subscription, self.group, self.namespace, (*self.parts, collection, name), self.scope
        )

    def contains(self, other: ResourceId) -> bool:
        """Whether ``other`` is this, or lies in it or below it."""
        return f"{other.key}/".startswith(f"{self.key}/")
