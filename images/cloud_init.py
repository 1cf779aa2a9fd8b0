"""The cloud-init document that makes a fresh VM a node: host key, way to the other nodes, limits, watcher."""

from __future__ import annotations

import ast
import io
import ipaddress
import tarfile
from dataclasses import dataclass, field
from functools import cache
from importlib import resources

from images.shared_mount import SHARED_FOLDER, SharedMount
from images.steps import Step
from images.templates import render
from images.user_data import FOLDER, LIMIT, packed, runner
from launch.errors import InputError
from launch.remote.agent.entry import NAMESPACE, SIGNER

__all__ = [
    "AGENT_USER",
    "TEMPORARY_DISK",
    "MetricsService",
    "NodeSetup",
    "agent_files",
    "allowed_signers",
    "cloud_config",
    "known_hosts",
    "node_patterns",
    "ssh_config",
]

TEMPORARY_DISK = "/mnt/resource"
"""Where a node has its size's temporary disk, as Azure's images of the Red Hat family have it.

Left alone, cloud-init mounts it at ``/mnt``, after everything that a document asks for (its module
``cc_mounts``), and so over the shared folder and the joined NVMe disks, which lie below that.
"""

AGENT_USER = "ranklift"
"""Who runs the nodes' agent, and alone reaches the metadata service besides root."""

_AGENT = ("launch.remote.agent.daemon", "launch.remote.agent.autostop")
"""Modules that every node has from its first boot on, whatever is pushed later."""

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

_IMAGE_CHECK = """\
if ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 8))'; then
    echo "this image is too old: a node needs Python 3.8 or newer, and python3 here is $(python3 -V 2>&1)" >&2
    exit 1
fi
if ! grep -qiE '^[[:space:]]*Include[[:space:]].*/sshd_config\\.d/' /etc/ssh/sshd_config; then
    echo "this image is too old: a node needs an sshd_config that has Include sshd_config.d (OpenSSH 8.2)" >&2
    exit 1
fi
if ! PATH="$PATH:/usr/sbin:/sbin" command -v nft >/dev/null; then
    echo "this image is too bare: a node needs nft (package nftables), which keeps jobs from its identity" >&2
    exit 1
fi"""
"""Nobody knows what an own image holds before it boots: what it lacks is the end of cloud-init's output."""

_LIMITS = """\
# InfiniBand pins the memory it transfers; the values are those of Azure's HPC images.
* soft memlock unlimited
* hard memlock unlimited
* soft nofile 1048576
* hard nofile 1048576
"""

_NO_UPGRADES = """\
// A kernel or driver that changes under a running cluster makes its nodes differ.
APT::Periodic::Enable "0";
APT::Periodic::Update-Package-Lists "0";
APT::Periodic::Unattended-Upgrade "0";
"""


@dataclass(frozen=True, slots=True)
class MetricsService:
    """Where a node serves metrics, and what these say of the cluster."""

    port: int
    stack: str
    size: str
    location: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSetup:
    """Input of a node's first boot. ``repr`` shows no private key."""

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
    user_public_key: str
    """``ssh-ed25519 AAAA…`` of the operator, who signs the jobs that may use the nodes' identity."""
    cluster_private_key: str = field(repr=False)
    """OpenSSH PEM; its public half is authorised by Azure's provisioning."""
    shared: SharedMount | None = None
    """Mounted on every node, if given."""
    nvme: bool = False
    """Join the local NVMe disks to one at ``/mnt/resource_nvme`` (:class:`catalogue.size.Size`)."""
    metrics: MetricsService | None = None
    """Served on every node, if given."""
    steps: tuple[Step, ...] = ()
    """What a node that boots plain Ubuntu runs besides (:func:`images.steps.steps`); it then reboots."""


