"""The entry of a node's file system table for the folder that all nodes share."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SHARED_FOLDER", "SharedMount"]

SHARED_FOLDER = "/mnt/nfs"
"""Path of the shared folder on every node, whatever its kind."""

_NFS_OPTIONS = "vers=4.1,sec=sys,hard,nosuid,nodev,nconnect=4,nofail,_netdev"
"""``nosuid,nodev``: whoever else may mount the folder can make files of root's there, and none of them may
make its user root on a node, or be one of its devices. ``nofail``: a node without its share still takes
part, and ``fab status`` shows it. Four connections are what learn.microsoft.com gives for Azure Files
(mountoptions-settings-azure-files)."""


@dataclass(frozen=True, slots=True)
class SharedMount:
    """What every node mounts at :data:`SHARED_FOLDER`: by NFS 4.1 unless a kind says otherwise."""

    source: str
    """``10.0.0.4:/srv/shared`` or ``account.file.core.windows.net:/account/shared``."""
    type: str = "nfs"
    options: str = _NFS_OPTIONS
    packages: tuple[str, ...] = ("nfs-common",)
    """Packages with the client, which plain Ubuntu lacks and HPC images have."""
