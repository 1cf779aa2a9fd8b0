"""What the inside of a rehearsed network sees of this machine: everything needed, nothing writable.

The nodes run as this user (whose uid is the only one that exists inside), root included: without the
read-only view a careless ``rm`` on a node would reach the machine under it.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from infra.rehearsal.fabric_kernel import MS_BIND, MS_NODEV, MS_NOSUID, MS_REC, mount, set_readonly
from infra.rehearsal.fabric_node import GATEWAY_MAC, OWN_LIBRARY
from infra.rehearsal.private_paths import NAMES

__all__ = ["METADATA_IP", "add_home", "ip", "plug_in", "prepare"]

METADATA_IP = "169.254.169.254"
"""Where every VM of Azure finds the Instance Metadata Service."""

_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_LINKS = {
    "ptmx": "pts/ptmx",
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
}


def prepare(disks: str, network: str, masked: Sequence[str], homes: Sequence[str]) -> None:
    """Makes the mounts that all nodes of a network share; leaves this process in the network's disk folder.

    Afterwards ``disks`` (the folder of all networks' disks) is writable under relative paths and, like every
    file and folder in ``masked``, empty under its own. Of the ``homes`` there are the folders that are there
    now, but for private ones.
    """
    set_readonly("/", True, recursive=True)
    set_readonly("/proc", False)
    mount(disks, disks, flags=MS_BIND)
    set_readonly(disks, False)
    os.chdir(Path(disks, network))
    Path("image").mkdir(exist_ok=True)
    mount("../image", "image", flags=MS_BIND)
    set_readonly("image", True)
    _devices("dev")
    _rebuild("/home", "homes")
    if Path(OWN_LIBRARY[0]).is_dir():
        _rebuild(OWN_LIBRARY[0], "library", OWN_LIBRARY[1])
    for number, home in enumerate(homes):
        _rebuild(home, f"home-{number}", left_out=NAMES, files=False)
    Path("empty").touch()
    for path in (disks, *masked):
        _hide(path)


def _devices(staging: str) -> None:
    Path(staging).mkdir(exist_ok=True)
    mount("tmpfs", staging, "tmpfs", MS_NOSUID, "size=64k,mode=0755")
    for name in _DEVICES:
        Path(staging, name).touch()
        mount(f"/dev/{name}", f"{staging}/{name}", flags=MS_BIND)
    for name, target in _LINKS.items():
        Path(staging, name).symlink_to(target)
    for name in ("shm", "pts"):
        Path(staging, name).mkdir()
    set_readonly(staging, True)
    mount(staging, "/dev", flags=MS_BIND | MS_REC)


def _hide(path: str) -> None:
    if Path(path).is_dir():
        mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, "size=4k,mode=0755")
    elif Path(path).is_file():
        mount("empty", path, flags=MS_BIND)
    else:
        return  # it lay in a folder that is hidden by now
    set_readonly(path, True)


def _rebuild(folder: str, staging: str, *own: str, left_out: Sequence[str] = (), files: bool = True) -> None:
    """Put a folder in place of itself, with the same in it, to which folders can be added.

    But for what is ``left_out``; without ``files`` only folders, and links to something, are in it.
    """
    Path(staging).mkdir(exist_ok=True)
    mount("tmpfs", staging, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755")
    for entry in sorted(Path(folder).iterdir()):
        place = Path(staging, entry.name)
        if entry.name in own or entry.name in left_out:
            continue
        if entry.is_symlink():
            place.symlink_to(entry.readlink())
        elif _is_folder(entry):
            place.mkdir()
            mount(str(entry), str(place), flags=MS_BIND | MS_REC)
        elif files and entry.is_file():
            place.touch()
            mount(str(entry), str(place), flags=MS_BIND)
    for name in own:
        Path(staging, name).mkdir()
    mount(staging, folder, flags=MS_BIND | MS_REC)
    set_readonly(folder, True)


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:
        return False  # not even its owner may look at it, as at some mounts of FUSE


def add_home(user: str) -> None:
    """Makes ``/home/<user>`` exist, for nodes to mount their own upon."""
    Path("homes", user).mkdir(exist_ok=True)


def plug_in(gateway: str, prefix_length: int) -> None:
    """Makes the network's bridge, with the gateway's address; the metadata service's is behind it."""
    for key, value in {
        "net/ipv4/ip_forward": "1",
        # Nodes reach each other by way of the gateway on purpose: it must not tell them of a shorter way.
        "net/ipv4/conf/all/send_redirects": "0",
        "net/ipv4/conf/default/send_redirects": "0",
        "net/ipv6/conf/all/disable_ipv6": "1",
        "net/ipv6/conf/default/disable_ipv6": "1",
    }.items():
        path = Path("/proc/sys", key)
        if path.exists():
            path.write_text(value)
    ip(
        f"""\
link set lo up
addr add {METADATA_IP}/32 dev lo
link add br0 address {GATEWAY_MAC} type bridge stp_state 0 forward_delay 0 mcast_snooping 0
link set br0 up
addr add {gateway}/{prefix_length} dev br0
"""
    )


def ip(batch: str, *, force: bool = False) -> None:
    """Runs ``ip -batch``; with ``force`` lines that fail (what is gone already) are passed over."""
    argv = ["ip", "-force", "-batch", "-"] if force else ["ip", "-batch", "-"]
    done = subprocess.run(argv, input=batch.encode(), capture_output=True, check=False)
    if done.returncode and not force:
        raise OSError(f"ip -batch: {done.stderr.decode(errors='replace').strip()}")
