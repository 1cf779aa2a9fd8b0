"""This machine as nodes with Docker, each behind a real sshd on loopback with a home folder of its own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from playbooks.ssh.connection import Cluster
from tests.environments.in_containers import ContainerNodes
from tests.playbooks.server import free_port, make_key, save_stack

__all__ = ["SshNodes"]

_SSHD = "/usr/sbin/sshd"
_PRIVILEGE_SEPARATION = Path("/run/sshd")
_LIMIT_S = 20.0


class SshNodes(ContainerNodes):
    """Nodes that the operator and the head reach by ssh alone."""

    def __init__(self, folder: Path, slots: Sequence[int], docker: str, engine: str) -> None:
        super().__init__(folder, slots, "docker")
        (self.bin / "docker").symlink_to(docker)
        self.env["DOCKER_HOST"] = engine
        self._sshd: dict[int, subprocess.Popen[bytes]] = {}

    @contextmanager
    def served(self) -> Iterator[SshNodes]:
        """Run the nodes' sshds; every process of them has ended afterwards."""
        made = not _PRIVILEGE_SEPARATION.exists()
        _PRIVILEGE_SEPARATION.mkdir(mode=0o755, exist_ok=True)
        keys = self.folder / "keys"
        keys.mkdir()
        host, user = make_key(keys / "host"), make_key(keys / "user")
        ports = {place: free_port() for place in range(len(self.nodes))}
        try:
            for place, port in ports.items():
                self._sshd[place] = self._start(place, port, host, user)
            stack = self.folder / "stack"
            inventory = save_stack(stack, ports, host, user, "root")
            # In place of ~/.ssh/config, which ssh reads in the home folder of the user that runs the tests.
            (self.bin / "ssh").write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {stack}/ssh_config "$@"\n')
            with Cluster(inventory, stack) as cluster:
                self.head = cluster.host(inventory.nodes[0])
                yield self
        finally:
            for process in self._sshd.values():
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(_LIMIT_S)
            for place in self._sshd:
                self.cut(place, signal.SIGKILL)
            if made:
                shutil.rmtree(_PRIVILEGE_SEPARATION)

    def _start(self, place: int, port: int, host: Path, user: Path) -> subprocess.Popen[bytes]:
        folder = self.folder / f"sshd-{place}"
        folder.mkdir()
        home = self.folder / self.nodes[place].name
        env = {**self.env, "HOME": str(home), "TMPDIR": f"{home}/tmp"}
        settings = [
            *(f"Port {port}", "ListenAddress 127.0.0.1", f"HostKey {host}", f"AuthorizedKeysFile {user}.pub"),
            *("UsePAM no", "StrictModes no", "PidFile none", "PasswordAuthentication no"),
            *("PermitRootLogin prohibit-password", "PermitUserRC no", "MaxStartups 100", "MaxSessions 100"),
            "SetEnv " + " ".join(f'{name}="{value}"' for name, value in env.items()),
            'ForceCommand cd "$HOME" && exec sh -c "$SSH_ORIGINAL_COMMAND"',
        ]
        (folder / "sshd_config").write_text("".join(f"{line}\n" for line in settings))
        with (folder / "log").open("wb") as log:
            argv = [_SSHD, "-D", "-e", "-f", str(folder / "sshd_config")]
            process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        until = time.monotonic() + _LIMIT_S
        while "Server listening" not in (folder / "log").read_text():
            assert process.poll() is None and time.monotonic() < until, (folder / "log").read_text()
            time.sleep(0.01)
        return process

    def cut(self, place: int, number: signal.Signals = signal.SIGSTOP) -> None:
        """Stop everything by which a node is reached, as a broken network does: its sshd and its sessions."""
        log = str(self.folder / f"sshd-{place}" / "log")
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                is_sshd = (entry / "exe").readlink().name == "sshd"
                if is_sshd and any(str(one.readlink()) == log for one in (entry / "fd").iterdir()):
                    os.kill(int(entry.name), number)
            except OSError:
                continue
