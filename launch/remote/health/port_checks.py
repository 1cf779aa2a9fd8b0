"""Checks of InfiniBand ports: each returns the ports that break its rule, with what was measured."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from launch.remote.health.facts import Facts
    from launch.remote.health.ib_ports import Port

    Found = Iterator[tuple[str, str]]

__all__ = ["DOWNED", "LIMITS", "above", "flapping", "missing", "no_link", "not_active", "not_joined", "slow"]

DOWNED = 3
LIMITS = (
    ("link_error_recovery", 3, "healthagent"),
    ("carrier_down_count", 5, "healthagent"),
    ("port_rcv_errors", 100, "skills"),
    ("port_xmit_discards", 1000, "skills"),
)
"""Counters, the highest number that is not worth a warning, and its source."""
_NOBODYS = (0x0000, 0x7FFF)
"""An empty place, and limited membership of the default partition: two such nodes cannot communicate."""


def missing(facts: Facts) -> Found:
    """Fewer ports than promised."""
    found = [port.name for port in _infiniband(facts)]
    if len(found) < facts.promise["hcas"]:
        yield "/sys/class/infiniband", ", ".join(found) or "none"


def not_active(facts: Facts) -> Found:
    """Ports without a link that carries data."""
    return ((port.name, port.state) for port in _infiniband(facts) if not port.is_active)


def no_link(facts: Facts) -> Found:
    """Ports without a physical link."""
    return (
        (port.name, port.phys_state) for port in _infiniband(facts) if not port.phys_state.startswith("5:")
    )


def slow(facts: Facts) -> Found:
    """Active ports whose link is slower than promised: one of a port that is down means nothing."""
    for port in _infiniband(facts):
        if port.is_active and (port.gbps or 0.0) < facts.promise["hca_gbps"]:
            yield port.name, port.rate


def not_joined(facts: Facts) -> Found:
    """Ports that have no partition in common with other nodes."""
    for port in _infiniband(facts):
        if all(key in _NOBODYS for key in port.pkeys):
            yield port.name, ", ".join(f"0x{key:04x}" for key in sorted(set(port.pkeys))) or "none"


def flapping(facts: Facts) -> Found:
    """Ports that keep losing their link."""
    for port in _infiniband(facts):
        grown = facts.growth.get(port.name, {}).get("link_downed", 0)
        if grown >= DOWNED:
            yield port.name, f"link_downed +{grown} in 3 h"


def above(counter: str, limit: int) -> Callable[[Facts], Found]:
    """Return the check of a counter."""

    def check(facts: Facts) -> Found:
        for port in _infiniband(facts):
            count = port.counters.get(counter, 0)
            if count > limit:
                yield port.name, f"{counter} {count}"

    return check


def _infiniband(facts: Facts) -> list[Port]:
    return [port for port in facts.ports if port.link_layer == "InfiniBand"]
