"""The interface of a kind of shared storage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from images.shared_mount import SharedMount
from infra.config.cluster_config import ClusterConfig, SharedFolder, Storage
from infra.config.collector import Settings
from infra.config.readers import whole_number
from infra.preflight.meters import Part
from launch.errors import InputError
from launch.numbers import shown

if TYPE_CHECKING:  # Pulumi and azure-native take a second to import, and most commands only read settings
    import pulumi

    from infra.cluster.groups import Place
    from infra.cluster.network import NodeNetwork

__all__ = ["SIZE_KEY", "SharedResources", "SharedSite", "SharedStorage", "read_size"]

SIZE_KEY = "nfsSizeGib"
_DEFAULT_GIB, _SMALLEST_GIB, _LARGEST_GIB = 1024, 100, 102_400
"""The limits are those of a premium file share (learn.microsoft.com understanding-billing,
storage-files-scale-targets)."""


@dataclass(frozen=True, slots=True)
class SharedSite:
    """What a kind makes its resources in and from."""

    place: Place
    data: Place | None
    """The group of what the stack stores; ``None`` if the stack stores nothing."""
    config: ClusterConfig
    network: NodeNetwork
    operator_key: pulumi.Output[str]
    """The one public key that may log in to a server."""
    changed: frozenset[str] = frozenset()
    """Settings whose change in this update replaces nodes."""


@dataclass(frozen=True, slots=True)
class SharedResources:
    """What a kind made."""

    source: pulumi.Output[str]
    """What the nodes mount, as :meth:`SharedStorage.mount` takes it."""
    ready: list[pulumi.Resource]
    """What must exist before a node can mount it."""


class SharedStorage(Protocol):
    """A kind of shared storage. Its module imports Pulumi's packages inside :meth:`build` only."""

    name: str
    """The value of ``ranklift:nfs`` that chooses it."""
    keys: tuple[str, ...]
    """Settings that it reads, without their namespace."""

    def read(self, settings: Settings, storage: Storage) -> SharedFolder:
        """Return the configured folder; add to ``settings.errors`` what is wrong."""

    def build(self, site: SharedSite) -> SharedResources:
        """Make the resources; what stores files goes into ``site.data``."""

    def mount(self, source: str) -> SharedMount:
        """Return the entry of the nodes' file system table for a source."""

    def parts(self, name: str, config: ClusterConfig) -> list[Part]:
        """Return what bills it in the cluster called ``name``: the parts that :meth:`build` makes."""


def read_size(settings: Settings) -> int:
    """Return the configured GiB of the folder, or the default."""
    return settings.optional(SIZE_KEY, _size, _DEFAULT_GIB)


def _size(key: str, value: object) -> int:
    remedy = f"set it to {_SMALLEST_GIB} to {_LARGEST_GIB} GiB"
    size = whole_number(key, value, remedy)
    if not _SMALLEST_GIB <= size <= _LARGEST_GIB:
        raise InputError(key, shown(value, size), "is not a size that Azure sells", remedy)
    return size
