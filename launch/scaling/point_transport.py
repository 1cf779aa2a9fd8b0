"""What is known of the way between the nodes of a run: by what its ranks print, else by a probe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from launch.remote.base.health_records import ProbeResult, ProbeVerdict

__all__ = ["NOT_PROBED", "Transport", "transport_of"]

NOT_PROBED = "not probed"
"""Of a run whose nodes were probed before another one, or are not to be."""


@dataclass(frozen=True, slots=True)
class Transport:
    """The way between a run's nodes."""

    verdict: ProbeVerdict | Literal["none"]
    """``none``: nothing was proven, for there is one node, no InfiniBand, or nobody wanted it."""
    name: str
    """For people: ``InfiniBand, 8 HCAs a node, GPUDirect``; empty where nothing was seen."""
    reason: str

    @property
    def words(self) -> str:
        """The transport and why it is not proven.

        >>> Transport("refused", "TCP", "NCCL uses eth0").words, Transport("none", "", "one node").words
        ('TCP: NCCL uses eth0', 'one node')
        """
        return ": ".join(filter(None, (self.name, self.reason)))


def transport_of(nodes: int, results: Sequence[ProbeResult]) -> Transport:
    """Return the transport of a run on that many nodes, by its job's events.

    A connection that is not as the VM size promises outweighs all others.
    """
    if not results:
        reason = "one node" if nodes == 1 else NOT_PROBED
        return Transport("none", "", reason)
    refused = next((one for one in results if one["verdict"] == "refused"), None)
    chosen = refused or results[-1]
    if chosen["verdict"] == "proven":
        reason = "as its ranks print" if chosen["source"] == "ranks" else f"proven {chosen['reason']}".strip()
        return Transport("proven", chosen["transport"], reason)
    return Transport(chosen["verdict"], chosen["transport"], chosen["reason"] or "not proven")
