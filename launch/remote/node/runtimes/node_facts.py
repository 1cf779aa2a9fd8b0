"""What a container is given of its node: folders, files, devices and limits that a bare rank has."""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass

from launch.remote.base.files import temporary_folder, which

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["NodeFacts", "closed_mounts", "outermost", "read_node_facts", "shared_mounts"]

_SYSTEM = ("/boot", "/dev", "/efi", "/etc", "/proc", "/root", "/run", "/snap", "/sys", "/usr", "/var")
"""Folders whose mounts are the system's own; an image has its own folders of these names."""
_PROGRAMS = "/opt"
"""Where images have programs: a disk there would hide them, one below it does not."""
_FILES = ("/opt/microsoft", "/etc/nccl.conf")
"""What NCCL reads of Azure's HPC images: topology files of the sizes, and its settings."""
_DEVICES = ("/dev/infiniband", "/dev/gdrdrv")
_NVIDIA = "/dev/nvidiactl"
_TOOLKIT = ("nvidia-container-cli", "nvidia-container-runtime-hook", "nvidia-ctk")
_LIMITS = ("memlock", "nofile", "stack")


@dataclass(frozen=True)
class NodeFacts:
    """Facts of one node, found by its runner."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    folders: tuple[str, ...]
    """Folders that ranks share with the node, none of them inside another."""
    closed: tuple[str, ...]
    """Those of them that nobody but the user who mounted them can enter, not even root."""
    files: tuple[str, ...]
    """Existing files and folders that ranks only read."""
    devices: tuple[str, ...]
    """Existing devices of a fast network."""
    has_gpus: bool
    has_nvidia_toolkit: bool
    limits: tuple[tuple[str, int, int], ...]
    """Name, soft and hard limit of the runner's own resource limits; -1 for none."""


def read_node_facts() -> NodeFacts:
    """Return the facts of this node."""
    with open("/proc/self/mounts", "rb") as file:
        mounts = os.fsdecode(file.read())
    own = (os.environ.get("HOME", "/"), "/tmp", temporary_folder())  # noqa: S108  as a bare rank has it
    path = os.environ.get("PATH", os.defpath)
    folders = outermost([*own, *filter(os.path.isdir, shared_mounts(mounts))])
    return NodeFacts(
        uid=os.getuid(),
        gid=os.getgid(),
        groups=tuple(sorted(set(os.getgroups()) - {os.getgid()})),
        folders=folders,
        closed=tuple(path for path in closed_mounts(mounts) if path in folders),
        files=tuple(filter(os.path.exists, _FILES)),
        devices=tuple(filter(os.path.exists, _DEVICES)),
        has_gpus=os.path.exists(_NVIDIA),
        has_nvidia_toolkit=any(which(name, path) for name in _TOOLKIT),
        limits=tuple((name, *_limit(name)) for name in _LIMITS),
    )


def _limit(name: str) -> tuple[int, int]:
    return resource.getrlimit(getattr(resource, f"RLIMIT_{name.upper()}"))


def shared_mounts(mounts: str) -> list[str]:
    """Return the mount points of disks and shares in the text of /proc/mounts: data that jobs use.

    >>> shared_mounts("/dev/root / ext4 rw 0 0\\nhost:/x /mnt/my\\\\040data nfs4 rw 0 0\\n")
    ['/mnt/my data']
    """
    points = [point for point, _, _ in _parse(mounts)]
    return [point for point in points if point not in ("/", _PROGRAMS) and not _is_within(point, _SYSTEM)]


def closed_mounts(mounts: str) -> list[str]:
    """Return the mount points in the text of /proc/mounts that only their own user can enter: FUSE's without
    ``allow_other`` (mount.fuse3(8)).

    >>> closed_mounts("a:/ /data fuse.sshfs rw,user_id=1000,group_id=1000 0 0\\nb / ext4 rw 0 0\\n")
    ['/data']
    """
    return [
        point
        for point, kind, options in _parse(mounts)
        if kind.partition(".")[0] == "fuse" and not {"allow_other", "allow_root", "user_id=0"} & set(options)
    ]


def _parse(mounts: str) -> Iterator[tuple[str, str, list[str]]]:
    """Yield the mount point, the kind and the options of each line."""
    for line in mounts.splitlines():
        _, point, kind, options, *_ = line.split(" ")
        for code in ("040", "011", "012", "134"):
            point = point.replace(f"\\{code}", chr(int(code, 8)))
        yield point, kind, options.split(",")


def outermost(folders: Iterable[str]) -> tuple[str, ...]:
    """Return the folders that lie in no other one of them, sorted.

    >>> outermost(["/tmp", "/home/me/data", "/tmp/x", "/home/me", "/tmpfs"])
    ('/home/me', '/tmp', '/tmpfs')
    """
    found: list[str] = []
    for folder in sorted({os.path.normpath(folder) for folder in folders}):
        if not _is_within(folder, found):
            found.append(folder)
    return tuple(found)


def _is_within(path: str, folders: Iterable[str]) -> bool:
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders)
