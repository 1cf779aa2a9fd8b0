"""The service of a node: its head's metrics at the node's private address.

``ranklift-metrics.service`` runs the node code's command ``serve-metrics PORT SUBNET STACK SIZE LOCATION``
where the stack's setting ``metricsPort`` asks for it. cloud-init brings the unit alone, as Azure limits it.
With the setting ``monitor`` it also sends them to Azure Monitor.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from ipaddress import IPv4Address, IPv4Network

from launch.remote.metrics.exposition import CONTENT_TYPE, exposition, samples
from launch.remote.metrics.head_metrics import head_metrics
from launch.remote.metrics.http_page import listen, serve
from launch.remote.metrics.monitor_sender import MonitorSender

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from launch.remote.metrics.metrics_records import ClusterFacts, SendingState

__all__ = ["Page", "main", "own_address"]

FRESH_S = 1.0
"""Seconds for which a page is served again: whoever asks more often costs the node nothing more."""
_FAILED = 1


def own_address(subnet: str) -> str:
    """Return this node's address in the subnet. Raise OSError without one.

    No packet is sent: the kernel chooses the address from which it would be.
    """
    network = IPv4Network(subnet)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((str(network.network_address + 1), 9))
        address: str = probe.getsockname()[0]
    if IPv4Address(address) not in network:
        raise OSError(f"this node has no address in {subnet}")
    return address


class Page:
    """The text of the metrics, made at most once in :data:`FRESH_S`."""

    def __init__(
        self,
        folder: str,
        cluster: ClusterFacts,
        sending: Callable[[], SendingState | None] = lambda: None,
    ) -> None:
        self._folder, self._cluster, self._sending = folder, cluster, sending
        self._text, self._made = b"", -FRESH_S

    def __call__(self) -> bytes:
        """Return the text."""
        if time.monotonic() - self._made >= FRESH_S:
            text = exposition([head_metrics(self._folder, time.time())], self._cluster, self._sending())
            self._text, self._made = text.encode("utf-8", "replace"), time.monotonic()
        return self._text


def main(arguments: list[str]) -> int:
    """Serve until a push brings other node code; return 1 where address or port cannot be had.

    systemd starts the newest code then.
    """
    port, subnet, stack, size, location = arguments
    cluster: ClusterFacts = {
        "stack": stack,
        "size": size,
        "location": location,
        "answers": None,
        "usd_per_hour": None,
        "usd": None,
    }
    try:
        address = own_address(subnet)
        listener = listen(address, int(port))
    except OSError as error:
        sys.stderr.write(f"port {port} of this node's address in {subnet} cannot be served: {error}\n")
        return _FAILED
    sys.stderr.write(f"serves http://{address}:{port}/metrics\n")
    folder = os.path.expanduser("~/.ranklift")
    known = set(_versions(folder))
    sender = MonitorSender(
        lambda sending: samples([head_metrics(folder, time.time())], cluster, sending), f"{address}:{port}"
    )
    sender.start()
    with listener:
        page = Page(folder, cluster, lambda: sender.state)
        serve(listener, page, CONTENT_TYPE, until=lambda: not known.issuperset(_versions(folder)))
    return 0


def _versions(folder: str) -> list[str]:
    try:
        return os.listdir(f"{folder}/remote")
    except OSError:
        return []
