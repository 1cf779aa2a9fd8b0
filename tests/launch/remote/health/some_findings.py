"""Findings of looks, for tests of what is made of them."""

from __future__ import annotations

from launch.remote.base.health_records import Finding, Look

__all__ = ["DOWN", "ECC", "HOT", "looked"]

DOWN: Finding = {
    "rule": "ib-state",
    "level": "error",
    "subject": "mlx5_ib0:1",
    "measured": "1: DOWN",
    "expected": "4: ACTIVE",
    "source": "healthagent",
    "remedy": "`fab replace` the node",
}
ECC: Finding = {**DOWN, "rule": "gpu-ecc", "remedy": "reboot the node; if it comes back, `fab replace` it"}
HOT: Finding = {
    **DOWN,
    "rule": "gpu-temperature",
    "level": "warning",
    "subject": "GPU 1",
    "measured": "95 C",
    "expected": "at most 93 C",
    "remedy": "wait",
}


def looked(*findings: Finding) -> Look:
    """A look with these findings."""
    return {"findings": list(findings), "gpus": 8, "ports": []}
