"""The inventory: the cluster's nodes and how to reach them.

``.ranklift/<stack>/`` (0700) holds ``inventory.json``, ``ssh_config``, ``known_hosts`` and the user key
(0600), so that plain ``ssh -F .ranklift/dev/ssh_config node00000a``, rsync and editors work with it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from images.shared_mount import SHARED_FOLDER
from infra.json_records import read_list, read_record
from launch.errors import GiveUpError, InputError
from launch.remote.base import timing
from launch.remote.base.files import replace_file

__all__ = [
    "INVENTORY_FILE",
    "KEY_FILE",
    "KNOWN_HOSTS_FILE",
    "SSH_CONFIG_FILE",
    "Inventory",
    "Node",
    "StackOutputs",
    "known_hosts_text",
    "load",
    "read_azure",
    "remove",
    "save",
    "ssh_config_text",
]

INVENTORY_FILE = "inventory.json"
SSH_CONFIG_FILE = "ssh_config"
KNOWN_HOSTS_FILE = "known_hosts"
KEY_FILE = "id_ed25519"


@dataclass(frozen=True, slots=True)
class Node:
    """One VM of the scale set."""

    name: str
    """Computer name, e.g. ``node00000a``, and alias in ssh_config."""
    instance_id: int
    """The number that ``--nodes 0-3,7`` takes."""
    private_ip: str
    """Empty until Azure gives the VM an address."""
    host: str
    """Address for the operator's ssh: the load balancer, or ``private_ip`` with ``access: private``."""
    port: int
    """0 until the load balancer has a port for the VM."""
    slots: int
    """Processes that the node can run: its GPUs or, without any, its vCPUs."""
    state: str
    """Azure's state in lower case: ``creating``, ``running``, ``failed``, ``deleting`` ..."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """One stack's nodes, by instance id."""

    stack: str
    size: str
    location: str
    user: str
    nodes: tuple[Node, ...]
    read_at: float = 0.0
    """Unix time of Azure's answer, in seconds."""
    blob_endpoint: str | None = None
    """``https://ACCOUNT.blob.core.windows.net/`` of the stack's storage; ``None`` without any."""
    shared_folder: str | None = None
    """Path on every node of the folder that all share; ``None`` without any."""


@dataclass(frozen=True, slots=True)
class StackOutputs:
    """Those of the Pulumi program's outputs by which its nodes are reached."""

    stack: str
    scale_set_id: str
    """Full ARM id."""
    load_balancer_id: str | None
    """``None`` with ``access: private``."""
    backend_pool: str | None
    public_ip: str | None
    """``None`` with ``access: private``."""
    ssh_port: int
    vm_size: str
    location: str
    node_count: int
    slots: int
    admin_user: str
    access: str
    host_public_key: str
    """``ssh-ed25519 AAAA…``: the host key of all nodes of the stack."""
    user_private_key: str = field(repr=False)
    dns_servers: Sequence[str] | None = None
    """DNS servers of the network's own, which do not know the nodes' names; none with Azure's DNS."""
    blob_endpoint: str | None = None
    """Address of the storage account; ``None`` without storage."""
    nfs_mount: str | None = None
    """What the nodes mount as their shared folder; ``None`` without any."""

    @classmethod
    def from_json(cls, stack: str, outputs: Mapping[str, Any]) -> StackOutputs:
        """Read what ``pulumi stack output --json --show-secrets`` prints for ``stack``.

        Raises :class:`~launch.errors.InputError` naming the first missing output of a stack that is not up,
        or only partly created.
        """
        found: dict[str, Any] = {}
        for one in fields(cls):
            first, *rest = one.name.split("_")
            key = first + "".join(map(str.capitalize, rest))
            value: Any = outputs.get(key)  # Pulumi omits null outputs
            # In a stack that is only partly up, a placeholder stands for an unknown id.
            half = one.name == "scale_set_id" and not str(value).startswith("/")
            if half or (value is None and "None" not in str(one.type)):
                problem = f"is not up, or only partly created (output {key} is missing)"
                raise InputError("stack", stack, problem, "run `fab up`")
            if isinstance(value, str):
                value = value.strip()
            found[one.name] = int(value) if one.type == "int" else value
        return cls(**found)


