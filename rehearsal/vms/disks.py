"""The disks of rehearsed nodes: folders under ``nodes/``, made before a boot, removed after the end.

``image/etc`` is a copy of what everyone may read of this machine's ``/etc``, with users and sshd of a node;
``<network>/<node>/`` holds one folder for each place a node may write to; ``<network>/vnet/hosts`` is the
network's name service: one file, replaced in one step, that every node's ``/etc/hosts`` points to.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import stat
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from launch.errors import InputError, RankliftError, ReplaceNodeError
from rehearsal.vms.api import Machine
from rehearsal.vms.boot import HIDDEN, INIT, INIT_TEXT, INNER_ID
from rehearsal.vms.cloud_init import CloudConfig, File, parse
from rehearsal.vms.nat_gateway import DNS_IP

__all__ = [
    "checked_config",
    "hosts_text",
    "kvp_records",
    "make_disk",
    "make_image",
    "on_disk",
    "place",
    "remove_tree",
    "share",
    "sshd_config_text",
]

_LEFT_OUT = {"ssh", "hosts", "hostname", "passwd", "passwd-", "group", "group-", "subuid", "subgid", "mtab"}
_DATABASES = {
    "hosts": "files dns",
    **dict.fromkeys(("passwd", "group", "shadow", "services", "protocols"), "files"),
}
_SHELL = "/bin/bash"
_GUEST = Path(__file__).with_name("guest")
"""Programs that a node has in place of systemd's and cloud-init's."""


def sshd_config_text(node_python_bin: str | None) -> str:
    """Return the ``sshd_config`` of every node; what cloud-init adds comes first and so wins.

    ``PATH`` of sessions begins with ``node_python_bin``, as on an HPC image that has its own Python. UCX and
    libfabric find no hardware behind a rehearsed node's InfiniBand devices: they are kept to ``eth0``.
    """
    path = "/etc/rehearsal/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
    if node_python_bin:
        path = f"{node_python_bin}:{path}"
    return f"""\
