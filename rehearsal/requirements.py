"""Requirements of a rehearsal on this machine, checked before anything is started."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from launch.errors import InputError, MissingTool
from rehearsal.vms.netns_client import UNSHARE

__all__ = ["check", "default_nodes_limit"]

_TOOLS = {
    "/usr/sbin/sshd": "openssh-server",
    "ssh-keygen": "openssh-client",
    "ip": "iproute2",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "slirp4netns": "slirp4netns",
    "/usr/sbin/nft": "nftables",
    "cc": "gcc",
}
_SWITCHES = {
    "/proc/sys/user/max_user_namespaces": ("0", "user.max_user_namespaces=65536"),
    "/proc/sys/kernel/unprivileged_userns_clone": ("0", "kernel.unprivileged_userns_clone=1"),
    "/proc/sys/kernel/apparmor_restrict_unprivileged_userns": (
        "1",
        "kernel.apparmor_restrict_unprivileged_userns=0",
    ),
}
_LARGEST = 300  # the largest InfiniBand domain Azure sells
_NODE_KIB = 12 * 1024  # measured: 8 MiB an idle node with its watcher; the rest for what runs on it


def check(proc: Path = Path("/")) -> None:
    """Check tools, kernel settings and namespaces.

    Raises :class:`~launch.errors.MissingTool` naming the Debian package, or
    :class:`~launch.errors.InputError` naming the kernel switch that forbids user namespaces.
    """
    for tool, package in _TOOLS.items():
        if shutil.which(tool) is None:
            raise MissingTool(tool, f"install the package {package}, as in: apt-get install {package}")
    for name, (bad, remedy) in _SWITCHES.items():
        path = proc / name.removeprefix("/")
        value = path.read_text().strip() if path.exists() else ""
        # Root is not unprivileged: only the first switch binds it too.
        if value == bad and (os.geteuid() != 0 or "max_user" in name):
            raise InputError(
                name, value, "forbids the user namespaces that nodes are made of", f"sudo sysctl {remedy}"
            )
    _check_tunnel(proc / "dev/net/tun")
    done = subprocess.run(
        [*UNSHARE, "true"], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    if done.returncode:
        raise InputError(
            "unshare",
            done.stderr.strip().replace("\n", "; "),
            "this machine refuses the namespaces that nodes are made of",
            "in a container, allow user namespaces and an unmasked /proc; util-linux must be 2.38 or newer",
        )


def _check_tunnel(device: Path) -> None:
    try:
        os.close(os.open(device, os.O_RDWR))
    except OSError as error:
        problem = f"cannot be opened for the nodes' NAT gateway: {error.strerror}"
        remedy = f"sudo modprobe tun && sudo chmod 666 {device}; to a container, give the device"
        raise InputError("device", str(device), problem, remedy) from error


def default_nodes_limit(meminfo: str) -> int:
    """Return how many nodes fit into the available memory of ``/proc/meminfo``, at most 300.

    >>> default_nodes_limit("MemTotal: 9 kB\\nMemAvailable:  1048576 kB\\n")
    85
    """
    for line in meminfo.splitlines():
        key, _, value = line.partition(":")
        if key == "MemAvailable":
            return max(1, min(_LARGEST, int(value.split()[0]) // _NODE_KIB))
    return _LARGEST
