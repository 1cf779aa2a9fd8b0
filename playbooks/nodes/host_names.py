"""The nodes' names in ``/etc/hosts`` of every node, where the network's DNS servers do not know them.

Azure's own DNS resolves the names of a network's VMs; a network with DNS servers of its own has none of that
(learn.microsoft.com, "Name resolution for resources in Azure virtual networks"). mpirun's ssh goes by name,
and frameworks publish the name of rank 0's node (Lightning and c10d do).
"""

from __future__ import annotations

from collections.abc import Sequence

from infra.inventory import Inventory, Node
from launch.errors import ManyNodesError, ReplaceNodeError
from launch.host import Host
from playbooks.project import Stack
from playbooks.ssh.fanout import fan_out_hosts

__all__ = ["WRITE", "hosts_block", "write_host_names"]

_BEGIN, _END = "# nodes of Ranklift", "# end of nodes of Ranklift"
_STEP_S = 20.0
WRITE = f"""\
set -e
new=$(mktemp)
trap 'rm -f "$new"' EXIT
{{ cat; sed '/^{_BEGIN}$/,/^{_END}$/d' "$1"; }} >"$new"
cmp -s "$new" "$1" && exit 0
as=
[ -w "$(dirname "$1")" ] && [ -w "$1" ] || as="sudo -n"
$as cp "$new" "$1.ranklift"
$as chmod 644 "$1.ranklift"
$as mv "$1.ranklift" "$1"
"""
"""Puts the block on stdin in front of the other lines of the file ``$1``, in place of an earlier block."""


def hosts_block(nodes: Sequence[Node]) -> str:
    """Return the lines for these nodes.

    >>> print(hosts_block([Node("node000000", 0, "10.0.0.4", "192.0.2.1", 50000, 8, "running")]), end="")
    # nodes of Ranklift
    10.0.0.4 node000000
    # end of nodes of Ranklift
    """
    lines = [f"{node.private_ip} {node.name}" for node in nodes if node.private_ip]
    return "".join(f"{line}\n" for line in (_BEGIN, *lines, _END))


def write_host_names(stack: Stack, inventory: Inventory) -> None:
    """Write the names of all nodes on each of them; where they stand already nothing changes.

    Raises :class:`~launch.errors.ManyNodesError` naming nodes on which that failed.
    """
    from playbooks.ssh.connection import Cluster

    block = hosts_block(inventory.nodes).encode()

    def write(host: Host) -> None:
        done = host.run(["sh", "-c", WRITE, "sh", "/etc/hosts"], stdin=block, timeout=_STEP_S)
        if done.exit_status:
            why = done.stderr.decode("utf-8", "replace").strip() or f"exit status {done.exit_status}"
            raise ReplaceNodeError(
                host.name,
                f"its /etc/hosts lacks the nodes' names, which the network's DNS does not know: {why}",
            )

    with Cluster(inventory, stack.folder) as cluster:
        results = fan_out_hosts(
            cluster.host, inventory.nodes, write, what="the names of nodes", timeout=_STEP_S + 1
        )
    if any(isinstance(result, Exception) for result in results.values()):
        raise ManyNodesError("the names of nodes", results)