Include /etc/ssh/sshd_config.d/*.conf
Port 22
ListenAddress 0.0.0.0
HostKey /etc/ssh/ssh_host_ed25519_key
PidFile none
UsePAM no
StrictModes yes
PasswordAuthentication no
KbdInteractiveAuthentication no
UseDNS no
PrintMotd no
PrintLastLog no
SetEnv "PATH={path}" LANG=C.UTF-8 UCX_NET_DEVICES=eth0 FI_PROVIDER=tcp
Subsystem sftp internal-sftp
"""


def make_image(folder: Path, node_python_bin: str | None, trusted: Path | None = None) -> None:
    """Make the ``/etc`` that all nodes start from; an image that is there is kept.

    Programs that go by the system's certificates trust ``trusted``, too: curl and Python by the one file, and
    by the folder those of OpenSSL that have no such file.
    """
    if folder.exists():
        return
    building = folder.with_name(folder.name + ".new")
    if building.exists():
        remove_tree(building)
    etc = building / "etc"
    _copy_readable(Path("/etc"), etc)
    ssh = etc / "ssh"
    (ssh / "sshd_config.d").mkdir(parents=True)
    (ssh / "ssh_config").write_text("")
    (ssh / "sshd_config").write_text(sshd_config_text(node_python_bin))
    init = building / INIT.removeprefix("/")
    init.parent.mkdir()
    init.write_text(INIT_TEXT)
    programs = init.parent / "bin"
    programs.mkdir()
    for script in sorted(_GUEST.glob("*.sh")):
        (programs / script.stem).write_bytes(script.read_bytes())
        (programs / script.stem).chmod(0o755)
    # A process of that name is all that nodes see of it.
    (programs / "nv-fabricmanager").symlink_to(shutil.which("sleep") or "/bin/sleep")
    (etc / "nsswitch.conf").write_text("".join(f"{name}: {source}\n" for name, source in _DATABASES.items()))
    (etc / "hosts").symlink_to("/run/vnet/hosts")
    for name, text in (("resolv.conf", f"nameserver {DNS_IP}\n"), ("fstab", "")):
        (etc / name).unlink(missing_ok=True)
        (etc / name).write_text(text)
    (etc / "mtab").symlink_to("/proc/self/mounts")
    if trusted is not None:
        (etc / "ssl/certs").mkdir(parents=True, exist_ok=True)
        (etc / "ssl/certs" / trusted.name).write_text(trusted.read_text())
        with (etc / "ssl/certs/ca-certificates.crt").open("a") as bundle:
            bundle.write(trusted.read_text())
    if node_python_bin:
        (etc / "profile.d").mkdir(exist_ok=True)
        line = f"PATH={shlex.quote(node_python_bin)}:$PATH\n"
        (etc / "profile.d" / "node-python.sh").write_text(line)
    building.rename(folder)


def _copy_readable(source: Path, target: Path) -> None:
    target.mkdir(parents=True)
    with os.scandir(source) as entries:
        for entry in entries:
            if entry.name in _LEFT_OUT and source == Path("/etc"):
                continue
            mode = entry.stat(follow_symlinks=False).st_mode
            place = target / entry.name
            if stat.S_ISLNK(mode):
                place.symlink_to(Path(entry.path).readlink())
            elif stat.S_ISDIR(mode) and mode & 0o005 == 0o005:  # noqa: PLR2004 - readable by everyone
                _copy_readable(Path(entry.path), place)
            elif stat.S_ISREG(mode) and mode & 0o004:
                shutil.copyfile(entry.path, place)
                place.chmod(stat.S_IMODE(mode) & 0o755 | 0o200)


def place(path: str, user: str) -> PurePosixPath:
    """Return the place of the file ``path`` on a node's disk.

    >>> str(place("/home/azureuser/.ssh/config", "azureuser")), str(place("/etc/motd", "azureuser"))
    ('home/.ssh/config', 'etc/motd')

    Raises :class:`~launch.errors.InputError` for a place that a rehearsed node cannot write to.
    """
    places = {f"/home/{user}": "home", "/etc": "etc"} | HIDDEN
    places.pop("/run")
    for prefix, folder in places.items():
        if path.startswith(f"{prefix}/"):
            return PurePosixPath(folder, path.removeprefix(f"{prefix}/"))
    raise InputError(
        "write_files.path",
        path,
        "read-only on a rehearsed node",
        f"use a path below {', '.join(sorted(places))}",
    )


def checked_config(machine: Machine) -> CloudConfig:
    """Return what cloud-init does on a VM. Raises :class:`~launch.errors.ReplaceNodeError` where it fails."""
    try:
        config = parse(machine.user_data, machine.admin_user)
        for path in (*(file.path for file in config.files), *(mount.target for mount in config.mounts)):
            place(path, machine.admin_user)
    except RankliftError as error:
        raise ReplaceNodeError(machine.name, f"cloud-init: {error}") from error
    return config


def make_disk(disk: Path, image: Path, machine: Machine, config: CloudConfig) -> None:
    """Make a node's disk, or brings an existing one to what a first boot leaves."""
    user = machine.admin_user
    for layer in ("sys", "work/sys"):  # a VM that boots again has its size's devices
        remove_tree(disk / layer)
    for name in ("home", "etc", "work", *HIDDEN.values()):
        (disk / name).mkdir(parents=True, exist_ok=True)
    (disk / "home").chmod(0o755)
    for name in ("tmp", "vartmp"):
        (disk / name).chmod(0o1777)
    _write_accounts(disk, user, config.system_users)
    on_disk(disk, "etc/hostname").write_text(f"{machine.name}\n")
    pairs = {"HostName": machine.host, "PhysicalHostName": machine.host, "VirtualMachineName": machine.name}
    on_disk(disk, "hyperv/.kvp_pool_3").write_bytes(kvp_records(pairs))
    skeleton = image / "etc" / "skel"
    if skeleton.is_dir():
        for path in skeleton.rglob("*"):
            on_disk(disk, f"home/{path.relative_to(skeleton)}", folder=path.is_dir())
        shutil.copytree(skeleton, disk / "home", symlinks=True, dirs_exist_ok=True)
        (disk / "home").chmod(0o755)
    keys = "".join(f"{key.strip()}\n" for key in machine.authorized_keys)
    _write(on_disk(disk, "home/.ssh/authorized_keys"), File("", keys.encode(), 0o600))
    (disk / "home/.ssh").chmod(0o700)
    for file in config.files:
        _write(on_disk(disk, place(file.path, user)), file)
    if config.packages:
        _write(on_disk(disk, "etc/cloud/packages"), File("", " ".join(config.packages).encode(), 0o644))
    if config.runcmd:
        _write(on_disk(disk, "etc/cloud/runcmd"), File("", config.runcmd.encode(), 0o755))
    if not config.has_host_key:
        _make_host_key(on_disk(disk, "etc/ssh/ssh_host_ed25519_key"))


def on_disk(disk: Path, path: str | PurePosixPath, *, folder: bool = False) -> Path:
    """Return the place of a file, or a ``folder``, on the disk of a node that is off; clear its way.

    What runs on a node may have made links there, which lead anywhere on this machine, and pipes.
    """
    found = disk
    *above, last = PurePosixPath(path).parts
    for part, is_kind in (
        *((one, stat.S_ISDIR) for one in above),
        (last, stat.S_ISDIR if folder else stat.S_ISREG),
    ):
        found /= part
        try:
            mode = found.lstat().st_mode
        except FileNotFoundError:
            break
        if stat.S_ISDIR(mode) and not is_kind(mode):
            remove_tree(found)
        elif not is_kind(mode):
            found.unlink()
    return disk / path


def kvp_records(pairs: Mapping[str, str]) -> bytes:
    """Return what a VM's host says to it, as ``hv_kvp_daemon`` keeps it in its pool 3.

    Keys and values are of fixed length (Linux, ``tools/hv/hv_kvp_daemon.c``, ``struct kvp_record``).
    """
    return b"".join(
        key.encode().ljust(512, b"\0") + value.encode().ljust(2048, b"\0") for key, value in pairs.items()
    )


def _write_accounts(disk: Path, user: str, system_users: Sequence[str]) -> None:
    on_disk(disk, "etc/passwd").write_text(
        "root:x:0:0:root:/root:/bin/sh\n"
        f"{user}:x:{INNER_ID}:{INNER_ID}::/home/{user}:{_SHELL}\n"
        + "".join(
            f"{name}:x:{INNER_ID}:{INNER_ID}::/nonexistent:/usr/sbin/nologin\n" for name in system_users
        )
        + "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
    )
    # No group "tty": sshd would give a terminal to it, which needs an id that does not exist inside.
    on_disk(disk, "etc/group").write_text(f"root:x:0:\n{user}:x:{INNER_ID}:\nnogroup:x:65534:\n")


def _write(path: Path, file: File) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | (os.O_APPEND if file.append else os.O_TRUNC)
    if not file.append:
        path.unlink(missing_ok=True)
    descriptor = os.open(path, flags, file.mode)
    with os.fdopen(descriptor, "wb") as out:
        os.fchmod(descriptor, file.mode)
        out.write(file.content)


def _make_host_key(path: Path) -> None:
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(path)],
        check=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
    )


def hosts_text(addresses: Mapping[str, str]) -> str:
    """Return ``/etc/hosts`` of all nodes of a network.

    >>> print(hosts_text({"node000000": "10.0.0.4"}), end="")
    127.0.0.1 localhost
    10.0.0.4 node000000
    """
    lines = [f"{address} {name}\n" for name, address in addresses.items()]
    return "127.0.0.1 localhost\n" + "".join(lines)


def share(folder: Path, source: str) -> str:
    """Return the folder below a network's that is an NFS share: all nodes of the network see it."""
    name = f"shares/{hashlib.sha256(source.encode()).hexdigest()[:12]}"
    (folder / name).mkdir(parents=True, exist_ok=True)
    return name


def remove_tree(folder: Path) -> None:
    """Remove a folder with everything in it, whatever modes its users or the overlay left behind."""
    try:
        mode = folder.lstat().st_mode
    except FileNotFoundError:
        return
    if mode & 0o700 != 0o700:  # noqa: PLR2004 - the overlay's work folder has mode 000
        folder.chmod(0o700)
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                remove_tree(Path(entry.path))
            else:
                Path(entry.path).unlink(missing_ok=True)
    folder.rmdir()
