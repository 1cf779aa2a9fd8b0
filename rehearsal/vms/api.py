"""Protocol between the emulated Azure and this machine: networks, VMs and forwarded ports.

The ARM endpoint decides what exists; :mod:`rehearsal.vms.local` makes it with namespaces and sshd. Tests of
the endpoint pass a recording double.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from rehearsal.vms.visible_paths import VisiblePaths

__all__ = ["CUT", "Machine", "Machines", "MetadataService", "Settings", "VmFault"]

CUT = -1
"""A rate of a path: nothing at all comes by it."""

VmFault = Literal["death", "partition", "heal"]


@dataclass(frozen=True, slots=True)
class Machine:
    """One VM to boot."""

    name: str
    """Computer name, e.g. ``node00000a``."""
    private_ip: str
    admin_user: str
    authorized_keys: tuple[str, ...]
    """From ``osProfile.linuxConfiguration.ssh.publicKeys``: Azure's provisioning installs them."""
    user_data: str = field(repr=False)
    """The decoded ``customData``: a ``#cloud-config`` document, with private keys in it."""
    size: str = ""
    """Name of the VM size, which decides on its RDMA devices; empty for a VM without any."""
    host: str = ""
    """Name of the physical host under it."""


class Machines(Protocol):
    """VMs, networks and the load balancer's data path.

    ``network`` is always the ARM id of a virtual network. Every call may be repeated: creating what
    exists and removing what is gone succeed.
    """

    async def create_network(self, network: str, address_prefix: str, *, own_dns: bool = False) -> None:
        """Create an isolated network whose first usable address is the gateway.

        With ``own_dns``, DNS servers of the network's own, VMs that boot from now on resolve their own name
        alone (learn.microsoft.com, "Name resolution for resources in Azure virtual networks").
        """

    async def set_outbound(self, network: str, subnets: Sequence[str]) -> None:
        """Let VMs with an address of these subnets reach the world outside, and no others.

        From then on, all VMs have Azure's DNS.
        """

    async def open_port(self, network: str, address: str, port: int) -> socket.socket | None:
        """Return a socket bound to an address that a network has besides its VMs'.

        The caller serves it and closes it. None when there is no such network.
        """

    async def close_port(self, network: str, address: str) -> None:
        """Take such an address away from a network."""

    async def set_names(self, network: str, names: Mapping[str, str]) -> None:
        """Let all VMs with Azure's DNS resolve these names, too, and no others but their own."""

    async def delete_network(self, network: str) -> None:
        """Remove the network with everything that still runs in it."""

    async def boot(self, network: str, machines: Sequence[Machine]) -> None:
        """Start VMs; returns when every sshd listens. With Azure's DNS all names resolve on all of them.

        Raises ``launch.errors.ReplaceNodeError`` naming the first VM that did not come up.
        """

    async def remove(self, network: str, names: Sequence[str]) -> None:
        """End the VMs and every process in them, and removes their disks."""

    async def public_address(self) -> str:
        """Return a loopback address (127.x.y.z) that no other public IP of any rehearsal uses."""

    async def release_address(self, address: str) -> None:
        """Release a public address."""

    async def forward(self, network: str, listen: tuple[str, int], target: tuple[str, int]) -> None:
        """Pass TCP from ``listen`` on this machine to ``target`` inside the network."""

    async def unforward(self, network: str, listen: tuple[str, int]) -> None:
        """Stop a forward and closes its connections."""

    async def running(self, network: str) -> frozenset[str]:
        """Return the names of the VMs that run."""

    async def fault(self, network: str, name: str, fault: VmFault) -> None:
        """Stop the VM at once (``death``), or set its link down (``partition``) or up (``heal``)."""

    async def close(self) -> None:
        """Remove every network; afterwards no process, namespace, mount or port is left."""


class MetadataService(Protocol):
    """Service at 169.254.169.254 of each network."""

    async def open(
        self, network: str, listener: socket.socket, may_ask: Callable[..., Awaitable[bool]]
    ) -> None:
        """Serve a network at a bound socket, which the service then owns.

        ``may_ask(address=…, port=…)`` is whether a VM lets out what comes from there.
        """

    async def close(self, network: str) -> None:
        """End the service of a network."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the emulated hardware."""

    disks: Path
    """Folder of all disks; nothing else may be in it."""
    node_python: Path | None = None
    """Virtual environment whose ``bin`` comes first in the nodes' PATH."""
    nodes_limit: int = 300
    """Most nodes at a time in all networks together; 300 is the largest InfiniBand domain Azure sells."""
    view: VisiblePaths = field(default_factory=VisiblePaths)
    """Paths of this machine that nodes see."""
    trusted: Path | None = None
    """Certificate that nodes trust besides this machine's, named as OpenSSL looks for it."""
