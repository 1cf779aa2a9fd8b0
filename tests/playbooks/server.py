"""A real sshd on loopback, run by whoever runs the tests, with whatever host key a test wants."""

from __future__ import annotations

import os
import pwd
import shlex
import signal
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType

from infra.inventory import Inventory, Node, StackOutputs, save

USER = "azureuser"
NAMESPACE = (
    *("unshare", "--user", "--map-user=1000", "--map-group=1000", "--keep-caps", "--mount"),
    *("--pid", "--fork", "--kill-child", "--mount-proc"),
)
"""sshd lets in the user it runs as and nobody else; in here that is ``USER``, root or not outside."""


def make_key(path: Path, kind: str = "ed25519") -> Path:
    """A new key pair; the public half has ``.pub`` added to its name."""
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-f", str(path)], check=True, timeout=30)
    return path


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


class SshServer:
    """Listens while the context is open; lets in whoever holds ``user_key``."""

    def __init__(self, folder: Path, kind: str = "ed25519") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.host_key, self.user_key = make_key(folder / "host", kind), make_key(folder / "user")
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        """What sshd has logged so far."""
        return (self.folder / "log").read_text()

    def __enter__(self) -> SshServer:
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        names = [entry for entry in pwd.getpwall() if entry.pw_uid != 1000]
        lines = [f"{e.pw_name}:x:{e.pw_uid}:{e.pw_gid}::{e.pw_dir}:{e.pw_shell}" for e in names]
        lines.append(f"{USER}:x:1000:1000::{home}:/bin/bash")
        (self.folder / "passwd").write_text("\n".join(lines) + "\n")
        (self.folder / "sshd_config").write_text(
            f"Port {self.port}\n"
            "ListenAddress 127.0.0.1\n"
            f"HostKey {self.host_key}\n"
            f"AuthorizedKeysFile {self.user_key}.pub\n"
            "LogLevel VERBOSE\nUsePAM no\nStrictModes no\nPidFile none\n"
            "PasswordAuthentication no\nMaxStartups 400:30:1000\nMaxSessions 200\n"
        )
        passwd = shlex.quote(str(self.folder / "passwd"))
        inside = f"mount --bind {passwd} /etc/passwd && exec /usr/sbin/sshd -D -e -f "
        with (self.folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [*NAMESPACE, "sh", "-c", inside + shlex.quote(str(self.folder / "sshd_config"))],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + 20
        while "Server listening" not in self.log:
            assert self._process.poll() is None, self.log
            assert time.monotonic() < deadline, self.log
            time.sleep(0.01)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.die()

    def die(self) -> None:
        """Everything in it ends at once, as on a node whose power is cut."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(20)
            self._process = None


def outputs(host_key: Path, user_key: Path, user: str = USER) -> StackOutputs:
    """A stack's outputs with these keys; whose addresses, the inventory says."""
    return StackOutputs(
        stack="dev",
        scale_set_id="/subscriptions/0/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/s",
        load_balancer_id=None,
        backend_pool=None,
        public_ip=None,
        ssh_port=22,
        vm_size="Standard_ND40rs_v2",
        location="westeurope",
        node_count=1,
        slots=8,
        admin_user=user,
        access="public",
        host_public_key=host_key.with_name(host_key.name + ".pub").read_text(),
        user_private_key=user_key.read_text(),
    )


def save_stack(
    folder: Path, ports: dict[int, int], host_key: Path, user_key: Path, user: str = USER
) -> Inventory:
    """Saves a stack of which instance ``n`` is at 127.0.0.1, port ``ports[n]``."""
    nodes = tuple(
        Node(f"node{number:06d}", number, f"10.0.0.{4 + number}", "127.0.0.1", port, 8, "running")
        for number, port in ports.items()
    )
    inventory = Inventory("dev", "Standard_ND40rs_v2", "westeurope", user, nodes, read_at=1000.0)
    save(inventory, outputs(host_key, user_key, user), folder)
    return inventory