def read_azure(outputs: StackOutputs, clients: Any) -> Inventory:
    """Read the stack's VMs from Azure, with their addresses and ports of the load balancer.

    Ports are never computed: instances come and go. One GET of the backend pool answers for all nodes; nodes
    that it lacks are queried one by one. ``clients`` are those of :func:`infra.arm.clients.clients`.

    Raises the exceptions of the Azure SDK.
    """
    group, scale_set = _group_and_name(outputs.scale_set_id)
    machines = [*clients.compute.virtual_machine_scale_set_vms.list(group, scale_set, expand="instanceView")]
    known = _addresses(
        clients.network.network_interfaces.list_virtual_machine_scale_set_network_interfaces(group, scale_set)
    )
    public = outputs.public_ip
    ports = _ports(outputs, clients, known) if public is not None else {}
    nodes = []
    for machine in machines:
        number = int(machine.instance_id)
        address, _ = known.get(number, ("", ""))
        nodes.append(
            Node(
                name=machine.properties.os_profile.computer_name,
                instance_id=number,
                private_ip=address,
                host=public if public is not None else address,
                port=ports.get(number, 0) if public is not None else outputs.ssh_port,
                slots=outputs.slots,
                state=_state(machine),
            )
        )
    nodes.sort(key=lambda node: node.instance_id)
    return Inventory(
        stack=outputs.stack,
        size=outputs.vm_size,
        location=outputs.location,
        user=outputs.admin_user,
        nodes=tuple(nodes),
        read_at=time.time(),
        blob_endpoint=outputs.blob_endpoint,
        shared_folder=SHARED_FOLDER if outputs.nfs_mount else None,
    )


def save(inventory: Inventory, outputs: StackOutputs, folder: Path) -> None:
    """Write the files for plain ``ssh -F`` and the tasks into ``folder`` (0700), each by rename."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder.chmod(0o700)
    _write(folder / KEY_FILE, outputs.user_private_key.rstrip("\n") + "\n")
    _write(folder / KNOWN_HOSTS_FILE, known_hosts_text(inventory, outputs.host_public_key))
    _write(folder / SSH_CONFIG_FILE, ssh_config_text(inventory, folder))
    # The inventory comes last: once it is there, so are the other files.
    _write(folder / INVENTORY_FILE, json.dumps(asdict(inventory), indent=1) + "\n")


def load(folder: Path) -> Inventory:
    """Return the inventory last saved in ``folder``.

    Raises :class:`~launch.errors.InputError` if there is none or it cannot be read.
    """
    path = folder / INVENTORY_FILE
    try:
        data = read_record(json.loads(path.read_text()), Inventory)
        nodes = tuple(Node(**read_record(node, Node)) for node in read_list(data.pop("nodes"), "nodes"))
        return Inventory(nodes=nodes, **data)
    except FileNotFoundError:
        raise InputError(
            "stack", folder.name, "has no saved inventory", "run `fab status` if the stack is up"
        ) from None
    except (OSError, ValueError, TypeError, RecursionError) as error:
        problem = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise InputError(
            "inventory", str(path), f"cannot be read ({problem})", f"run `fab status --stack {folder.name}`"
        ) from None


def remove(folder: Path) -> None:
    """Remove what :func:`save` wrote, and the folder if it is empty then; may be repeated.

    A rehearsal has its own files in ``.ranklift/rehearsal/``, which is also the folder of its first stack.
    """
    for name in (INVENTORY_FILE, SSH_CONFIG_FILE, KNOWN_HOSTS_FILE, KEY_FILE):
        (folder / name).unlink(missing_ok=True)
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def ssh_config_text(inventory: Inventory, folder: Path) -> str:
    """Return an ssh_config that reaches every node of ``inventory`` with the files in ``folder``.

    Settings repeat in every block: a ``Host *`` would apply to other hosts where the file is included.
    """
    key = _quoted(folder.absolute() / KEY_FILE)
    known_hosts = _quoted(folder.absolute() / KNOWN_HOSTS_FILE)
    blocks = [f"# Nodes of stack {inventory.stack}. Written by `fab up`, `fab status` and `fab wait`.\n"]
    blocks += [
        f"""\
Host {node.name}
    HostName {node.host}
    Port {node.port}
    User {inventory.user}
    HostKeyAlias {node.name}
    IdentityFile {key}
    IdentitiesOnly yes
    IdentityAgent none
    StrictHostKeyChecking yes
    UserKnownHostsFile {known_hosts}
    GlobalKnownHostsFile /dev/null
    PasswordAuthentication no
    ConnectTimeout {timing.OPERATOR_SSH["ConnectTimeout"]}
    ServerAliveInterval {timing.OPERATOR_SSH["ServerAliveInterval"]}
