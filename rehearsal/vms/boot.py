"""Boot of a rehearsed VM: its first process from the fork until it becomes ``sh``.

Runs in a child of :mod:`rehearsal.vms.netns`, so that 300 nodes cost 300 forks and not 300 interpreters.
The working directory is the network's disk folder: its relative paths stay valid although every node hides
that folder from view.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rehearsal.hardware.device_tree import SYSTEM, TOPOLOGY
from rehearsal.hardware.memory import MEMINFO
from rehearsal.vms.syscall_filter import refuse_keyrings
from rehearsal.vms.syscalls import (
    MS_BIND,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_RDONLY,
    MS_REC,
    NODE_NAMESPACES,
    drop_capabilities,
    mount,
    set_readonly,
    unshare,
)

__all__ = [
    "DEVICE_FOLDERS",
    "DRIVER",
    "GATEWAY_MAC",
    "HIDDEN",
    "INIT",
    "INIT_TEXT",
    "INNER_ID",
    "OWN_LIBRARY",
    "NodeSpec",
    "mac",
    "power_on",
]

GATEWAY_MAC = "12:34:56:78:9a:bc"
"""Hardware address of every gateway on Azure."""

INNER_ID = 1000
"""The one user and group id that exists in a rehearsed network: the admin user's."""

OWN_LIBRARY = ("/usr/local/lib", "ranklift")
"""Folder of an image's own programs: the only one of ``/usr`` that is not this machine's."""

HIDDEN = {
    "/tmp": "tmp",  # noqa: S108
    "/run": "run",
    "/var/tmp": "vartmp",  # noqa: S108
    "/var/log": "log",
    "/mnt": "mnt",
    "/usr/local/sbin": "sbin",
    f"{OWN_LIBRARY[0]}/{OWN_LIBRARY[1]}": "ranklift",
    "/var/lib/hyperv": "hyperv",
    "/var/lib/ranklift": "agent",
}
"""Folders that each node has of its own, with their place on its disk."""

DEVICE_FOLDERS = ("/sys/class", "/sys/bus", "/sys/module")
"""Folders in which a node shows its devices, in a layer of its own over the kernel's."""

INIT = "/etc/rehearsal/init"
INIT_TEXT = """\
/etc/rehearsal/bin/first-boot &
if [ -e /sys/module/nvidia ]; then
    for file in /sys/bus/pci/devices/*/class; do
        read -r class <"$file"
        case $class in 0x0680*) /etc/rehearsal/bin/nv-fabricmanager infinity & break ;; esac
    done
fi
while :; do
    /usr/sbin/sshd -D -E /var/log/auth.log &
    wait $!
    sleep 0.2
done
"""


DRIVER = "image/driver"
"""Folder below the network's with the library of NVIDIA's driver."""

_OWN_BOOT = "/run/boot_id"
_LOCKED = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs")


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """Node to boot; its disk is the folder ``name``."""

    name: str
    private_ip: str
    prefix_length: int
    gateway: str
    admin_user: str
    keep: Sequence[str]
    """Folders of this machine that stay visible although one of the node's own lies over them."""
    shared: Sequence[Sequence[str]] = ()
    """Folders below the network's, each with the place where the node has it mounted."""
    devices: str = ""
    """Folder below the network's with what the node shows of its devices; empty for nothing."""
    libraries: str = ""
    """This machine's folder of libraries in which the node has its driver's, too; empty for none."""

    @property
    def link(self) -> str:
        """Name of the network's end of the node's link.

        >>> NodeSpec("node000000", "10.0.0.4", 16, "10.0.0.1", "azureuser", ()).link
        'v0a000004'
        """
        return "v" + socket.inet_aton(self.private_ip).hex()


def mac(private_ip: str) -> str:
    """Return the hardware address, of Microsoft's block, for a private address.

    >>> mac("10.0.1.4")
    '00:0d:3a:00:01:04'
    """
    return "00:0d:3a:" + socket.inet_aton(private_ip)[1:].hex(":")


def power_on(spec: NodeSpec, index: int, status: int, go: int, open_files: tuple[int, int]) -> None:
    """Turn this forked process into the node; never return.

    Writes ``<index> pid <n>`` and ``<index> ready`` to ``status``, then waits for end of file on ``go``: by
    then the link exists. A failure is ``<index> error <text>``.
    """
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        unshare(NODE_NAMESPACES)
        child = os.fork()
        if child:
            os.write(status, f"{index} pid {child}\n".encode())
            os._exit(0)
        socket.sethostname(spec.name)
        _mount_all(spec)
        _set_sysctls()
        os.write(status, f"{index} ready\n".encode())
        os.read(go, 1)
        _configure_network(spec)
        _become_init(open_files)
    except BaseException as error:  # noqa: BLE001 - a forked copy of the netns process must not live on
        text = str(error).replace("\n", " ")[:500]
        os.write(status, f"{index} error {text}\n".encode())
    os._exit(1)


