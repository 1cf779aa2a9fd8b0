"""What a VM size promises of its nodes: the catalogue's row, as nodes are held to it."""

from __future__ import annotations

from catalogue.sizes import find
from launch.remote.base.health_records import Promise

__all__ = ["promise_of"]

_FIGURES = {
    "gpus": "gpus",
    "gpu": "gpu",
    "hca_gbps": "hca_gbps",
    "memory_gib": "seen_memory_gib",
}
"""Keys of a promise, and the figures of the row that they are."""


def promise_of(name: str) -> Promise:
    """Return what the size called ``name`` promises; of an unknown size, its name alone.

    >>> promise_of("Standard_HC44rs")["memory_gib"], promise_of("Standard_HC44rs")["sources"]["memory_gib"]
    (346, 'azurehpc-health-checks')
    >>> promise_of("Standard_A0")
    {'size': 'Standard_A0'}
    """
    row = find(name)
    if row is None:
        return {"size": name}
    promise: Promise = {"size": name, "hcas": row.hcas if row.infiniband else 0}
    sources = {"hcas": row.sources.get("hcas") or row.sources["rdma"]}
    for key, figure in _FIGURES.items():
        value = getattr(row, figure)
        if value is not None:
            promise[key], sources[key] = value, row.sources[figure]  # type: ignore[literal-required]
    for key in ("gpu_driver", "compute_capability"):
        if key in row.sources:
            promise["vendor"] = "amd" if row.gpu_driver == "rocm" else "nvidia"
            sources["vendor"] = row.sources[key]
            break
    for key in ("fabric_manager", "gpudirect", "nvme"):
        if getattr(row, key) is not None:
            promise[key], sources[key] = int(getattr(row, key)), row.sources[key]  # type: ignore[literal-required]
    if row.topology:
        promise["topology"] = f"/opt/microsoft/{row.topology}-topo.xml"
        sources["topology"] = row.sources["topology"]
    promise["sources"] = sources
    return promise
