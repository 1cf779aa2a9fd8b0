"""Whether the nodes' metrics reach Azure Monitor, as each node's own metrics have it: for ``status``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from infra.config.network_settings import metrics_port
from infra.config.readers import boolean
from infra.inventory import Inventory, Node
from infra.naming import monitor_name
from launch.durations import span
from launch.errors import GiveUpError, InputError
from launch.host import Host
from playbooks.cli.merged_output import grouped
from playbooks.project import Stack
from playbooks.ssh.fanout import fan_out_hosts

__all__ = ["Sending", "monitor_lines", "read_sending"]

_MONITOR, _PORT = "ranklift:monitor", "ranklift:metricsPort"
_LIMIT_S = 8.0
_PROGRAM = """\
import sys, time, urllib.request
address = "http://%s:%s/metrics" % tuple(sys.argv[1:])
try:
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(address, timeout=5) as page:
        lines = page.read(8 << 20).decode("utf-8", "replace").splitlines()
except OSError as error:
    sys.exit("%s is not served: %s" % (address, error))
print("now", time.time())
print("\\n".join([line for line in lines if line.startswith("ranklift_monitor_")][:16]))
"""
"""Run on a node: prints its clock, and what its metrics say of sending."""
_LINE = re.compile(r"(now|ranklift_monitor_\w+) ([0-9.e+-]+)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Sending:
    """How a node's sending goes."""

    accepted: bool
    """Whether Azure Monitor took everything the last time."""
    age_s: float | None
    """Seconds since it took something; None where it never has since the node's service started."""


def monitor_lines(stack: Stack, inventory: Inventory, nodes: Sequence[Node]) -> list[str]:
    """Return a line for each way in which the nodes' sending goes; none where the stack sends nothing.

    A fault of it is nobody's who launches jobs: the exit status of ``status`` does not depend on it.
    """
    port = _port(stack)
    if port is None:
        return []
    name = f"Azure Monitor workspace {monitor_name(stack.short_name)}"
    if not nodes:
        return [f"{name}: no node is ready to send metrics"]
    found = _ask(stack, inventory, nodes, port)
    return [f"{name}: {line}" for line in grouped(_texts(found))]


def _port(stack: Stack) -> int | None:
    """Return the port of the nodes' metrics where the stack sends them; None else. `fab up` refuses settings
    that are wrong."""
    settings = stack.settings() if stack.configuration.exists() else {}
    try:
        is_sending = boolean(_MONITOR, settings.get(_MONITOR, "false"))
        return metrics_port(_PORT, settings.get(_PORT)) if is_sending else None
    except InputError:
        return None


def _ask(
    stack: Stack, inventory: Inventory, nodes: Sequence[Node], port: int
) -> Mapping[str, Sending | Exception | None]:
    from playbooks.ssh.connection import Cluster

    address = {node.name: node.private_ip for node in nodes}

    def query(host: Host) -> Sending | None:
        done = host.run(
            ["python3", "-I", "-S", "-c", _PROGRAM, address[host.name], str(port)], timeout=_LIMIT_S
        )
        if done.exit_status != 0:
            last = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
            raise GiveUpError(last[:200] or f"exit status {done.exit_status}")
        return read_sending(done.stdout.decode("utf-8", "replace"))

    with Cluster(inventory, stack.folder) as cluster:
        return fan_out_hosts(
            cluster.host, nodes, query, what="reading how its metrics are sent", timeout=_LIMIT_S + 1
        )


def read_sending(text: str) -> Sending | None:
    """Return what a node's answer says; None where it has sent nothing and tried nothing.

    >>> read_sending("now 1000.5\\nranklift_monitor_up 1\\n")
    Sending(accepted=True, age_s=None)
    """
    found = {}
    for line in text.splitlines():
        matched = _LINE.fullmatch(line)
        if matched is not None:
            try:
                found[matched.group(1).removeprefix("ranklift_monitor_")] = float(matched.group(2))
            except ValueError:
                continue
    if "up" not in found or "now" not in found:
        return None
    last = found.get("last_sent_timestamp_seconds")
    return Sending(found["up"] == 1, None if last is None else max(0.0, found["now"] - last))


def _texts(found: Mapping[str, Sending | Exception | None]) -> dict[str, str]:
    """Return a text for each node, the same for all nodes that are in the same state."""
    oldest: dict[bool, float] = {}
    for one in found.values():
        if isinstance(one, Sending) and one.age_s is not None:
            oldest[one.accepted] = max(one.age_s, oldest.get(one.accepted, 0.0))
    return {node: _text(one, oldest) for node, one in found.items()}


def _text(one: Sending | Exception | None, oldest: Mapping[bool, float]) -> str:
    if isinstance(one, Exception):
        return f"whether metrics are sent is unknown: {one}"
    if one is None:
        return "no metrics are sent yet: nodes begin within a minute of the setting, after their first push"
    age = "" if one.age_s is None else span(oldest[one.accepted])
    if one.accepted and age:
        return f"metrics were taken within the last {age}"
    before = f"others were, up to {age} ago" if age else "none were since the node's service started"
    return (
        f"the last metrics were not taken ({before}): `fab exec 'sudo journalctl -u ranklift-metrics -n 20'` "
        "shows why"
    )