def _mount_all(spec: NodeSpec) -> None:
    disk = spec.name
    mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    # Inside some containers sysfs is covered in part and the kernel refuses another: this machine's own is
    # then seen, which only shows other network interfaces.
    with contextlib.suppress(OSError):
        mount("sysfs", "/sys", "sysfs", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC)
    if spec.devices:
        _show_devices(spec)
    mount("tmpfs", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777")  # noqa: S108
    mount("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0600")
    mount("tmpfs", f"{disk}/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755")
    _mkdir(f"{disk}/run/vnet")
    mount("vnet", f"{disk}/run/vnet", flags=MS_BIND)
    set_readonly(f"{disk}/run/vnet", True)
    options = f"lowerdir=image/etc,upperdir={disk}/etc,workdir={disk}/work,userxattr"
    mount("overlay", "/etc", "overlay", 0, options)
    places = HIDDEN | {f"/home/{spec.admin_user}": "home"}
    for source, target in (*spec.shared, *zip(spec.keep, spec.keep, strict=True)):
        for hidden, place in places.items():
            if target.startswith(f"{hidden}/"):
                staged = f"{disk}/{place}{target.removeprefix(hidden)}"
                _mkdir(staged)
                mount(source, staged, flags=MS_BIND | MS_REC)
    for hidden, place in places.items():
        if Path(hidden).is_dir():
            mount(f"{disk}/{place}", hidden, flags=MS_BIND | MS_REC)
    os.chdir("/")


def _show_devices(spec: NodeSpec) -> None:
    for folder in DEVICE_FOLDERS:
        upper, work = f"{spec.name}{folder}", f"{spec.name}/work{folder}"
        _mkdir(upper)
        _mkdir(work)
        lower = f"{spec.devices}/{SYSTEM}/{Path(folder).name}"
        options = f"lowerdir={lower}:{folder},upperdir={upper},workdir={work},userxattr"
        mount("overlay", folder, "overlay", MS_NOSUID | MS_NODEV | MS_NOEXEC, options)
        set_readonly(folder, True)
    if Path(spec.devices, MEMINFO).exists():
        own = Path(spec.name, MEMINFO)  # written again by this process's parent
        own.write_text(Path(spec.devices, MEMINFO).read_text())
        mount(str(own), "/proc/meminfo", flags=MS_BIND)
        set_readonly("/proc/meminfo", True)
    if Path(spec.devices, TOPOLOGY).exists():
        mount(f"{spec.devices}/{TOPOLOGY}", "/opt/microsoft", flags=MS_BIND)
        set_readonly("/opt/microsoft", True)
    if spec.libraries:
        options = f"lowerdir={DRIVER}:{spec.libraries},userxattr"
        mount("overlay", spec.libraries, "overlay", MS_RDONLY, options)


def _mkdir(path: str) -> None:
    Path(path).mkdir(parents=True, exist_ok=True)


def _set_sysctls() -> None:
    for key, value in {
        "net/ipv6/conf/all/disable_ipv6": "1",
        "net/ipv6/conf/default/disable_ipv6": "1",
        "net/ipv4/ip_unprivileged_port_start": "0",
        "net/ipv4/ping_group_range": f"{INNER_ID} {INNER_ID}",
    }.items():
        path = Path("/proc/sys", key)
        if path.exists():
            path.write_text(value)
    # For root the kernel's root is inside, too: a node must not reach the kernel's settings.
    for name in _LOCKED:
        if Path(name).exists():
            mount(name, name, flags=MS_BIND)
            set_readonly(name, True)
    # UCX takes processes that see the same boot for ones that share memory.
    Path(_OWN_BOOT).write_text(Path("/proc/sys/kernel/random/uuid").read_text())
    mount(_OWN_BOOT, "/proc/sys/kernel/random/boot_id", flags=MS_BIND)


def _configure_network(spec: NodeSpec) -> None:
    # All traffic goes by way of the gateway, as on Azure, and its hardware address is given: 300 nodes asking
    # for each other's would overflow the kernel's one neighbour table.
    batch = f"""\
link set lo up
link set eth0 up
addr add {spec.private_ip}/{spec.prefix_length} dev eth0 noprefixroute
neigh replace {spec.gateway} lladdr {GATEWAY_MAC} dev eth0 nud permanent
route add default via {spec.gateway} dev eth0 onlink
"""
    subprocess.run(["ip", "-batch", "-"], input=batch.encode(), check=True, capture_output=True)


def _become_init(open_files: tuple[int, int]) -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_NOFILE, open_files)
    os.umask(0o022)
    nothing = os.open("/dev/null", os.O_RDWR)
    for descriptor in range(3):
        os.dup2(nothing, descriptor)
    refuse_keyrings()
    drop_capabilities()
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
    os.execve("/bin/sh", ["init", INIT], environment)  # noqa: S606 - it is the shell
