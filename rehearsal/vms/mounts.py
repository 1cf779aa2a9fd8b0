"""Mounts of a rehearsed network: what it sees of this machine is listed, and nothing of it is writable.

The nodes run as this user (whose uid is the only one that exists inside), root included: without the
read-only view a careless ``rm`` on a node would reach the machine under it.
"""

from __future__ import annotations

import os
import signal
import stat
import subprocess
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from rehearsal.hardware.sysfs import KERNEL_LOG
from rehearsal.vms.boot import DEVICE_FOLDERS, GATEWAY_MAC, OWN_LIBRARY
from rehearsal.vms.syscalls import (
    MS_BIND,
    MS_NODEV,
    MS_NOSUID,
    MS_RDONLY,
    MS_REC,
    change_root,
    enter_mounts,
    mount,
    set_readonly,
)

__all__ = ["add_home", "change_devices", "ip", "make_bridge", "prepare"]

_DISKS = "boot"
"""Mount point of all disks, with an empty folder over them: an empty ``/boot`` is harmless."""
_VAR_LIB = ("var/lib/hyperv", "var/lib/ranklift")
_EMPTY = (_DISKS, "home", "mnt", "opt", "root", "run", "srv", "tmp", "var/log", "var/tmp", *_VAR_LIB)
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_LINKS = {
    "kmsg": f"/sys/{KERNEL_LOG}",
    "ptmx": "pts/ptmx",
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
}


def prepare(disks: str, network: str, view: Mapping[str, Any]) -> None:
    """Make the mounts that all nodes of a network share; leave this process in the network's disk folder.

    Of this machine's files there is afterwards what ``view`` lists, the fields of
    :class:`~rehearsal.vms.visible_paths.VisiblePaths`, read-only. ``disks`` (the folder of all networks'
    disks) is writable under relative paths alone.
    """
    set_readonly("/", True, recursive=True)
    set_readonly("/proc", False)
    mount(disks, disks, flags=MS_BIND)
    set_readonly(disks, False)
    os.chdir(Path(disks, network))
    Path("image").mkdir(exist_ok=True)
    Path("root").mkdir(exist_ok=True)
    mount("tmpfs", "root", "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755")
    _devices("root/dev")  # first: a project may lie below /dev/shm
    _show(Path("root"), view)
    for name in ("proc", "sys"):
        _bind(f"/{name}", Path("root", name))
    _bind("../image/etc", Path("root/etc"))
    set_readonly("root", True, recursive=True)
    set_readonly("root/proc", False)
    mount(disks, f"root/{_DISKS}", flags=MS_BIND)
    change_root("root")
    os.chdir(f"/{_DISKS}/{network}")
    mount("../image", "image", flags=MS_BIND)
    set_readonly("image", True)
    if Path(OWN_LIBRARY[0]).is_dir():
        _rebuild(OWN_LIBRARY[0], "library", OWN_LIBRARY[1])
    # The same folder twice, once for nodes to see and once to add to.
    Path("homes").mkdir(exist_ok=True)
    mount("/home", "homes", flags=MS_BIND)
    set_readonly("homes", False)
    _hide(f"/{_DISKS}")
    set_readonly(f"/{_DISKS}", True)


def _show(root: Path, view: Mapping[str, Any]) -> None:
    """Build what nodes see of this machine in ``root``; the rest is a few empty folders."""
    for name in _EMPTY:
        (root / name).mkdir(parents=True)
    mount("tmpfs", str(root / "home"), "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755")
    (root / "var/run").symlink_to("../run")
    (root / "opt/microsoft").mkdir()  # nodes have their size's topology file mounted here
    for path in view["shown"]:
        _bind(path, root / path.lstrip("/"))
    for path, target in view["links"]:
        (root / path.lstrip("/")).symlink_to(target)
    for path in view["hidden"]:
        _hide(str(root / path.lstrip("/")))
    _remove([root / path.lstrip("/") for path in view["removed"]])
    for path in view["kept"]:
        place = root / path.lstrip("/")
        if not place.is_dir():
            _bind(path, place)


