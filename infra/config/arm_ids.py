"""Ids of existing resources that a stack uses: never changed, never deleted.

>>> split("/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/v/subnets/n").names
('v', 'n')
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from infra.config.readers import text
from launch.errors import InputError

__all__ = ["CONTAINER_REGISTRY", "STORAGE_ACCOUNT", "SUBNET", "VIRTUAL_NETWORK", "GivenId", "reader", "split"]

VIRTUAL_NETWORK = "Microsoft.Network/virtualNetworks"
SUBNET = f"{VIRTUAL_NETWORK}/subnets"
STORAGE_ACCOUNT = "Microsoft.Storage/storageAccounts"
CONTAINER_REGISTRY = "Microsoft.ContainerRegistry/registries"

_ID = re.compile(
    r"/subscriptions/(?P<subscription>[^/]+)/resourceGroups/(?P<group>[^/]+)"
    r"/providers/(?P<namespace>[^/]+)/(?P<rest>[^/]+/[^/]+(?:/[^/]+/[^/]+)*)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class GivenId:
    """The parts of a resource id."""

    subscription: str
    group: str
    type: str
    """E.g. ``Microsoft.Network/virtualNetworks/subnets``."""
    names: tuple[str, ...]
    """Outermost first."""

    @property
    def parent(self) -> str:
        """The id of the parent resource, e.g. a subnet's virtual network."""
        namespace, *collections = self.type.split("/")
        pairs = [part for pair in zip(collections[:-1], self.names[:-1], strict=True) for part in pair]
        head = f"/subscriptions/{self.subscription}/resourceGroups/{self.group}"
        return "/".join([head, "providers", namespace, *pairs])


def split(resource_id: str) -> GivenId:
    """Return the parts of an id; raise ``ValueError`` for anything else."""
    match = _ID.fullmatch(resource_id)
    if match is None:
        raise ValueError(f"{resource_id!r} is not a resource id")
    rest = match["rest"].split("/")
    return GivenId(
        match["subscription"], match["group"], "/".join([match["namespace"], *rest[::2]]), tuple(rest[1::2])
    )


def reader(kind: str) -> Callable[[str, object], str]:
    """Return a reader of ids of one resource type.

    >>> reader(VIRTUAL_NETWORK)("vnetId", "my-network")
    Traceback (most recent call last):
    ...
    launch.errors.InputError: vnetId = 'my-network': is not the id of a Microsoft.Network/\
virtualNetworks; write it like /subscriptions/…/resourceGroups/…/providers/Microsoft.Network/virtualNetworks/…
    """
    return partial(_read, kind)


def _read(kind: str, key: str, value: object) -> str:
    given = text(key, value).rstrip("/")
    namespace, *collections = kind.split("/")
    shown = "/".join(f"{collection}/…" for collection in collections)
    try:
        fits = split(given).type.lower() == kind.lower()
    except ValueError:
        fits = False
    if not fits:
        raise InputError(
            key,
            given,
            f"is not the id of a {kind}",
            f"write it like /subscriptions/…/resourceGroups/…/providers/{namespace}/{shown}",
        )
    return given
