"""Properties of the scale set whose change replaces all nodes, and the settings that they are made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from infra.config.readers import KEY
from infra.naming import NFS_TAG

__all__ = ["BY_PROGRAM", "settings_of"]

BY_PROGRAM: Mapping[str, tuple[str, ...]] = {
    "sku.name": ("vmSize",),
    "plan": ("image", "vmSize"),
    "virtualMachineProfile.priority": ("spot",),
    "virtualMachineProfile.osProfile.adminUsername": ("adminUser",),
    "virtualMachineProfile.osProfile.computerNamePrefix": ("computerNamePrefix",),
    "virtualMachineProfile.storageProfile.imageReference": ("image", "vmSize"),
    "virtualMachineProfile.storageProfile.osDisk.diffDiskSettings": ("ephemeralOsDisk",),
    f'tags["{NFS_TAG}"]': ("nfs",),
    "zones": ("zone",),
}
"""Properties whose change replaces the scale set by the program's request. Azure refuses to change some, and
would change others for later nodes only, which mixes two kinds of nodes in one job; the preview shows the
replacement."""
_BY_PROVIDER: Mapping[str, tuple[str, ...]] = {"location": ("location",)}
"""Properties that Pulumi's provider replaces a resource for by itself."""


def settings_of(properties: Iterable[str]) -> frozenset[str]:
    """Return the settings that can have changed these properties, or parts of them.

    >>> sorted(settings_of(["virtualMachineProfile.storageProfile.imageReference.version", "zones[0]"]))
    ['ranklift:image', 'ranklift:vmSize', 'ranklift:zone']
    """
    known = {**BY_PROGRAM, **_BY_PROVIDER}
    return frozenset(
        KEY + setting
        for changed in properties
        for path, settings in known.items()
        if _under(changed, path) or _under(path, changed)
        for setting in settings
    )


def _under(path: str, prefix: str) -> bool:
    return path == prefix or path.startswith((f"{prefix}.", f"{prefix}["))
