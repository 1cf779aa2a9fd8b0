"""Azure resource ids: compared without case, shown as they were written first."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["ResourceId"]

_ID = re.compile(
    r"/subscriptions/(?P<subscription>[^/]+)/resourcegroups/(?P<group>[^/]+)"
    r"(?:/providers/(?P<namespace>[^/]+)/(?P<rest>[^/]+/[^/]+(?:/[^/]+/[^/]+)*))?/?",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class ResourceId:
    """One resource; ``parts`` alternate type and name: ``("virtualNetworks", "v", "subnets", "s")``."""

    subscription: str
    group: str
    namespace: str = ""
    parts: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> ResourceId | None:
        """The id in ``text``, or None when it is none.

        >>> text = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/v"
        >>> ResourceId.parse(text).type
        'Microsoft.Network/virtualNetworks'
        >>> ResourceId.parse("nothing") is None
        True
        """
        match = _ID.fullmatch(text)
        if match is None:
            return None
        rest = tuple(match["rest"].split("/")) if match["rest"] else ()
        return cls(match["subscription"], match["group"], match["namespace"] or "", rest)

    def __str__(self) -> str:
        """The id as Azure shows it."""
        base = f"/subscriptions/{self.subscription}/resourceGroups/{self.group}"
        return base if not self.parts else f"{base}/providers/{self.namespace}/{'/'.join(self.parts)}"

    @property
    def key(self) -> str:
        """What ids are compared by."""
        return str(self).lower()

    @property
    def type(self) -> str:
        """Namespace and types, e.g. ``Microsoft.Network/virtualNetworks/subnets``."""
        if not self.parts:
            return "Microsoft.Resources/resourceGroups"
        return "/".join((self.namespace, *self.parts[::2]))

    @property
    def name(self) -> str:
        """The last name in it."""
        return self.parts[-1] if self.parts else self.group

    @property
    def short(self) -> str:
        """``<type>/<name>`` as Azure's messages put it."""
        return f"{self.namespace}/{'/'.join(self.parts)}" if self.parts else self.group

    @property
    def parent(self) -> ResourceId:
        """The resource this one lives in: for ``.../virtualNetworks/v/subnets/s`` the network."""
        rest = self.parts[:-2]
        return ResourceId(self.subscription, self.group, self.namespace if rest else "", rest)

    def child(self, collection: str, name: str) -> ResourceId:
        """A resource inside this one."""
        return ResourceId(self.subscription, self.group, self.namespace, (*self.parts, collection, name))
