"""Properties of the scale set whose change replaces all nodes, and the settings that they are made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from images.os_images import GalleryImage
from infra.config.cluster_config import ClusterConfig
from infra.config.readers import KEY
from infra.naming import METRICS_TAG, NFS_TAG
from launch.errors import InputError

__all__ = [
    "BY_PROGRAM",
    "MADE_BY",
    "refuse_rename",
    "replacing_changes",
    "replacing_settings",
    "settings_of",
]

MADE_BY = "nodesMadeBy"
"""The stack's output with the :func:`replacing_settings` of its last complete update."""

BY_PROGRAM: Mapping[str, tuple[str, ...]] = {
    "sku.name": ("vmSize",),
    "plan": ("image", "vmSize"),
    "virtualMachineProfile.priority": ("spot",),
    "virtualMachineProfile.osProfile.adminUsername": ("adminUser",),
    "virtualMachineProfile.osProfile.computerNamePrefix": ("computerNamePrefix",),
    "virtualMachineProfile.storageProfile.imageReference": ("image", "vmSize"),
    "virtualMachineProfile.storageProfile.osDisk.diffDiskSettings": ("ephemeralOsDisk",),
    f'tags["{NFS_TAG}"]': ("nfs",),
    f'tags["{METRICS_TAG}"]': ("metricsPort",),
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


def replacing_settings(config: ClusterConfig) -> dict[str, str]:
    """Return the value of each setting whose change replaces all nodes; empty for one that is not set."""
    image = config.image
    return {
        "adminUser": config.admin_user,
        "computerNamePrefix": config.computer_name_prefix,
        "ephemeralOsDisk": str(config.ephemeral_os_disk).lower(),
        "image": image.id if isinstance(image, GalleryImage) else image.urn,
        "location": config.location,
        "metricsPort": str(config.metrics_port or ""),
        "nfs": config.shared.kind if config.shared else "",
        "spot": str(config.spot).lower(),
        "vmSize": config.size.name,
        "zone": config.zone or "",
    }


def refuse_rename(outputs: Mapping[str, object], stack: str) -> None:
    """Raise :class:`~launch.errors.InputError` for a stack whose last update had another name."""
    former = outputs.get("stack", stack)
    if former != stack:
        problem = f"was {former} when its resources got their names: an update would replace all of them"
        remedy = f"give it that name back: `pulumi stack rename {former} --stack {stack}`"
        raise InputError("stack", stack, problem, remedy)


def replacing_changes(outputs: Mapping[str, object], config: ClusterConfig) -> frozenset[str]:
    """Return which of those settings an update to ``config`` changes on a stack with these outputs.

    A stack without outputs has never been complete: its nodes, if it has any, need not be kept alike, so all
    count. One that was last updated before outputs had :data:`MADE_BY` shows four of the settings, and had
    none that came later, as a record had none that it lacks.
    """
    wanted = replacing_settings(config)
    if not outputs:
        return frozenset(wanted)
    made_by = outputs.get(MADE_BY)
    if isinstance(made_by, Mapping):
        return frozenset(name for name, value in wanted.items() if made_by.get(name, "") != value)
    shown = ("adminUser", "location", "vmSize")
    changed = {name for name in shown if outputs.get(name) not in (None, wanted[name])}
    if bool(outputs.get("nfsMount")) != bool(wanted["nfs"]):
        changed.add("nfs")
    if wanted["metricsPort"]:
        changed.add("metricsPort")
    return frozenset(changed)


def _under(path: str, prefix: str) -> bool:
    return path == prefix or path.startswith((f"{prefix}.", f"{prefix}["))