"""
        for node in inventory.nodes
        if node.host and node.port
    ]
    return "\n".join(blocks)


def known_hosts_text(inventory: Inventory, host_public_key: str) -> str:
    """Return a known_hosts with a line a node: the stack's host key, known before any connection.

    >>> node = Node("node000000", 0, "10.0.0.4", "192.0.2.1", 50000, 8, "running")
    >>> known_hosts_text(Inventory("dev", "size", "place", "me", (node,)), "ssh-ed25519 AAAA")
    'node000000 ssh-ed25519 AAAA\\n'
    """
    key = " ".join(host_public_key.split()[:2])
    return "".join(f"{node.name} {key}\n" for node in inventory.nodes)


def _ports(outputs: StackOutputs, clients: Any, known: Mapping[int, tuple[str, str]]) -> dict[int, int]:
    if outputs.load_balancer_id is None or outputs.backend_pool is None:
        raise InputError(
            "output loadBalancerId", None, "is missing, but publicIp is set", "run `fab up` again"
        )
    group, balancer = _group_and_name(outputs.load_balancer_id)
    pool = clients.network.load_balancer_backend_address_pools.get(group, balancer, outputs.backend_pool)
    numbers = {text.lower(): number for number, found in known.items() for text in found}
    ports: dict[int, int] = {}
    for entry in getattr(pool.properties, "load_balancer_backend_addresses", None) or ():
        properties = entry.properties
        reference = getattr(properties.network_interface_ip_configuration, "id", None) or ""
        number = numbers.get(reference.lower(), numbers.get(properties.ip_address or ""))
        port = _ssh_port(properties.inbound_nat_rules_port_mapping, outputs.ssh_port)
        if number is not None and port is not None:
            ports[number] = port
    for number in sorted(known.keys() - ports.keys()):
        answer = clients.network.load_balancers.begin_list_inbound_nat_rule_port_mappings(
            group, balancer, outputs.backend_pool, {"ipConfiguration": {"id": known[number][1]}}
        ).result()
        port = _ssh_port(answer.inbound_nat_rule_port_mappings, outputs.ssh_port)
        if port is not None:
            ports[number] = port
    return ports


def _ssh_port(mappings: Iterable[Any] | None, backend_port: int) -> int | None:
    for mapping in mappings or ():
        if mapping.backend_port == backend_port:
            return int(mapping.frontend_port)
    return None


def _addresses(interfaces: Iterable[Any]) -> dict[int, tuple[str, str]]:
    """Return each VM's private address and the id of the IP configuration that has it."""
    found: dict[int, tuple[str, str]] = {}
    for interface in interfaces:
        properties = interface.properties
        machine = getattr(properties.virtual_machine, "id", None)
        if machine is None or properties.primary is False:
            continue
        number = int(machine.rstrip("/").rpartition("/")[2])
        for configuration in properties.ip_configurations or ():
            if configuration.properties.primary is not False and configuration.properties.private_ip_address:
                found[number] = configuration.properties.private_ip_address, configuration.id
                break
    return found


def _state(machine: Any) -> str:
    provisioning = str(machine.properties.provisioning_state or "unknown").lower()
    if provisioning != "succeeded":
        return provisioning
    for status in getattr(machine.properties.instance_view, "statuses", None) or ():
        kind, _, word = str(status.code).partition("/")
        if kind == "PowerState":
            return word.lower()
    return provisioning


def _group_and_name(identifier: str) -> tuple[str, str]:
    """Return the resource group in an ARM id, and the resource's own name."""
    parts = identifier.strip("/").split("/")
    return parts[3], parts[-1]


def _quoted(path: Path) -> str:
    text = str(path)
    if "${" in text or "\n" in text:
        # ssh expands ${...} in spite of quotes, and a line break ends the setting.
        raise InputError("project folder", text, "ssh cannot use such a path", "rename the folder")
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'


def _write(path: Path, text: str) -> None:
    try:
        replace_file(str(path), text.encode())
    except IsADirectoryError as error:
        raise GiveUpError(f"{path} cannot be replaced ({error.strerror}): remove what is there") from error