def cloud_config(setup: NodeSetup) -> str:
    """The ``#cloud-config`` text of a node; the same for all nodes of a stack.

    Raises :class:`~launch.errors.InputError` when it is longer than Azure takes.
    """
    text = render(
        "cloud_config.yaml.j2",
        setup=setup,
        ssh_config=ssh_config(setup),
        known_hosts=known_hosts(setup),
        sshd_config=_SSHD_CONFIG,
        image_check=_IMAGE_CHECK,
        limits=_LIMITS,
        no_upgrades=_NO_UPGRADES,
        agent=_archive(agent_files()),
        agent_user=AGENT_USER,
        allowed_signers=allowed_signers(setup.user_public_key),
        identity_rules=render("identity.nft.j2", agent=AGENT_USER),
        identity_unit=render("ranklift-identity.service.j2"),
        watch_unit=render("ranklift-watch.service.j2", user=setup.user, agent=AGENT_USER),
        metrics_script=render("scripts/serve-metrics.sh"),
        metrics_unit=render(
            "ranklift-metrics.service.j2", user=setup.user, subnet=setup.subnet_prefix, metrics=setup.metrics
        )
        if setup.metrics
        else "",
        cache_script=render("scripts/local-cache.sh"),
        cache_unit=render("scripts/ranklift-cache.service.j2", user=setup.user),
        nvme_script=render("scripts/nvme-raid.sh"),
        nvme_unit=render("scripts/ranklift-nvme.service.j2"),
        shared_folder=SHARED_FOLDER,
        temporary_disk=TEMPORARY_DISK,
        packed=packed,
        steps=setup.steps,
        folder=FOLDER,
        runner=runner(setup.steps),
    )
    size = len(text.encode())
    if size > LIMIT:
        raise InputError(
            "customData", None, f"has {size} bytes, and Azure takes {LIMIT}", "build an image from the recipe"
        )
    return text


def node_patterns(setup: NodeSetup) -> list[str]:
    """Every name and address of a node as ssh's patterns, and nothing outside the cluster's subnet.

    A plain ``*`` would pin the nodes' key on the rest of the world too: no ``git clone`` over ssh there.

    >>> node_patterns(NodeSetup(user="u", computer_name_prefix="node", subnet_prefix="10.0.0.0/23",
    ...                         host_public_key="", host_private_key="", user_public_key="",
    ...                         cluster_private_key=""))
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


def allowed_signers(public_key: str) -> str:
    """The text of ``/etc/ranklift/allowed_signers``: whose signature grants a job the nodes' identity."""
    return f'{SIGNER} namespaces="{NAMESPACE}" {public_key}\n'


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
def agent_files() -> dict[str, str]:
    """Return path and text of the agent's files: its entry, its modules, and all that they import of ours."""
    remote = resources.files("launch.remote")
    files = {"watch.py": remote.joinpath("__main__.py").read_text("utf-8")}
    wanted = list(_AGENT)
    while wanted:
        _, _, *parts = wanted.pop().split(".")
        path = "/".join(parts) + ".py"
        if path not in files:
            files[path] = remote.joinpath(path).read_text("utf-8")
            package = "/".join(parts[:-1]) + "/__init__.py"
            files[package] = remote.joinpath(package).read_text("utf-8")
            wanted += _imported(files[path])
    return dict(sorted(files.items()))


def _archive(files: dict[str, str]) -> bytes:
    """Return a tar of files with these texts: compressed as one, they take a sixth less than one by one."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path, text in files.items():
            member, data = tarfile.TarInfo(path), text.encode()
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return made.getvalue()


def _imported(source: str) -> list[str]:
    """Return the modules of ``launch.remote`` that a source imports as it runs, each by its whole name."""
    found = []
    tree = ast.parse(source)
    tree.body = [node for node in tree.body if not (isinstance(node, ast.If) and _names_types(node.test))]
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("launch.remote."):
            named = node.module or ""
            is_room = resources.files("launch.remote").joinpath(*named.split(".")[2:]).is_dir()
            found += [f"{named}.{alias.name}" for alias in node.names] if is_room else [named]
    return found


def _names_types(test: ast.expr) -> bool:
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"
