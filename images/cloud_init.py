"""The cloud-init document that makes a fresh VM a node: host key, way to the other nodes, limits."""

from __future__ import annotations

import ipaddress
import json
from dataclasses import dataclass, field
from functools import cache, partial

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

__all__ = ["NodeSetup", "cloud_config", "known_hosts", "node_patterns", "ssh_config"]

_KEX = "curve25519-sha256,ecdh-sha2-nistp256"
"""Inside the cluster's own network. OpenSSH's first choice since 9.0, sntrup761x25519, takes each end of a
connection 55 ms of a processor more (measured with 9.2), and a launch on 300 nodes opens 300 from one node.
"""

_SSHD_CONFIG = """\
# A tree of launchers opens many connections at once: sshd's own limit of 10 would drop them at random.
MaxStartups 400:30:1000
MaxSessions 200
PasswordAuthentication no
"""

_LIMITS = """\
# InfiniBand pins the memory it transfers; the values are those of Azure's HPC images.
* soft memlock unlimited
* hard memlock unlimited
* soft nofile 1048576
* hard nofile 1048576
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSetup:
    """What a node is told at its first boot. ``repr`` shows no private key."""

    user: str
    """Who owns the cluster key; Azure's provisioning creates the account."""
    computer_name_prefix: str
    """Of the scale set: names are this and six base-36 digits."""
    subnet_prefix: str
    """Where the nodes' addresses come from, in CIDR notation."""
    host_public_key: str
    """``ssh-ed25519 AAAA…``"""
    host_private_key: str = field(repr=False)
    """OpenSSH PEM."""
    cluster_private_key: str = field(repr=False)
    """OpenSSH PEM; its public half is authorised by Azure's provisioning."""


def cloud_config(setup: NodeSetup) -> str:
    """The ``#cloud-config`` text of a node; the same for all nodes of a stack."""
    return _template().render(
        user=setup.user,
        host_private_key=setup.host_private_key,
        host_public_key=setup.host_public_key,
        cluster_private_key=setup.cluster_private_key,
        ssh_config=ssh_config(setup),
        known_hosts=known_hosts(setup),
        sshd_config=_SSHD_CONFIG,
        limits=_LIMITS,
    )


def node_patterns(setup: NodeSetup) -> list[str]:
    """Every name and address of a node as ssh's patterns, and nothing outside the cluster's subnet.

    A plain ``*`` would pin the nodes' key on the rest of the world too: no ``git clone`` over ssh there.

    >>> node_patterns(NodeSetup(user="u", computer_name_prefix="node", subnet_prefix="10.0.0.0/23",
    ...                         host_public_key="", host_private_key="", cluster_private_key=""))
    ['localhost', '127.0.0.1', 'node??????', 'node??????.*', '10.0.0.*', '10.0.1.*']
    """
    subnet = ipaddress.IPv4Network(setup.subnet_prefix)
    whole = subnet if subnet.prefixlen <= 24 else subnet.supernet(new_prefix=24)  # noqa: PLR2004 - a dotted part
    octets = [f"{str(part.network_address).rpartition('.')[0]}.*" for part in whole.subnets(new_prefix=24)]
    prefix = setup.computer_name_prefix
    return ["localhost", "127.0.0.1", f"{prefix}??????", f"{prefix}??????.*", *octets]


def known_hosts(setup: NodeSetup) -> str:
    """The line of ``/etc/ssh/ssh_known_hosts``: every node shows the one key of its stack."""
    return f"{','.join(node_patterns(setup))} {setup.host_public_key}\n"


def ssh_config(setup: NodeSetup) -> str:
    """The node user's ``~/.ssh/config``: from node to node nothing ever asks, waits for or trusts a human."""
    return (
        f"Host {' '.join(node_patterns(setup))}\n"
        "    IdentityFile ~/.ssh/id_ed25519\n"
        "    IdentitiesOnly yes\n"
        "    IdentityAgent none\n"
        "    ForwardAgent no\n"
        "    BatchMode yes\n"
        "    StrictHostKeyChecking yes\n"
        "    UpdateHostKeys no\n"
        f"    KexAlgorithms {_KEX}\n"
    )


@cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("images", package_path=""),
        autoescape=False,  # noqa: S701 - YAML, no HTML; every value passes the json filter
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    environment.filters["json"] = partial(json.dumps, ensure_ascii=False)
    return environment.get_template("cloud_config.yaml.j2")
