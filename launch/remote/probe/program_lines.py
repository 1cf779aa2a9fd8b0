"""Lines of the probe's own programs: what no library's log says."""

from __future__ import annotations

from launch.remote.probe.transport_fact import INFINIBAND, TCP, Device, Fact

__all__ = ["MARK", "PORTS", "read"]

MARK = "ranklift-probe: "
PORTS = "ports"


def read(text: str) -> Fact | None:
    """Return what a line says; None where it is about something else.

    >>> read("ranklift-probe: backend gloo")[:2]
    ('Gloo', 'TCP')
    >>> read("ranklift-probe: ports mlx5_ib0:1").devices
    (Device(number='', name='mlx5_ib0:1', transport='InfiniBand'),)
    """
    what, _, rest = text[len(MARK) :].strip().partition(" ")
    words = rest.split()
    if what == PORTS:
        return Fact(PORTS, "", devices=tuple(Device("", name, INFINIBAND) for name in words))
    if (what, words) == ("backend", ["gloo"]):
        return Fact("Gloo", TCP, is_for_all=True)  # whatever the node has
    return None
