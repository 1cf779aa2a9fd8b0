"""Requirements of a rehearsal on this machine, checked before anything is started."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote, urlsplit

from launch.errors import InputError, MissingTool
from rehearsal.vms.netns_client import UNSHARE

__all__ = ["check", "check_packages", "default_nodes_limit"]

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
_PROJECT = Path(__file__).resolve().parents[1]
_NODE_KIB = 12 * 1024  # measured: 8 MiB an idle node with its watcher; the rest for what runs on it


def check(proc: Path = Path("/")) -> None:
    """Check packages, tools, kernel settings and namespaces.

    Raises :class:`~launch.errors.MissingTool` naming the Python or Debian packages and the command that
    installs them, or :class:`~launch.errors.InputError` naming the kernel switch that forbids user
    namespaces.
    """
    check_packages()
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


def check_packages(project: Path = _PROJECT) -> None:
    """Check the packages of the extra ``rehearsal``, which Ranklift runs without unless it rehearses.

    ``project`` is the checkout around this module; an installed package has none.
    """
    listed = project / "requirements" / "rehearsal.in"
    if listed.exists():
        lines = [line for line in listed.read_text().splitlines() if line and not line.startswith("#")]
        source = str(project)
    else:
        lines = [one for one in metadata.requires("ranklift") or () if re.search("extra == .rehearsal", one)]
        source = _source()
    names = [match[0] for line in lines if (match := re.match(r"[\w.-]+", line))]
    missing = [name for name in names if not _is_installed(name)]
    if missing:
        command = f"pip install {shlex.quote(f'{source}[rehearsal]')}"
        remedy = f"install Ranklift with it: {command}"
        more = ", or `make setup` there" if source == str(project) else ""
        raise MissingTool(f"the extra rehearsal ({', '.join(missing)})", f"{remedy}{more}")


def _is_installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _source() -> str:
    """Return what pip installed Ranklift from, as it is given to pip: a folder, else the package's name."""
    noted = metadata.distribution("ranklift").read_text("direct_url.json")  # PEP 610
    url = urlsplit(json.loads(noted)["url"] if noted else "")
    return unquote(url.path) if url.scheme == "file" and Path(unquote(url.path)).is_dir() else "ranklift"


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
