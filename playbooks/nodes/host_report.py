"""Report to Azure what is wrong with the host of a node, before the node is replaced.

Azure's categories are from Microsoft's page "Guest Health Reporting impact categories" (learn.microsoft.com,
azure-impact-reporting), the form of a VM's pairs of keys and values from Linux
(``include/uapi/linux/hyperv.h``, ``tools/hv/hv_kvp_daemon.c``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from infra.arm.impact import ONBOARDING, Impact, report
from infra.arm.update_errors import AzureFailed
from infra.inventory import Inventory, Node, StackOutputs
from launch.errors import RankliftError
from launch.nodeset import fold
from launch.promise import promise_of
from playbooks.nodes.sick import Sick
from playbooks.nodes.vm_ops import scale_set_of
from playbooks.project import Stack
from playbooks.ssh.fanout import fan_out_hosts

if TYPE_CHECKING:
    from launch.host import Host
    from launch.remote.base.health_records import Finding

__all__ = [
    "CATEGORIES",
    "HostReport",
    "NotReported",
    "category_of",
    "compare_hosts",
    "physical_host",
    "report_host",
]

STEP_S = 20.0
"""Limit of one node's answer."""
_POOL = "/var/lib/hyperv/.kvp_pool_3"
_READ_POOL = f"head -c 1048576 {_POOL} || sudo -n head -c 1048576 {_POOL}"
_LONGEST_WORDS = 1000
"""Length of a report's description."""
_UNHEALTHY = "Resource.Hpc.Unhealthy."
_GENERIC, _PERFORMANCE = "HpcGenericFailure", "IBPerformance"
_XID = re.compile(r"Xid (\d+)")
_XIDS = {
    "48": "XID48DoubleBitECC",
    "79": "XID79FallenOffBus",
    "94": "XID94ContainedECCError",
    "95": "XID95UncontainedECCError",
}
CATEGORIES: Mapping[str, str] = {
    "gpu-missing": "HpcMissingGpu",
    "gpu-driver": "HpcMissingGpu",
    "gpu-lost": "XID79FallenOffBus",
    "gpu-hang": "UnhealthyGPUNvidiasmi",
    "gpu-remap-failed": "HpcRowRemapFailure",
    "gpu-ecc": "XID48DoubleBitECC",
    "gpu-xid": "GpuXIDError",
    "ib-missing": "MissingIB",
    "ib-state": "IBPortDown",
    "ib-phys-state": "IBPortDown",
    "ib-link-downed": "IBPortFlapping",
    "ib-rate": _PERFORMANCE,
    "ib-pkey": _GENERIC,
    "gpu-recovery": _GENERIC,
    "gpu-clocks": _GENERIC,
    "memory": _GENERIC,
}
"""Azure's category for an error, by its rule, the most specific first. Rules about what an image or an
operator has set are missing: the host is not at fault there."""
_WITHOUT_DRIVER = ("cannot open shared object file", "DRIVER_NOT_LOADED", "LIB_RM_VERSION_MISMATCH")
_KEY, _RECORD = 512, 512 + 2048
"""Bytes of a key, and of a key with its value, in a pool of pairs."""


class NotReported(RankliftError):
    """Azure has no report on the node's host; the text has the reason and the remedy."""


@dataclass(frozen=True, slots=True)
class HostReport:
    """A report that Azure has taken."""

    id: str
    category: str
    host: str
    """PhysicalHostName of the node; empty where it did not answer."""


def category_of(findings: Iterable[Finding], reasons: Sequence[str], *, infiniband: bool) -> str | None:
    """Return Azure's category for errors at a node, ``reasons`` being what a check measured over its network;
    None where nothing says that its host is at fault.

    >>> category_of([], ["41 % of its peers' bandwidth in 6 of 6 pairs"], infiniband=True)
    'Resource.Hpc.Unhealthy.IBPerformance'
    >>> category_of([], [], infiniband=True)
    """
    by_rule = {one["rule"]: one for one in findings if not _is_of_software(one)}
    for rule, category in CATEGORIES.items():
        if rule in by_rule:
            measured = by_rule[rule]["measured"]
            if rule == "gpu-lost" and "GPU_IS_LOST" not in measured:
                return _UNHEALTHY + _GENERIC  # it is on the bus, and answers with another error
            xid = _XID.search(measured) if rule == "gpu-xid" else None
            return _UNHEALTHY + (_XIDS.get(xid[1], category) if xid else category)
    slow = _PERFORMANCE if infiniband else _GENERIC
    return _UNHEALTHY + slow if reasons else None


