"""VMs, networks and the load balancer's ports as namespaces of this machine: :class:`LocalMachines`.

Each virtual network is one :mod:`rehearsal.vms.netns` process in namespaces of its own; nodes are
namespaces within. Nothing exists outside them but files below one folder and listening loopback sockets, and
the kernel ends all of it when this process ends, however it ends.
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import json
import socket
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from launch.errors import InputError, ReplaceNodeError
from rehearsal.hardware.c_library import build_library, library_folder
from rehearsal.hardware.device_tree import make_device_tree
from rehearsal.hardware.devices import NodeDevices
from rehearsal.hardware.preload import CLOCK, SYSTEM, make_library, preload
from rehearsal.hardware.sysfs import device_files
from rehearsal.listener import bound
from rehearsal.run_dir import replace_file
from rehearsal.vms.api import Machine, MetadataService, Settings, VmFault
from rehearsal.vms.boot import DRIVER, NodeSpec
from rehearsal.vms.boot_faults import BootFaults, booted_config, booted_devices
from rehearsal.vms.cloud_init import CloudConfig
from rehearsal.vms.disks import checked_config, hosts_text, make_disk, make_image, on_disk, remove_tree, share
from rehearsal.vms.nat_gateway import own_addresses
from rehearsal.vms.netns_client import NetnsClient, start_netns
from rehearsal.vms.public_addresses import PublicAddresses

__all__ = ["METADATA_IP", "NETWORK_FILE", "LocalMachines"]

NETWORK_FILE = "network.json"
"""In each network's disk folder: what ran there, for whoever finds the folder after a crash."""

METADATA_IP = "169.254.169.254"
"""Address of the Instance Metadata Service in every network of Azure."""


@dataclass(slots=True)
class _Network:
    folder: Path
    prefix: ipaddress.IPv4Network
    client: NetnsClient
    own_dns: bool = False
    machines: dict[str, Machine] = field(default_factory=dict)
    devices: dict[str, NodeDevices] = field(default_factory=dict)
    """What each VM shows."""
    names: dict[str, str] = field(default_factory=dict)
    fillers: dict[str, list[socket.socket]] = field(default_factory=dict)
    targets: dict[tuple[str, int], str] = field(default_factory=dict)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def gateway(self) -> str:
        return str(self.prefix.network_address + 1)


