"""Real nodes for tests: a few VMs, a pinned host key, and ssh to them by way of their forwarded ports."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rehearsal.vms.api import Machine, MetadataService, Settings
from rehearsal.vms.boot_faults import BootFaults
from rehearsal.vms.local import LocalMachines
from rehearsal.vms.nat_gateway import own_addresses
from rehearsal.vms.visible_paths import VisiblePaths, environments, visible_paths

NETWORK = "/subscriptions/0/resourceGroups/test/providers/Microsoft.Network/virtualNetworks/test"
USER = "azureuser"


@dataclass
class Lab:
    """One network of rehearsed nodes and the operator's view of them."""

    folder: Path
    machines: LocalMachines
    user_data: str
    public_key: str
    address: str = ""
    names: list[str] = field(default_factory=list)

    def machine(self, number: int) -> Machine:
        return Machine(f"node{number:06}", private_ip(number), USER, (self.public_key,), self.user_data)

    async def grow(self, numbers: Sequence[int]) -> None:
        machines = [self.machine(number) for number in numbers]
        await self.machines.boot(NETWORK, machines)
        for number, machine in zip(numbers, machines, strict=True):
            listen = (self.address, 50000 + number)
            await self.machines.forward(NETWORK, listen, (machine.private_ip, 22))

    async def ssh(self, number: int, command: str, *options: str) -> tuple[int, str]:
        process = await asyncio.create_subprocess_exec(
            *("ssh", "-F", "none", "-i", str(self.folder / "key"), "-p", str(50000 + number)),
            *("-o", f"UserKnownHostsFile={self.folder / 'known_hosts'}", "-o", "BatchMode=yes"),
            *("-o", "IdentitiesOnly=yes", "-o", "LogLevel=ERROR", "-o", "StrictHostKeyChecking=yes"),
            *("-o", "ConnectTimeout=10", *options, f"{USER}@{self.address}", command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        out, _ = await process.communicate()
        assert process.returncode is not None
        return process.returncode, out.decode()


def private_ip(number: int) -> str:
    return f"10.0.0.{number + 4}"


def in_namespace(name: str) -> list[int]:
    """Processes that live in the user namespace ``name``."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and str((entry / "ns/user").readlink()) == name:
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def gateways(parent: int) -> list[int]:
    """Return the NAT gateways that a process has started."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [int(pid) for pid in children if Path(f"/proc/{pid}/comm").read_text() == "slirp4netns\n"]


def outside_address() -> str:
    """Return an address of this machine that is not loopback: nodes reach a server there by a NAT gateway.

    Without any, as in a namespace that has loopback alone, the test is skipped.
    """
    found = own_addresses()
    return found[0] if found else pytest.skip("this machine has no address but loopback's")


@contextmanager
def outside_server(folder: Path) -> Iterator[str]:
    """Serve the files of a folder at an address of this machine that nodes can reach; yield the URL."""
    host = outside_address()
    port = free_port(host)
    argv = ["setpriv", "--pdeathsig", "KILL", sys.executable, "-m", "http.server", "--bind", host, str(port)]
    with subprocess.Popen(argv, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            while True:
                with suppress(ConnectionRefusedError), socket.create_connection((host, port)):
                    break
                assert server.poll() is None
                time.sleep(0.05)
            yield f"http://{host}:{port}"
        finally:
            server.kill()


def free_port(address: str) -> int:
    """Return a port that no program has at this moment."""
    with socket.socket() as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])


def make_key(path: Path) -> str:
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(path)],
        check=True,
        stdin=subprocess.DEVNULL,
    )
    return path.with_suffix(".pub").read_text().strip()


class Echo:
    """A metadata service that answers each node with its own address, and nothing else."""

    def __init__(self) -> None:
        self.server: asyncio.Server | None = None

    async def open(
        self, network: str, listener: socket.socket, may_ask: Callable[..., Awaitable[bool]]
    ) -> None:
        self.server = await asyncio.start_server(self._tell, sock=listener)

    async def close(self, network: str) -> None:
        assert network == NETWORK and self.server is not None
        self.server.close()

    @staticmethod
    async def _tell(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.0 200 OK\r\n\r\n{writer.get_extra_info('peername')[0]}\n".encode())
        writer.close()


ASK_ECHO = (
    "python3 -c 'import urllib.request as u;"
    ' print(u.urlopen("http://169.254.169.254/", timeout=5).read().decode(), end="")\''
)
"""What a node says of itself after it has asked :class:`Echo`."""


@asynccontextmanager
async def lab(
    folder: Path,
    count: int,
    nodes_limit: int = 16,
    metadata: MetadataService | None = None,
    node_python: Path | None = None,
    view: VisiblePaths | None = None,
    faults: BootFaults | None = None,
) -> AsyncIterator[Lab]:
    public, host = make_key(folder / "key"), make_key(folder / "host")
    (folder / "known_hosts").write_text(f"* {host}\n")
    document = {
        "ssh_keys": {"ed25519_private": (folder / "host").read_text(), "ed25519_public": host},
        "write_files": [
            {
                "path": f"/home/{USER}/.ssh/id_ed25519",
                "content": (folder / "key").read_text(),
                "owner": f"{USER}:{USER}",
                "permissions": "0600",
                "defer": True,
            },
            {"path": "/etc/ssh/ssh_known_hosts", "content": f"* {host}\n"},
        ],
    }
    if view is None:
        needed = environments(node_python) if node_python else ()
        view = visible_paths({}, folder, (*needed, Path(sys.base_prefix)))
    machines = LocalMachines(Settings(folder / "nodes", node_python, nodes_limit, view), metadata, faults)
    made = Lab(folder, machines, "#cloud-config\n" + json.dumps(document), public)
    try:
        await machines.create_network(NETWORK, "10.0.0.0/16")
        made.address = await machines.public_address()
        await made.grow(range(count))
        yield made
    finally:
        await machines.close()