def _is_of_software(one: Finding) -> bool:
    """Return whether an error is that of the node's software: a driver that is missing or does not fit its
    library."""
    return one["rule"] == "gpu-driver" and any(words in one["measured"] for words in _WITHOUT_DRIVER)


def physical_host(pool: bytes) -> str:
    """Return the PhysicalHostName in a pool of pairs of a VM's host; empty where it is not there.

    >>> physical_host(b"HostName".ljust(512, b"\\0") + b"cluster".ljust(2048, b"\\0"))
    ''
    """
    for start in range(0, len(pool) - _RECORD + 1, _RECORD):
        record = pool[start : start + _RECORD]
        key, value = (part.partition(b"\0")[0] for part in (record[:_KEY], record[_KEY:]))
        if key == b"PhysicalHostName":
            return value.decode("utf-8", "replace")
    return ""


def report_host(stack: Stack, outputs: StackOutputs, inventory: Inventory, sick: Sick) -> HostReport:
    """Report the host of a node to Azure.

    Raises :class:`NotReported` where nothing that was found is the host's fault, the node does not know its
    host, or Azure does not take the report.
    """
    from azure.core.exceptions import AzureError

    from infra.arm import clients

    node = sick.node
    infiniband = promise_of(inventory.size).get("hcas", 1) > 0
    category = category_of(sick.findings, sick.reasons, infiniband=infiniband)
    if category is None:
        problem = f"its own software, not its host: {sick}" if sick.findings else "nothing"
        raise NotReported(
            f"{node.name}: a look and the last check found {problem}; `fab check --deep` measures more"
        )
    subscription, group, name = scale_set_of(outputs.scale_set_id)
    answer = _hosts(stack, inventory, [node])[node.name]
    host = "" if isinstance(answer, Exception) else answer
    try:
        machines = clients.clients(subscription, stack.environment).compute.virtual_machine_scale_set_vms
        properties = machines.get(group, name, str(node.instance_id)).properties
    except AzureError as error:
        raise NotReported(
            str(AzureFailed(f"{node.name}: Azure's id of the VM", stack.name, error))
        ) from error
    if not host and not isinstance(answer, Exception):
        raise NotReported(f"{node.name}: {_POOL} does not name its host; its image lacks hv-kvp-daemon")
    vm_id = (properties.vm_id if properties is not None else None) or ""
    vm = f"{outputs.scale_set_id}/virtualMachines/{node.instance_id}"
    impact = Impact(vm, vm_id, host, category, str(sick)[:_LONGEST_WORDS])
    try:
        report(clients.resource_client(subscription, stack.environment), impact)
    except AzureError as error:
        refused = AzureFailed(f"{node.name}: the report of its host", stack.name, error)
        raise NotReported(f"{refused}\n{ONBOARDING}") from error
    return HostReport(impact.id, category, host)


def compare_hosts(stack: Stack, inventory: Inventory, was: str, fresh: Sequence[str]) -> str:
    """Return in words whether the ``fresh`` nodes, by name, run on the host of the one that they replace."""
    if not was:
        return "whether Azure gave the same host again is unknown: the replaced node did not answer"
    found = _hosts(stack, inventory, [node for node in inventory.nodes if node.name in fresh])
    same = [name for name, host in found.items() if host == was]
    if same:
        return f"{fold(same)}: on the same host, {was}, again"
    unknown = [name for name, host in found.items() if isinstance(host, Exception) or not host]
    if unknown:
        return f"{fold(unknown)}: whether it is on the same host again is unknown: it does not name its host"
    return f"{fold(found)}: on another host than {was}"


def _hosts(stack: Stack, inventory: Inventory, nodes: Sequence[Node]) -> Mapping[str, str | Exception]:
    """Return the PhysicalHostName of each node, or why it is unknown."""
    from playbooks.ssh.connection import Cluster

    def read(host: Host) -> str:
        return physical_host(host.run(["sh", "-c", _READ_POOL], timeout=STEP_S).stdout)

    with Cluster(inventory, stack.folder) as cluster:
        return fan_out_hosts(cluster.host, nodes, read, what="reading its host's name", timeout=STEP_S + 1)