class LocalMachines:
    """:class:`~rehearsal.vms.api.Machines` on this machine's kernel."""

    def __init__(
        self,
        settings: Settings,
        metadata: MetadataService | None = None,
        faults: BootFaults | None = None,
    ) -> None:
        self._settings, self._metadata, self._faults = settings, metadata, faults
        self._networks: dict[str, _Network] = {}
        self._addresses = PublicAddresses()
        self._making = asyncio.Lock()

    async def create_network(self, network: str, address_prefix: str, *, own_dns: bool = False) -> None:
        """Create an isolated network; with ``own_dns`` VMs that boot later resolve their own name alone."""
        async with self._making:
            if network in self._networks:
                self._networks[network].own_dns = own_dns
                return
            prefix = ipaddress.IPv4Network(address_prefix)
            disks = self._settings.disks
            folder = disks / hashlib.sha256(network.encode()).hexdigest()[:12]
            await asyncio.to_thread(remove_tree, folder)
            (folder / "vnet").mkdir(parents=True)
            replace_file(folder / "vnet" / "hosts", hosts_text({}))
            python = self._settings.node_python
            node_bin = str(python / "bin") if python is not None else None
            await asyncio.to_thread(make_image, disks / "image", node_bin, self._settings.trusted)
            client = await start_netns(
                disks,
                {
                    "network": folder.name,
                    "gateway": str(prefix.network_address + 1),
                    "prefix_length": prefix.prefixlen,
                    "view": asdict(self._settings.view),
                },
                folder / "netns.log",
            )
            self._networks[network] = _Network(folder, prefix, client, own_dns)
            self._record(network)
            if self._metadata is not None:
                listener = await self.open_port(network, METADATA_IP, 80)
                assert listener is not None  # noqa: S101 - the network was just made
                await self._metadata.open(network, listener, partial(client.request, "may_ask"))

    async def open_port(self, network: str, address: str, port: int) -> socket.socket | None:
        """Return a socket bound to an address of the network's own; None when there is no such network."""
        found = self._networks.get(network)
        if found is None:
            return None
        return socket.socket(fileno=await found.client.request("listen", address=address, port=port))

    async def close_port(self, network: str, address: str) -> None:
        """Take such an address away from the network."""
        if found := self._networks.get(network):
            await found.client.request("unlisten", address=address)

    async def set_names(self, network: str, names: Mapping[str, str]) -> None:
        """Let all VMs with Azure's DNS resolve these names besides their own."""
        found = self._networks.get(network)
        if found is not None and found.names != names:
            found.names = dict(names)
            self._write_hosts(found)

    async def set_outbound(self, network: str, subnets: Sequence[str]) -> None:
        """Let VMs with an address of these subnets reach this machine's network, and no others.

        From then on, all VMs have Azure's DNS.
        """
        found = self._find(network)
        async with found.lock:
            await found.client.open_gateway()
            own = await asyncio.to_thread(own_addresses)
            await found.client.request("outbound", subnets=list(subnets), own=own)

    async def delete_network(self, network: str) -> None:
        """Remove the network with everything that still runs in it."""
        found = self._networks.pop(network, None)
        if found is None:
            return
        async with found.lock:
            for name in tuple(found.fillers):
                _drain(found, name)
            if self._metadata is not None:
                await self._metadata.close(network)
            await found.client.close()
            await asyncio.to_thread(remove_tree, found.folder)

    async def boot(self, network: str, machines: Sequence[Machine]) -> None:
        """Start VMs; returns when every sshd listens.

        Raises :class:`~launch.errors.ReplaceNodeError` naming the first VM that did not come up, and
        :class:`~launch.errors.InputError` before anything is done when that would be more nodes than allowed.
        """
        found = self._find(network)
        async with found.lock:
            self._check_limit(found, machines)
            configs = {machine.name: checked_config(machine) for machine in machines}
            alive = await self.running(network)
            wanted = [machine for machine in machines if machine.name not in alive]
            for machine in wanted:
                found.machines[machine.name] = machine
            self._write_hosts(found)
            for machine in wanted:
                configs[machine.name] = booted_config(configs[machine.name], machine, self._is_hit)
            await asyncio.to_thread(self._make_disks, found, wanted, configs)
            silent = {machine.name for machine in wanted if self._is_hit("no-boot", machine)}
            booting = [machine for machine in wanted if machine.name not in silent]
            specs = await asyncio.to_thread(self._specs, found, booting, configs)
            errors: dict[str, str] = await found.client.request("boot", nodes=specs)
            errors |= dict.fromkeys(silent, "it never answered")
            for machine in wanted:
                if machine.name in errors:
                    raise ReplaceNodeError(machine.name, f"did not boot: {errors[machine.name]}")

    async def remove(self, network: str, names: Sequence[str]) -> None:
        """End the VMs and every process in them, and removes their disks."""
        found = self._networks.get(network)
        if found is None:
            return
        async with found.lock:
            known = [name for name in names if name in found.machines]
            await found.client.request("remove", names=known)
            for name in known:
                _drain(found, name)
                del found.machines[name]
                found.devices.pop(name, None)
            self._write_hosts(found)
            for name in known:
                await asyncio.to_thread(remove_tree, found.folder / name)

    async def public_address(self) -> str:
        """Return a loopback address (127.x.y.z) that no other public IP of any rehearsal uses."""
        address = self._addresses.take()
        for network in self._networks:
            self._record(network)
        return address

    async def release_address(self, address: str) -> None:
        """Give a public address back: another rehearsal may have it."""
        self._addresses.release(address)
        for network in self._networks:
            self._record(network)

    async def forward(self, network: str, listen: tuple[str, int], target: tuple[str, int]) -> None:
        """Pass TCP from ``listen`` on this machine to ``target`` inside the network.

        The load balancer's rule sets the port. Raises :class:`~launch.errors.RetryError` when a
        program of this machine has it.
        """
        found = self._find(network)
        if found.targets.get(listen) == target[0]:
            return
        await self.unforward(network, listen)
        with bound(listen, f"the load balancer's port for {target[0]}:{target[1]}") as listener:
            await found.client.request("forward", files=[listener.fileno()], listen=listen, target=target)
        found.targets[listen] = target[0]
        for name in tuple(found.fillers):
            if found.machines[name].private_ip == target[0]:
                self._fill(found, name)

    async def unforward(self, network: str, listen: tuple[str, int]) -> None:
        """Stop a forward and closes its connections."""
        found = self._networks.get(network)
        if found is not None and found.targets.pop(listen, None) is not None:
            await found.client.request("unforward", listen=listen)

    async def running(self, network: str) -> frozenset[str]:
        """Return the names of the VMs that run."""
        found = self._networks.get(network)
        return frozenset((await found.client.request("status"))["running"] if found is not None else ())

    async def fault(self, network: str, name: str, fault: VmFault) -> None:
        """Stop the VM at once (``death``), or set its link down (``partition``) or up (``heal``)."""
        found = self._find(network)
        async with found.lock:
            if name not in found.machines:
                known = ", ".join(sorted(found.machines)) or "none"
                raise InputError("node", name, "no such node", f"nodes of this network: {known}")
            if fault == "heal" and name not in await self.running(network):
                raise InputError(
                    "node", name, "is dead", "heal repairs links only; `fab replace` replaces the node"
                )
            _drain(found, name)
            await found.client.request("fault", name=name, fault=fault)
            if fault == "partition":
                self._fill(found, name)

    async def clock(self, network: str, names: list[str], seconds: float) -> None:
        """Shift the time of day of programs that start on these nodes from now on; 0 is the right time.

        Raises :class:`~launch.errors.MissingTool` without a C compiler.
        """
        found = self._find(network)
        async with found.lock:
            if seconds:
                await asyncio.to_thread(make_library, found.folder / "vnet", CLOCK)
            await found.client.request("clock", names=names, seconds=round(seconds))

    async def shape(self, network: str, names: list[str], rate: int, source: str = "") -> None:
        """Let nodes receive ``rate`` MB per second, from node ``source`` if given; 0: as much as comes."""
        found = self._find(network)
        async with found.lock:
            await found.client.request("shape", names=names, rate=rate, source=source)

    def devices(self, network: str, name: str) -> NodeDevices | None:
        """Return what a VM shows of its devices; another object once it booted again, None for one that is
        gone."""
        found = self._networks.get(network)
        return found.devices.get(name) if found is not None else None

    async def show_devices(self, network: str, name: str, devices: NodeDevices) -> None:
        """Let a VM show other devices from now on."""
        found = self._find(network)
        async with found.lock:
            before, after = device_files(found.devices[name]), device_files(devices)
            changed: dict[str, str | None] = {
                path: after.get(path) for path in before | after if before.get(path) != after.get(path)
            }
            await found.client.request("devices", name=name, changed=changed)
            found.devices[name] = devices

    async def close(self) -> None:
        """Remove every network; afterwards no process, namespace, mount or port is left."""
        await asyncio.gather(*(self.delete_network(network) for network in tuple(self._networks)))
        self._addresses.close()

    async def status(self) -> dict[str, Any]:
        """Return networks with their nodes and ports, public addresses and the node limit."""
        networks = {}
        for network, found in tuple(self._networks.items()):
            answer = await found.client.request("status")
            networks[network] = {
                "nodes": {name: machine.private_ip for name, machine in found.machines.items()},
                **answer,
                "user_namespace": found.client.user_namespace,
            }
        return {
            "networks": networks,
            "addresses": self._addresses.held(),
            "nodes_limit": self._settings.nodes_limit,
        }

    # Shared steps.

    def _find(self, network: str) -> _Network:
        found = self._networks.get(network)
        if found is None:
            raise InputError("network", network, "no such virtual network", "create it first")
        return found

    def _check_limit(self, network: _Network, machines: Sequence[Machine]) -> None:
        limit = self._settings.nodes_limit
        run = sum(len(other.machines) for other in self._networks.values())
        more = len({machine.name for machine in machines} - set(network.machines))
        if run + more > limit:
            raise InputError(
                "--nodes-limit",
                limit,
                f"{run} running and {more} more requested",
                "stop the rehearsal and start it with a higher limit",
            )

    def _is_hit(self, kind: str, machine: Machine) -> bool:
        return self._faults is not None and self._faults.hits_boot(kind, machine.name)

    def _specs(
        self, network: _Network, machines: Sequence[Machine], configs: dict[str, CloudConfig]
    ) -> list[dict[str, Any]]:
        return [self._spec(network, machine, configs[machine.name]) for machine in machines]

    def _spec(self, network: _Network, machine: Machine, config: CloudConfig) -> dict[str, Any]:
        devices = network.devices[machine.name] = replace(booted_devices(machine, self._is_hit))
        if devices != NodeDevices():
            make_library(network.folder / "vnet", SYSTEM)
            on_disk(network.folder / machine.name, "etc/ld.so.preload")
            preload(network.folder / machine.name, SYSTEM)
        if devices.has_driver:
            build_library("nvml.c", self._settings.disks / DRIVER / "libnvidia-ml.so.1")
        return asdict(
            NodeSpec(
                name=machine.name,
                private_ip=machine.private_ip,
                prefix_length=network.prefix.prefixlen,
                gateway=network.gateway,
                admin_user=machine.admin_user,
                keep=tuple(str(path) for path in self._settings.view.kept),
                shared=tuple((share(network.folder, mount.source), mount.target) for mount in config.mounts),
                devices=make_device_tree(network.folder, devices),
                libraries=str(library_folder()) if devices.has_driver else "",
            )
        )

    def _make_disks(
        self, network: _Network, machines: Sequence[Machine], configs: dict[str, CloudConfig]
    ) -> None:
        for machine in machines:
            disk = network.folder / machine.name
            make_disk(disk, self._settings.disks / "image", machine, configs[machine.name])
            if network.own_dns:  # in place of the image's link to the names of all nodes
                on_disk(disk, "etc/hosts").write_text(hosts_text({machine.name: machine.private_ip}))

    def _write_hosts(self, network: _Network) -> None:
        addresses = {name: machine.private_ip for name, machine in network.machines.items()}
        replace_file(network.folder / "vnet" / "hosts", hosts_text({**addresses, **network.names}))

    def _record(self, network: str) -> None:
        found = self._networks[network]
        text = {
            "network": network,
            "user_namespace": found.client.user_namespace,
            "addresses": self._addresses.held(),
        }
        replace_file(found.folder / NETWORK_FILE, json.dumps(text))

    def _fill(self, network: _Network, name: str) -> None:
        # The netns process stopped accepting and shrank the queue to one: with that one taken, the kernel
        # does not answer further requests, and a client's connect times out as on Azure.
        address = network.machines[name].private_ip
        fillers = network.fillers.setdefault(name, [])
        for listen, target in network.targets.items():
            if target == address:
                for _ in range(2):
                    filler = socket.socket()
                    filler.setblocking(False)
                    filler.connect_ex(listen)
                    fillers.append(filler)


def _drain(network: _Network, name: str) -> None:
    for filler in network.fillers.pop(name, ()):
        filler.close()