def _bind(source: str, target: Path) -> None:
    if Path(source).is_dir():
        target.mkdir(parents=True, exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    # With what is mounted below, which the kernel does not let be uncovered.
    mount(source, str(target), flags=MS_BIND | MS_REC)


def _devices(staging: str) -> None:
    Path(staging).mkdir(parents=True)
    mount("tmpfs", staging, "tmpfs", MS_NOSUID, "size=64k,mode=0755")
    for name in _DEVICES:
        Path(staging, name).touch()
        mount(f"/dev/{name}", f"{staging}/{name}", flags=MS_BIND)
    for name, target in _LINKS.items():
        Path(staging, name).symlink_to(target)
    for name in ("shm", "pts"):
        Path(staging, name).mkdir()


def _hide(path: str) -> None:
    """Cover a file or folder by an empty one, to which folders can be added until all is read-only."""
    if Path(path).is_dir():
        mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755")
    elif Path(path).is_file():
        mount("/dev/null", path, flags=MS_BIND)


def _remove(paths: Sequence[Path]) -> None:
    """Lay an overlay over each folder that these are in, in which they are not there."""
    Path("removed").mkdir(exist_ok=True)
    mount("tmpfs", "removed", "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755")
    for number, (folder, inside) in enumerate(groupby(paths, lambda path: path.parent)):
        Path(f"removed/{number}").mkdir()
        for path in inside:  # device 0/0 is the overlay's mark for a removed file
            os.mknod(f"removed/{number}/{path.name}", stat.S_IFCHR)
        mount("overlay", str(folder), "overlay", MS_RDONLY, f"lowerdir=removed/{number}:{folder},userxattr")


def _rebuild(folder: str, staging: str, own: str) -> None:
    """Put a folder in place of itself, with the same in it and one folder more."""
    Path(staging).mkdir(exist_ok=True)
    mount("tmpfs", staging, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755")
    for entry in sorted(Path(folder).iterdir()):
        place = Path(staging, entry.name)
        if entry.name == own:
            continue
        if entry.is_symlink():
            place.symlink_to(entry.readlink())
        elif entry.is_dir() or entry.is_file():
            _bind(str(entry), place)
    Path(staging, own).mkdir()
    mount(staging, folder, flags=MS_BIND | MS_REC)
    set_readonly(folder, True)


def add_home(user: str) -> None:
    """Make ``/home/<user>`` exist, for nodes to mount their own upon."""
    Path("homes", user).mkdir(exist_ok=True)


def change_devices(pid: int, files: Mapping[str, str | None]) -> None:
    """Write files below ``/sys`` of the node whose first process is ``pid``; remove those that are ``None``.

    It is done in a child, with a view of the node's mounts in which they are writable.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            signal.set_wakeup_fd(-1)
            enter_mounts(pid)
            for folder in DEVICE_FOLDERS:
                set_readonly(folder, False)
            for path, text in files.items():
                _replace_text(Path("/sys", path), text)
        except BaseException as error:  # noqa: BLE001 - a forked copy of the netns process must not live on
            os.write(writer, str(error).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        problem = answer.read()
    os.waitpid(child, 0)
    if problem:
        raise OSError(problem)


def _replace_text(path: Path, text: str | None) -> None:
    if text is None:
        path.unlink()
        while not any(path.parent.iterdir()):
            path = path.parent
            path.rmdir()
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    new = Path(*path.parts[:3], ".new")  # in one step, and not beside files that are listed
    new.write_text(text)
    new.replace(path)


def make_bridge(gateway: str, prefix_length: int) -> None:
    """Make the network's bridge with the gateway's address."""
    for key, value in {
        "net/ipv4/ip_forward": "1",
        # Nodes reach each other by way of the gateway on purpose: it must not send them redirects.
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
link add br0 address {GATEWAY_MAC} type bridge stp_state 0 forward_delay 0 mcast_snooping 0
link set br0 up
addr add {gateway}/{prefix_length} dev br0
"""
    )


def ip(batch: str, *, force: bool = False) -> None:
    """Run ``ip -batch``; with ``force`` lines that fail (for what does not exist) are ignored."""
    argv = ["ip", "-force", "-batch", "-"] if force else ["ip", "-batch", "-"]
    done = subprocess.run(argv, input=batch.encode(), capture_output=True, check=False)
    if done.returncode and not force:
        raise OSError(f"ip -batch: {done.stderr.decode(errors='replace').strip()}")
