"""The server of the nodes' shared folder: what makes a plain Ubuntu VM with data disks one.

>>> stripes(1024), stripes(4000), stripes(102400)
(Stripes(disks=2, disk_gib=512), Stripes(disks=4, disk_gib=1000), Stripes(disks=16, disk_gib=6400))
"""

from __future__ import annotations

import json
import math
import shlex
from dataclasses import dataclass

__all__ = ["EXPORT", "SERVER_IMAGE", "Stripes", "server_cloud_config", "stripes"]

EXPORT = "/export/shared"
"""Where the server has it."""

SERVER_IMAGE = "Canonical:ubuntu-24_04-lts:server:24.04.202609040"
"""Seen in use for x64 machines of generation 2 in September 2026."""

_MOST_DISKS, _DISK_GIB = 16, 1024  # Standard_E8s_v5 takes 16 data disks (learn.microsoft.com ev5-esv5-series)
_THREADS = 64


@dataclass(frozen=True, slots=True)
class Stripes:
    """The server's data disks."""

    disks: int
    disk_gib: int


def stripes(size_gib: int) -> Stripes:
    """Disks that hold ``size_gib`` GiB together: a disk for every TiB, for each brings its own throughput."""
    disks = min(_MOST_DISKS, max(2, math.ceil(size_gib / _DISK_GIB)))
    return Stripes(disks, math.ceil(size_gib / disks))


def server_cloud_config(*, user: str, subnet_prefix: str, disks: int) -> str:
    """Return the ``#cloud-config`` text of the server, which exports :data:`EXPORT` to the subnet alone.

    ``user`` owns the folder: Azure's provisioning creates the account on server and nodes with the same uid.
    The text holds no secret. The server shows a host key that it makes itself: the nodes' own would make it
    one of them to whoever connects.

    What the server has acknowledged is on its disks (``sync``): a crash takes no checkpoint that a job
    believes to be written.

    Disks that hold a folder already are mounted as they are, never formatted.
    """
    document = {
        "ssh_deletekeys": True,
        "package_update": True,
        "packages": ["lvm2", "xfsprogs", "nfs-kernel-server"],
        "write_files": [
            _file(
                "/etc/exports.d/ranklift.exports",
                f"{EXPORT} {subnet_prefix}(rw,sync,no_subtree_check,no_root_squash)\n",
            ),
            _file("/etc/nfs.conf.d/ranklift.conf", f"[nfsd]\nthreads={_THREADS}\n"),
            _file("/usr/local/sbin/ranklift-nfs-server", _script(shlex.quote(user), disks), "0755"),
        ],
        "runcmd": [["/usr/local/sbin/ranklift-nfs-server"]],
    }
    return "#cloud-config\n" + json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _file(path: str, content: str, permissions: str = "0644") -> dict[str, str]:
    return {"path": path, "content": content, "permissions": permissions}


def _script(user: str, disks: int) -> str:
    return f"""\
#!/bin/bash
# Stripes the data disks, mounts them at {EXPORT} and exports that. May be run again.
set -euo pipefail

disks=()
for ((lun = 0; lun < {disks}; lun++)); do
    disk=/dev/disk/azure/scsi1/lun$lun
    for ((waited = 0; waited < 300; waited++)); do
        [[ -e $disk ]] && break
        sleep 1
    done
    [[ -e $disk ]] || {{ echo "data disk $lun did not come" >&2; exit 1; }}
    disks+=("$disk")
done

if ! vgs ranklift >/dev/null 2>&1; then
    vgcreate ranklift "${{disks[@]}}"
fi
if ! lvs ranklift/shared >/dev/null 2>&1; then
    lvcreate --yes --name shared --extents 100%FREE --stripes {disks} --stripesize 256k ranklift
fi
if ! blkid /dev/ranklift/shared >/dev/null; then
    mkfs.xfs /dev/ranklift/shared
fi

mkdir -p {EXPORT}
if ! grep -q ' {EXPORT} ' /etc/fstab; then
    echo '/dev/ranklift/shared {EXPORT} xfs defaults,noatime,nofail 0 2' >>/etc/fstab
fi
mountpoint -q {EXPORT} || mount {EXPORT}
chown {user}: {EXPORT}
systemctl enable --now nfs-server
systemctl restart nfs-server
exportfs -ra
"""
